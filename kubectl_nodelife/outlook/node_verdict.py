"""Sums up a node in one word and one sentence: its state, why, what comes next, and what a person
can do about one that is lost by itself.

The words: `healthy`, `cordoned`, `pressure` (of a kubelet), `no-network` (NetworkUnavailable),
`tainted` (Ready, with a NoExecute taint that its pods tolerate for ever, or that the next monitor
pass removes), `evicting` (some do not), `silent` (its lease is late), `overdue` (late beyond the
grace period, and Ready is still True), `never-posted`, `not-ready`, `unreachable`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import NodeCondition
from kubectl_nodelife.kube.pod import TERMINAL_PHASES
from kubectl_nodelife.kube.times import SECOND_NS, format_duration, format_time, human_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.outlook.eviction_forecast import ClassicEviction, EvictionTimer, Range
from kubectl_nodelife.outlook.node import OVERDUE_NS, NodeOutlook
from kubectl_nodelife.workloads.force_advice import OUT_OF_SERVICE, release_of
from kubectl_nodelife.workloads.foreign_taints import foreign_marks

WORST_FIRST = (
    "overdue",
    "unreachable",
    "not-ready",
    "silent",
    "evicting",
    "never-posted",
    "pressure",
    "no-network",
    "tainted",
    "cordoned",
    "healthy",
)
_MOST_NAMES = 3
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_BAD: Final = (*_PRESSURES, "NetworkUnavailable")
_TURNS: Final = ("SetNodeCondition", "Ready=Unknown")
FINE = frozenset({"healthy", "cordoned", "tainted"})
UNHEARD = frozenset({"silent", "overdue", "unreachable", "not-ready"})
"""States of nodes whose pods are marked not ready, or soon will be."""

LEAST_RENEWING: Final = 3
UNHEARD_SECONDS: Final = 5.0
"""Where so many nodes renew, so long without any news is odd."""


def nothing_comes(source: Mapping[str, Any]) -> str:
    """A sentence on a link that is as silent as all nodes are. `source`: the contract's."""
    server = source.get("server") or "the API server"
    return f"nothing comes from {server}: the link to it is down, or all nodes fell silent at once"


# nodeStatusReportFrequency: a kubelet posts its status at least so often, whatever its Lease does.
_STATUS_REPORT_NS = 300 * SECOND_NS


class NextAction(msgspec.Struct, frozen=True):
    """The next action and in how many seconds it comes; None: not while things stay as they are.

    `overdue_since_ns`: when it should have come (ns since the epoch), and `overdue_ns` ago, where
    that is over: no time is foreseen for what its controller does not do. `within`: at the earliest
    and at the latest, where that depends on what cannot be seen; `in_seconds` is then the middle.
    `act`: the class of the action. `about`: the pod as namespace/name, the taint, the condition.
    `held`: why it does not come, or not surely, where `in_seconds` is None.
    """

    act: str
    about: str
    in_seconds: float | None
    within: Range | None = None
    overdue_since_ns: int | None = None
    overdue_ns: int = 0
    held: str = ""

    @property
    def action(self) -> str:
        """What documents call it."""
        return f"{self.act} {self.about}"

    @property
    def words(self) -> str:
        """What sentences call it."""
        return _NOUNS.get(self.act, "") + self.about

    @property
    def pod(self) -> str:
        """The pod that is deleted; "" where the action is about the node."""
        return self.about if self.act == "DeletePod" else ""

    @property
    def span(self) -> Range | None:
        """Between which instants from now it comes; None: that is not foreseen."""
        if self.in_seconds is None:
            return None
        at_ns = round(self.in_seconds * SECOND_NS)
        return self.within or Range(at_ns, at_ns)


def delete_pod(
    of: EvictionTimer, in_seconds: float | None, since_ns: int | None = None, late_ns: int = 0
) -> NextAction:
    """The deletion of the pod whose timer that is, or was; `since_ns`, `late_ns`: it is overdue."""
    pod = f"{of.namespace}/{of.name}"
    return NextAction("DeletePod", pod, in_seconds, None, since_ns, late_ns)


_NOUNS: Final = {
    "AddTaint": "taint ",
    "DeletePod": "deletion of ",
    "RemoveTaint": "removal of taint ",
}


def _overdue(act: str, about: str, since_ns: int, now_ns: int) -> NextAction:
    return NextAction(act, about, None, None, since_ns, now_ns - since_ns)


