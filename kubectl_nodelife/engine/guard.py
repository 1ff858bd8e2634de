"""Decides if a write may be sent now: the gate, the caps and the breaker of enforce mode.

`admit(action, view, now) -> Go | Hold | Refuse` is pure. The view is what the rest of the program
knows at this moment (Lease, watches, pause, kill switch); `Guard` remembers what was sent and how
it ended, and from that opens the breaker. What is held stays planned and is decided anew.

*Harm* is what hurts if it is wrong: a node called lost, a NoExecute taint, pods marked or deleted.
*Recovery* takes such things back; it passes the caps and a breaker that was opened by errors, never
one that means that another is at work, nor the Lease, a pause or the kill switch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeGuard

import msgspec

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TRUE, UNKNOWN

MINUTE_NS: Final = 60 * SECOND_NS
KILL_SWITCH_NS: Final = 5 * SECOND_NS
HALF_OPEN_NS: Final = 30 * SECOND_NS
ERRORS: Final = 5
LAST_WRITES: Final = 10
TOO_MANY_REQUESTS: Final = 429
_REFUSED: Final = range(400, 500)
_RETRY_NS: Final = SECOND_NS
_SHOWN_NS: Final = 15 * SECOND_NS
"""Within this the cluster shows what was sent, or it was refused."""
NODES_GONE: Final = "nodes gone"
FAULT: Final = "fault"


class Go(msgspec.Struct, frozen=True):
    """Send it."""


class Hold(msgspec.Struct, frozen=True):
    """Not now; look again at `until_ns`."""

    until_ns: int
    because: str


class Refuse(msgspec.Struct, frozen=True):
    """Never as it stands; it is decided anew, or not at all."""

    because: str


Admission = Go | Hold | Refuse
GO: Final = Go()


class Caps(msgspec.Struct, frozen=True):
    """How much at most; None: no limit. `--caps=upstream` is all None but `total`.

    `set_deletions_a_minute`: pods of one DaemonSet; `by_budget`: twice its maxUnavailable where
    that is more. `errors`: so many of the last ten writes of a kind.
    """

    taints_a_minute: int | None = 10
    deletions_a_minute: int | None = 100
    zone_share: float | None = 0.55
    cluster_share: float | None = 0.34
    set_deletions_a_minute: int | None = 10
    set_deletions_by_budget: bool = True
    errors: int | None = ERRORS
    nodes_gone_share: float | None = 0.10
    total: int | None = None
    claims_a_minute: int | None = None


CAP_NAMES: Final[Mapping[str, tuple[str, bool]]] = {
    "taints-per-minute": ("taints_a_minute", False),
    "deletions-per-minute": ("deletions_a_minute", False),
    "zone-percent": ("zone_share", True),
    "cluster-percent": ("cluster_share", True),
    "daemonset-deletions-per-minute": ("set_deletions_a_minute", False),
    "nodes-gone-percent": ("nodes_gone_share", True),
    "errors-of-ten": ("errors", False),
}
"""Name of a cap as people give it -> its field of Caps, and whether it is given in percent."""

UPSTREAM: Final = Caps(None, None, None, None, None, errors=None, nodes_gone_share=None)


class WriteConditions(msgspec.Struct, frozen=True):
    """The state of this moment. `zones`: node -> its zone, of all nodes. `tainted`: nodes with a
    NoExecute taint of a lost node. Both are asked for only where a share is counted.
    """

    leads: bool = True
    synced: bool = True
    blind: str = ""
    cold_until_ns: int = 0
    paused_because: str = ""
    kill_switch_absent_ns: int = 0
    kill_switch_present: bool = False
    journal_error: str = ""
    zones: Callable[[], Mapping[str, str]] = dict
    tainted: Callable[[], Collection[str]] = tuple


class Breaker(msgspec.Struct, frozen=True):
    """Why nothing is sent. `verb`: such as `PATCH Pod`, "" for all. `heals`: half-open later.

    `recovery_passes`: what opened it says nothing against taking things back. `controller`: whose
    writes it is about, "" for all.
    """

    rule: str
    because: str
    since_ns: int
    verb: str = ""
    heals: bool = False
    recovery_passes: bool = False
    controller: str = ""


class Guard:
    """Admits writes one by one, and remembers them. `breakers`: what is open, by rule and verb.

    `on_change` receives a breaker that opens, and None where some were closed; `on_close` each that
    is closed, and how. `set_of` gives the uid of the DaemonSet that a pod belongs to, and its
    maxUnavailable in nodes.
    """

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.on_change: Callable[[Breaker | None], None] = lambda breaker: None
        self.on_close: Callable[[Breaker, str], None] = lambda breaker, how: None
        self.sent = 0
        self.breakers: dict[tuple[str, str], Breaker] = {}
        self.set_of: Callable[[actions.DeletePod], tuple[str, int]] = lambda action: ("", 0)
        self._recovering: tuple[actions.Action, int] | None = None
        self._set_deletions: dict[str, deque[int]] = {}
        self._taints: deque[int] = deque()
        self._tainting: dict[str, int] = {}
        self._deletions: deque[int] = deque()
        self._claims: deque[int] = deque()
        self._ends: dict[str, deque[bool]] = {}
        self._half_open: dict[str, tuple[actions.Action, int]] = {}

    # The decision

    def admit(self, action: actions.Action, view: WriteConditions, now_ns: int) -> Admission:
        """Go, Hold or Refuse for the action at this instant; after Go, `sending` must follow."""
        stopped = self.stopped(action, view, now_ns)
        if stopped is not None:
            return stopped
        if isinstance(action, actions.RecordEvent):
            return GO
        if self.caps.total is not None and self.sent >= self.caps.total:
            return Refuse(f"--max-writes {self.caps.total} is used up")
        return GO if is_recovery(action) else self._caps(action, view, now_ns)

    def stopped(self, action: actions.Action, view: WriteConditions, now_ns: int) -> Hold | None:
        """What stops the action whatever was sent so far: the gate, or a breaker. The caps count
        an action that is being sent already.
        """
        closed = self._gate(action, view, now_ns)
        if closed is not None or isinstance(action, actions.RecordEvent):
            return closed
        recovery = is_recovery(action)
        held = (self._held_by(b, action, recovery, now_ns) for b in self.breakers.values())
        return next((hold for hold in held if hold is not None), None)

    def _gate(self, action: actions.Action, view: WriteConditions, now_ns: int) -> Hold | None:
        later = now_ns + _RETRY_NS
        if not view.leads:
            return Hold(later, "the Lease is not held")
        if not view.synced or view.blind:
            return Hold(later, view.blind or "not all lists are read")
        if view.paused_because:
            return Hold(later, view.paused_because)
        if view.kill_switch_present:
            return Hold(later, "the ConfigMap kube-system/nodelife-stop is there")
        if now_ns > view.kill_switch_absent_ns + KILL_SWITCH_NS:
            return Hold(later, "the ConfigMap kube-system/nodelife-stop cannot be looked for")
        if view.journal_error:
            return Hold(later, f"the journal cannot be written: {view.journal_error}")
        if now_ns < view.cold_until_ns and is_harm(action):
            return Hold(view.cold_until_ns, "watching for one grace period first")
        return None

    def _held_by(
        self, breaker: Breaker, action: actions.Action, recovery: bool, now_ns: int
    ) -> Hold | None:
        if breaker.verb and breaker.verb != verb_of(action):
            return None
        if breaker.controller and breaker.controller != action.controller:
            return None
        if breaker.rule == NODES_GONE and not getattr(action, "if_node_gone", ""):
            return None  # only what cannot be taken back waits
        if recovery and breaker.recovery_passes:
            return self._one_at_a_time(action, now_ns)
        if breaker.heals and now_ns >= breaker.since_ns + HALF_OPEN_NS:
            tries = self._half_open.get(breaker.verb)
            if tries is None or tries[0] is action or now_ns >= tries[1] + HALF_OPEN_NS:
                self._half_open[breaker.verb] = (action, now_ns)
                return None
            return Hold(now_ns + _RETRY_NS, f"{breaker.because}; one write tries")
        return Hold(now_ns + _RETRY_NS, breaker.because)

    def _one_at_a_time(self, action: actions.Action, now_ns: int) -> Hold | None:
        """Under an open breaker, recovery waits for the recovery before it."""
        other = self._recovering
        if other is None or other[0] is action or now_ns >= other[1] + MINUTE_NS:
            return None
        return Hold(now_ns + _RETRY_NS, "recovery goes one at a time while a breaker is open")

    def _caps(self, action: actions.Action, view: WriteConditions, now_ns: int) -> Admission:
        caps = self.caps
        if is_capped_taint(action):
            share = self._share(action, view, now_ns)
            if share:
                return Hold(now_ns + _RETRY_NS, share)
            return _within(self._taints, caps.taints_a_minute, "NoExecute taints", now_ns)
        if is_claim(action):
            return _within(self._claims, caps.claims_a_minute, "claims of nodes", now_ns)
        if is_capped_deletion(action):
            of_set = self._within_set(action, now_ns)
            if of_set != GO:
                return of_set
            return _within(self._deletions, caps.deletions_a_minute, "deletions", now_ns)
        return GO

    def _within_set(self, action: actions.Action, now_ns: int) -> Admission:
        """A bad template must not take the pods of a set faster than a person can press pause."""
        most = self.caps.set_deletions_a_minute
        if most is None or not is_daemon_deletion(action):
            return GO
        uid, unavailable = self.set_of(action)
        if self.caps.set_deletions_by_budget:
            most = max(most, 2 * unavailable)
        times = self._set_deletions.setdefault(uid, deque())
        return _within(times, most, "deletions of pods of one DaemonSet", now_ns)

    def _share(self, action: actions.Action, view: WriteConditions, now_ns: int) -> str:
        """Why tainting one node more would be too much of a zone or of the cluster.

        A taint that was sent counts at once, before the cluster shows it.
        """
        if self.caps.zone_share is None and self.caps.cluster_share is None:
            return ""
        node, zone_of = action.target[1][1], view.zones()
        zone = zone_of.get(node, "")
        sent = {n for n, at_ns in self._tainting.items() if now_ns < at_ns + _SHOWN_NS}
        tainted = {*view.tainted(), *sent} - {node}
        of_zone = {name for name, other in zone_of.items() if other == zone}
        least = 2 if len(of_zone) > 3 else 1
        for share, nodes, fewest, where in (
            (self.caps.zone_share, of_zone, least, f"zone {zone or 'none'}"),
            (self.caps.cluster_share, zone_of.keys(), 1, "the cluster"),
        ):
            count = len(tainted & nodes)
            if share is not None and count >= (max(fewest, int(len(nodes) * share)) * bool(share)):
                return f"{count} of {len(nodes)} nodes of {where} are tainted by us already"
        return ""

    def left(self, now_ns: int) -> dict[str, int]:
        """The rest of each cap at this moment, by its name on the command line."""
        caps, ago_ns = self.caps, now_ns - MINUTE_NS
        budgets = {
            "taints-per-minute": (caps.taints_a_minute, sum(t > ago_ns for t in self._taints)),
            "deletions-per-minute": (
                caps.deletions_a_minute,
                sum(t > ago_ns for t in self._deletions),
            ),
            "max-writes": (caps.total, self.sent),
        }
        return {n: max(0, most - used) for n, (most, used) in budgets.items() if most is not None}

    # What is remembered

    def sending(self, action: actions.Action, now_ns: int) -> None:
        """The action is about to be sent."""
        if isinstance(action, actions.RecordEvent):
            return
        self.sent += 1
        if is_capped_taint(action):
            self._taints.append(now_ns)
            self._tainting[action.target[1][1]] = now_ns
        elif is_claim(action):
            self._claims.append(now_ns)
        elif is_capped_deletion(action):
            self._deletions.append(now_ns)
            if is_daemon_deletion(action):
                uid, _ = self.set_of(action)
                self._set_deletions.setdefault(uid, deque()).append(now_ns)
        if is_recovery(action):
            self._recovering = (action, now_ns)

    def ended(self, action: actions.Action, code: int, message: str, now_ns: int) -> None:
        """The outcome of a write: errors of the server open the breaker for that verb and kind.

        What the API server refuses (4xx) has written nothing: it does not count towards the total,
        nor an eviction that a budget refuses towards the deletions. NOT_SENT: it was refused with
        401, and not sent again with new credentials.
        """
        if self._recovering is not None and self._recovering[0] is action:
            self._recovering = None
        if code in _REFUSED and not isinstance(action, actions.RecordEvent):
            self.sent -= 1
        if isinstance(action, actions.EvictPod) and code == TOO_MANY_REQUESTS and self._deletions:
            self._deletions.pop()
        says_nothing = isinstance(action, (actions.RecordEvent, actions.EvictPod))
        if says_nothing or code == NOT_SENT or self.caps.errors is None:
            return
        verb = verb_of(action)
        bad = code in (0, 401, 429) or (code >= 500 and "failed calling webhook" not in message)
        ends = self._ends.setdefault(verb, deque(maxlen=LAST_WRITES))
        ends.append(bad)
        tried = self._half_open.pop(verb, None)
        if tried is not None and not bad:
            healed = self.breakers.pop(("errors", verb), None)
            ends.clear()
            if healed is not None:
                self.on_close(healed, "a write has worked again")
            return
        if tried is not None or sum(ends) >= max(1, self.caps.errors):
            failure = f"HTTP {code}" if code >= 400 else message  # it may quote what was sent
            because = f"{sum(ends)} of the last {len(ends)} writes ({verb}) failed: {failure}"
            self.open(Breaker("errors", because, now_ns, verb, heals=True, recovery_passes=True))

    def open(self, breaker: Breaker) -> None:
        """Hold everything that the breaker is about."""
        key = (breaker.rule, breaker.verb or breaker.controller)
        is_counted = key in self.breakers
        self.breakers[key] = breaker
        if not is_counted:
            self.on_change(breaker)

    def add_to(self, rule: str, more: str) -> None:
        """More is known of why the breaker of that rule is open."""
        breaker = self.breakers.get((rule, ""))
        if breaker is not None:
            because = f"{breaker.because}, {more}"
            self.breakers[rule, ""] = msgspec.structs.replace(breaker, because=because)

    def close(self, rule: str, how: str) -> None:
        """Close the breaker of that rule: its cause is over."""
        breaker = self.breakers.pop((rule, ""), None)
        if breaker is not None:
            self.on_change(None)
            self.on_close(breaker, how)

    def resume(self) -> None:
        """A person says go on."""
        closed = list(self.breakers.values())
        self.breakers.clear()
        self.on_change(None)
        for breaker in closed:
            self.on_close(breaker, "closed by `daemon resume`")
        self._ends.clear()
        self._half_open.clear()


def verb_of(action: actions.Action) -> str:
    """The action's kind of write, for the breaker: its class and the kind of its object."""
    return f"{type(action).__name__} {action.target[0]}"