def within(act: str, about: str, span: Range | None, held: str = "") -> NextAction:
    """The action that comes within that time; None: it is `held`, in words."""
    if span is None:
        return NextAction(act, about, None, held=held)
    seconds = span.middle_ns / SECOND_NS
    return NextAction(act, about, seconds, span if span.low_ns < span.high_ns else None)


def in_words(state: str) -> str:
    """The state, as a sentence has it after "is"."""
    return {"pressure": "under pressure", "no-network": "without a network"}.get(state, state)


class NodeVerdict(msgspec.Struct, frozen=True):
    """A state, a sentence, and what comes next (None: nothing)."""

    state: str
    because: str
    next: NextAction | None = None

    @property
    def span(self) -> Range | None:
        """Between which instants from now it comes; None: nothing does that is foreseen."""
        return self.next.span if self.next is not None else None

    @property
    def urgency(self) -> tuple[int, float]:
        """A key that puts trouble first, and of the same trouble what comes soonest."""
        seconds = self.next.in_seconds if self.next is not None else None
        return WORST_FIRST.index(self.state), inf if seconds is None else seconds


def node_verdict(outlook: NodeOutlook, now_ns: int) -> NodeVerdict:
    """The verdict on one node."""
    if outlook.ready == "":
        return _never_posted(outlook)
    if outlook.ready != "True":
        return _lost(outlook, now_ns)
    age_ns, unknown_in, sign = outlook.sign_age_ns, outlook.unknown_in, outlook.last_sign
    is_kept = outlook.late and outlook.kept != ""
    is_due = unknown_in is not None and (outlook.late or unknown_in.low_ns <= 0)
    if age_ns is None or not (is_kept or is_due):
        return _silent_without_lease(outlook) or _ready(outlook, now_ns)
    said = f"{sign} {human_duration(age_ns)} ago"
    if is_kept or unknown_in is None:
        return NodeVerdict("silent", f"{said}; {outlook.kept}")
    grace = format_duration(outlook.grace_ns)
    if unknown_in.high_ns > 0:
        because = f"{said}; Ready becomes Unknown after {grace} of silence"
        return NodeVerdict("silent", because, within(*_TURNS, unknown_in))
    said += f", longer than the grace period {grace}"
    if outlook.first_look:
        wrong = "a first look cannot distinguish silence from a clock that is wrong"
        return NodeVerdict("silent", f"{said}, and Ready is still True; {wrong}")
    because = f"{said}, yet Ready is still True: no controller acted on it"
    return NodeVerdict("overdue", because, NextAction(*_TURNS, 0))


def _silent_without_lease(outlook: NodeOutlook) -> NodeVerdict | None:
    """A node whose Lease was not read, and whose status is older than any kubelet leaves it.

    It is not called lost: a Lease, which was not read, may be young.
    """
    age_ns = outlook.status_age_ns
    if outlook.doubt:
        return NodeVerdict("silent", outlook.doubt)
    if outlook.sign_age_ns is not None or age_ns is None:
        return None
    if age_ns <= _STATUS_REPORT_NS + outlook.grace_ns:
        return None
    because = (
        f"no lease was read, and its status was last posted {human_duration(age_ns)} ago, which a "
        f"kubelet does at least every {format_duration(_STATUS_REPORT_NS)}: nothing shows it alive"
    )
    return NodeVerdict("silent", because)


def _ready(outlook: NodeOutlook, now_ns: int) -> NodeVerdict:
    deletion = _next_deletion(outlook, now_ns)
    late = _overdue_pods(outlook, now_ns)
    removal = _removal(outlook, now_ns)
    upcoming = removal or deletion
    node = outlook.node
    if outlook.pass_overdue_ns is not None:
        return _not_untainted(outlook, outlook.pass_overdue_ns, now_ns)
    if bad := [c for c in node.status.conditions if c.status == "True" and c.type in _BAD]:
        pressed = any(c.type in _PRESSURES for c in bad)
        because = _pressure(outlook, bad, now_ns, pressed=pressed)
        return NodeVerdict("pressure" if pressed else "no-network", because, upcoming)
    going = outlook.lost_taints if removal is not None else []
    stay = [t for t in node.spec.taints if t.effect == NO_EXECUTE and t not in going]
    if late is not None and stay:
        because = f"Ready, with {', '.join(map(str, stay))}, which they do not tolerate"
        return NodeVerdict("evicting", f"{because}: {late[0]}", late[1])
    if deletion is not None and stay:
        because = f"Ready, but pods do not tolerate {', '.join(map(str, stay))} for ever"
        because = "; ".join(filter(None, (because, outlook.leaving)))
        return NodeVerdict("evicting", because, upcoming)
    marked = foreign_marks(node, now_ns) if node.spec.taints else ()
    marks = "; ".join(mark.sentence for mark in marked)
    if node.spec.unschedulable:
        said = ("Ready", "cordoned, so that no new pod comes", marks)
        return NodeVerdict("cordoned", "; ".join(filter(None, said)), upcoming)
    if going:
        because = f"Ready again; the next monitor pass removes {', '.join(map(str, going))}"
        return NodeVerdict("tainted", because, upcoming)
    if marks:
        return NodeVerdict("tainted", f"Ready; {marks}")
    if stay:
        taints = ", ".join(map(str, stay))
        because = f"Ready; {taints} keeps out all pods that do not tolerate it"
        return NodeVerdict("tainted", because)
    age_ns, by_lease = outlook.sign_age_ns, outlook.leases_count
    if age_ns is None:
        unread = "no lease was read" if by_lease else "its status has no heartbeat time"
        because = f"Ready is True; {unread}, so its age is unknown"
        if by_lease and outlook.status_age_ns is not None:
            because += f"; its status was posted {human_duration(outlook.status_age_ns)} ago"
        return NodeVerdict("healthy", because)
    age = human_duration(age_ns)
    because = f"Ready; {'lease renewed' if by_lease else 'status posted'} {age} ago"
    if ahead_ns := outlook.clock_ahead_ns(now_ns):
        because = f"Ready; its clock is {human_duration(ahead_ns)} ahead, which moves nothing"
    return NodeVerdict("healthy", because)


def _not_untainted(outlook: NodeOutlook, since_ns: int, now_ns: int) -> NodeVerdict:
    """A node that is Ready again, and still bears the taint of a lost one."""
    taint = f"{outlook.lost_taints[0].key}:{NO_EXECUTE}"
    because = f"Ready again, and the removal of {taint} {_late(since_ns, now_ns)}"
    return NodeVerdict("evicting", because, _overdue("RemoveTaint", taint, since_ns, now_ns))


def _pressure(
    outlook: NodeOutlook, conditions: Sequence[NodeCondition], now_ns: int, *, pressed: bool
) -> str:
    """What the conditions mean: under pressure a kubelet kills running pods, one each 10 s, as long
    as its signal is over the threshold (`eviction_manager.go`, synchronize); under PIDPressure too.
    A network that is not available keeps new pods away, and the running ones stay."""
    said = []
    for condition in conditions:
        since_ns = condition.last_transition_time
        since = f" for {human_duration(now_ns - since_ns)}" if since_ns is not None else ""
        reason = f" ({condition.reason})" if condition.reason else ""
        message = f": {condition.message}" if condition.message else ""
        said.append(f"{condition.type}{reason}{since}{message}")
    text = f"Ready, with {', '.join(said)}"
    if not pressed:
        return f"{text}: no new pod comes, running ones stay"
    evicted = sum(p.status.phase == "Failed" and p.status.reason == "Evicted" for p in outlook.pods)
    so_far = f", {evicted} so far" if evicted else ""
    return f"{text}: its kubelet evicts running pods{so_far}, and no new pod is let in"


def _removal(outlook: NodeOutlook, now_ns: int) -> NextAction | None:
    """The first taint that a monitor pass takes off a node that is Ready again; None where a pod is
    likely to be deleted before that.
    """
    due = outlook.untaint_in
    if due is None or (outlook.timers and outlook.timers[0].comes_ns - now_ns < due.middle_ns):
        return None
    return within("RemoveTaint", f"{outlook.lost_taints[0].key}:{NO_EXECUTE}", due)


def _never_posted(outlook: NodeOutlook) -> NodeVerdict:
    """Follows `tryUpdateNodeHealth`: a renewed lease is a sign of life of a node without Ready too,
    from which the startup grace period counts anew.
    """
    grace = format_duration(outlook.grace_ns)
    because = f"the node has no Ready condition; node-startup-grace-period {grace}"
    age_ns, unknown_in = outlook.sign_age_ns, outlook.unknown_in
    if age_ns is not None and not outlook.late:
        because += f"; its lease was renewed {human_duration(age_ns)} ago, which starts that anew"
        return NodeVerdict("never-posted", because)
    upcoming = within(*_TURNS, unknown_in) if unknown_in is not None else None
    return NodeVerdict("never-posted", because, upcoming)