def _within(times: deque[int], most: int | None, what: str, now_ns: int) -> Admission:
    if most is None:
        return GO
    while times and times[0] <= now_ns - MINUTE_NS:
        times.popleft()
    if len(times) < most:
        return GO
    if not most:
        return Refuse(f"no {what} are allowed (cap 0)")
    return Hold(times[0] + MINUTE_NS, f"{most} {what} in the last minute are the cap")


def is_harm(action: actions.Action) -> bool:
    """True if it hurts if it is wrong."""
    if isinstance(action, actions.SetNodeConditions):
        return any(c.type == "Ready" and c.status == UNKNOWN for c in action.conditions)
    if isinstance(action, actions.AddTaints):
        return any(t.effect == NO_EXECUTE for t in action.taints)
    if isinstance(action, actions.DeletePod):
        if action.controller == "pod-gc":
            return bool(action.if_node_gone or action.if_node_out_of_service)
        return action.controller != "daemonset"
    if isinstance(action, actions.SetPodReady):
        return action.status != TRUE
    return isinstance(action, (actions.MarkPodNotReady, actions.SetPodReason, actions.EvictPod))


def is_recovery(action: actions.Action) -> bool:
    """True if it takes a lifecycle taint, a cordon or the mark of a lost node's pod back."""
    if isinstance(action, actions.RemoveTaints):
        return True
    if isinstance(action, actions.SetPodReady):
        return action.status == TRUE
    return isinstance(action, actions.SetUnschedulable) and not action.unschedulable


def is_claim(action: actions.Action) -> bool:
    """True if it takes a node out of service for an upgrade."""
    return isinstance(action, actions.NodeMarkPatch) and action.record == actions.CLAIM_NODE


def is_capped_deletion(action: actions.Action) -> bool:
    """True if it counts as one of the deletions a minute."""
    return isinstance(action, (actions.DeletePod, actions.EvictPod))


def is_daemon_deletion(action: actions.Action) -> TypeGuard[actions.DeletePod]:
    """True if it deletes a pod for the DaemonSet controller."""
    return isinstance(action, actions.DeletePod) and action.controller == "daemonset"


def is_capped_taint(action: actions.Action) -> bool:
    """True if it counts as one of the NoExecute taints a minute."""
    return isinstance(action, actions.AddTaints) and is_harm(action)