def _lost(outlook: NodeOutlook, now_ns: int) -> NodeVerdict:
    """A node that is not Ready; one that says so itself may fall silent before something else."""
    verdict = _not_ready(outlook, now_ns)
    age_ns, unknown_in = outlook.sign_age_ns, outlook.unknown_in
    if outlook.ready != "False" or age_ns is None or unknown_in is None or not outlook.late:
        return verdict
    if verdict.next is not None and verdict.next.overdue_since_ns is not None:
        return verdict
    turns = within(*_TURNS, unknown_in)
    if turns.in_seconds is not None and verdict.urgency[1] < turns.in_seconds:
        return verdict
    silence = f"{outlook.last_sign} {human_duration(age_ns)} ago"
    return NodeVerdict(verdict.state, f"{verdict.because}; {silence}", turns)


def _not_ready(outlook: NodeOutlook, now_ns: int) -> NodeVerdict:
    unknown = outlook.ready == "Unknown"
    state = "unreachable" if unknown else "not-ready"
    cause = (
        "its kubelet stopped posting (Ready is Unknown)"
        if unknown
        else f"its kubelet reports Ready=False ({outlook.reason or 'no reason given'})"
    )
    if outlook.classic is not None:
        return _lost_without_taints(outlook, outlook.classic, state, cause)
    key = f"node.kubernetes.io/{state}"
    taint = "AddTaint", f"{key}:{NO_EXECUTE}"
    if outlook.queued is not None:
        missing = "" if outlook.node.has_taint(key, NO_SCHEDULE) else _LACKS_BOTH.format(key)
        turn, place = outlook.queued.turn, outlook.queued.in_words()
        if outlook.taint_overdue_ns is not None:
            since = outlook.taint_overdue_ns
            because = (
                f"{cause}; its NoExecute taint is overdue since {_since(since, now_ns)}: "
                f"node-lifecycle does not set it ('kubectl nodelife diverge' says more){missing}"
            )
            return NodeVerdict(state, because, _overdue(*taint, since, now_ns))
        if turn is None:
            because = f"{cause}; waits for its NoExecute taint, but {outlook.queued.held}{missing}"
            return NodeVerdict(state, because, within(*taint, None, outlook.queued.held))
        because = f"{cause}; {place} for a NoExecute taint{missing}"
        return NodeVerdict(state, because, within(*taint, turn))
    if outlook.pass_overdue_ns is not None:
        since, what = outlook.pass_overdue_ns, f"the exchange of {outlook.other_taint}:NoExecute"
        because = f"{cause}; {what} {_late(since, now_ns)}"
        return NodeVerdict(state, because, _overdue(*taint, since, now_ns))
    if outlook.exchange_in is not None:
        because = (
            f"{cause}; the next monitor pass exchanges {outlook.other_taint}:NoExecute for the "
            "taint of that status, and timers of its pods go on"
        )
        return NodeVerdict(state, because, within(*taint, outlook.exchange_in))
    upcoming = _next_deletion(outlook, now_ns)
    if upcoming is not None:
        count = len(outlook.timers)
        wait = f"{count} {'pods wait' if count > 1 else 'pod waits'} for deletion"
        because = f"{cause}; tainted, {outlook.leaving or wait}"
        return NodeVerdict(state, because, upcoming)
    if (late := _overdue_pods(outlook, now_ns)) is not None:
        return NodeVerdict(state, f"{cause}; tainted; {late[0]}", late[1])
    if outlook.node.has_taint(key, NO_EXECUTE):
        return NodeVerdict(state, f"{cause}; tainted; {_pods_left(outlook)}")
    return NodeVerdict(state, cause)


_LACKS_BOTH: Final = (
    "; it lacks even {}:NoSchedule, which the controller adds at once, as if none ran"
)


def _pods_left(outlook: NodeOutlook) -> str:
    """Why no pod of a tainted node waits for its deletion."""
    leaving = sum(pod.metadata.deletion_timestamp is not None for pod in outlook.pods)
    finished = sum(
        pod.status.phase in TERMINAL_PHASES and pod.metadata.deletion_timestamp is None
        for pod in outlook.pods
    )
    staying = len(outlook.pods) - leaving - finished
    said = {
        ("tolerates that for ever", "tolerate that for ever"): staying,
        ("is leaving", "are leaving"): leaving,
        ("has finished", "have finished"): finished,
    }
    parts = [f"{counted(many, 'pod')} {verbs[many > 1]}" for verbs, many in said.items() if many]
    return ", ".join(parts) or "no pod is left on it"


def _lost_without_taints(
    outlook: NodeOutlook, classic: ClassicEviction, state: str, cause: str
) -> NodeVerdict:
    """Pods are evicted when pod-eviction-timeout is over and the zone's queue comes to the node."""
    timeout = f"pod-eviction-timeout {format_duration(classic.timeout_ns)}"
    if classic.evicted:
        stay = "those left belong to DaemonSets, are Terminating or came later"
        return NodeVerdict(state, f"{cause}; its pods were evicted after {timeout}: {stay}")
    if classic.first_to_go is None:
        return NodeVerdict(state, f"{cause}; no pod is on it that would be evicted")
    evicted_in, held = classic.left, ""
    because = f"{cause}; its pods are evicted after {timeout}, counted since {classic.clock}"
    if outlook.queued is not None:
        evicted_in, held = outlook.queued.turn, outlook.queued.held
        because = f"{cause}; {outlook.queued.in_words()} for the eviction of its pods"
        if evicted_in is None:
            because = f"{cause}; waits for the eviction of its pods, but {held}"
    elif evicted_in is None:
        return NodeVerdict(state, f"{because}, which was not read")
    first = "/".join(classic.first_to_go)
    return NodeVerdict(state, because, within("DeletePod", first, evicted_in, held))


def _overdue_pods(outlook: NodeOutlook, now_ns: int) -> tuple[str, NextAction] | None:
    """What is to be said of pods that should have been deleted, and the first of them; None where
    there is none."""
    if not outlook.overdue:
        return None
    first, count = outlook.overdue[0], len(outlook.overdue)
    names = first_names([f"{t.namespace}/{t.name}" for t in outlook.overdue], _MOST_NAMES)
    verb = "is" if count == 1 else "are"
    if now_ns - first.due_ns <= OVERDUE_NS:
        return f"{names} {verb} due for deletion now", delete_pod(first, 0)
    said = f"the deletion of {names} is overdue since {_since(first.due_ns, now_ns)}"
    doer = "taint-eviction does not do it ('kubectl nodelife diverge' says more)"
    return f"{said}: {doer}", delete_pod(first, None, first.due_ns, now_ns - first.due_ns)


def _late(since_ns: int, now_ns: int) -> str:
    doer = "node-lifecycle does not do it ('kubectl nodelife diverge' says more)"
    return f"is overdue since {_since(since_ns, now_ns)}: {doer}"


def _since(at_ns: int, now_ns: int) -> str:
    return f"{format_time(at_ns)} ({human_duration(now_ns - at_ns)})"


def _next_deletion(outlook: NodeOutlook, now_ns: int) -> NextAction | None:
    if not outlook.timers:
        return None
    first = outlook.timers[0]
    seconds = max(0, first.comes_ns - now_ns) / SECOND_NS
    return delete_pod(first, seconds)


class Option(msgspec.Struct, frozen=True):
    """A command that one may type, and what it does. `acts`: the same in the words of `what-if`,
    which plays what comes of it; "" where the command changes nothing.
    """

    command: str
    effect: str
    acts: str = ""


def ways_out(settings: Settings, of_node: NodeOutlook, verdict: NodeVerdict) -> list[Option]:
    """What a person can do about a node that is lost by itself instead of waiting; [] for another.
    Either lets a second copy of its pods run beside the first where its machine is still on, so
    that the condition comes first.
    """
    if verdict.state != "unreachable":
        return []
    name = shlex.quote(of_node.node.name)
    off = "only once its machine is known to be off: its pods go"
    delete = f"delete node {name}"
    ways = [Option(f"kubectl {delete}", f"{off}, after a while", delete)]
    declared = any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in of_node.node.spec.taints)
    if release_of(settings).collects_out_of_service and not declared:
        taint = f"taint node {name} {OUT_OF_SERVICE}"
        ways.insert(0, Option(f"kubectl {taint}", f"{off}, and their volumes are detached", taint))
    return ways
