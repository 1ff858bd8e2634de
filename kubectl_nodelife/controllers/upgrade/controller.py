"""The upgrade controller: one pass over a run, from what the cluster shows to what is to be done.

One of the engine's controllers, alone in the engine of the process that leads a run. A node's state
is on the node, the run's on its Lease; a new leader makes a new controller, which reads both and
counts every clock anew. A leader, live or in the virtual cluster, does this beside what every host
of an engine does:

1. It makes one `UpgradeController` and one `LeaderEngine` for each epoch in which it leads, and
   passes on what this process began in an older one (`take_over`).
2. Its clock cannot be set, and counts suspend. With each decision it says what it knows beside the
   cluster (`HostState`).
3. It carries the actions out in their order, each under the version of the object in the cache, and
   passes `StartWork` and `StopWork` to what runs commands, whose ends go to `work_ended`.
   Outcomes of writes come back as events, of those that were done, too.
4. It puts the run's Lease, with document and requests, into the cache when it reads or writes it.
5. It ends when `superseded` says why, without another write, or when `is_over` says that the run
   has ended and all is cleared away that goes with it.

A person's request stands on the run's Lease and is struck off in the PATCH that records its effect;
what is asked for a node is written into the document, and stays there until it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import claiming, gates, leaving, marks
from kubectl_nodelife.controllers.upgrade.claims import SLOTS, ClaimHold
from kubectl_nodelife.controllers.upgrade.document import (
    ALL,
    OVER,
    Ask,
    RunPhase,
    UnreadableDocument,
    UpgradeRequest,
    Verb,
    document_of,
    readable_request,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.draining import drain
from kubectl_nodelife.controllers.upgrade.fleet import Fleet
from kubectl_nodelife.controllers.upgrade.memory import HostState, UpgradeMemory, UpgradePorts
from kubectl_nodelife.controllers.upgrade.newcomers import follow_gone_nodes, follow_scale_down
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, node_info
from kubectl_nodelife.controllers.upgrade.proving import claim_for_proof, prove
from kubectl_nodelife.controllers.upgrade.settling import settle, soak
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.controllers.upgrade.working import work
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import ANY_OWNER, Actions
from kubectl_nodelife.engine.engine import Engine, OnBug
from kubectl_nodelife.engine.events import NOT_SENT, Change, Event, Outcome
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS

STATES: Final[dict[marks.NodeState, Callable[[UpgradePass, Node, marks.NodeMark], None]]] = {
    marks.NodeState.DRAINING: drain,
    marks.NodeState.WORKING: work,
    marks.NodeState.SETTLING: settle,
    marks.NodeState.PROVING: prove,
    marks.NodeState.SOAKING: soak,
}
_CAN_FAIL: Final = marks.states_with(marks.NodeEvent.FAILED)
READS: Final = (
    *("Node", "Lease", "Pod", "DaemonSet", "CSINode", "VolumeAttachment", "Job", "Namespace"),
    *("PodDisruptionBudget", "ReplicaSet", "Deployment", "StatefulSet", "ReplicationController"),
    *("HorizontalPodAutoscaler", "PersistentVolumeClaim", "PersistentVolume", "StorageClass"),
    *("Service", "EndpointSlice", "ValidatingWebhookConfiguration"),
    *("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy"),
    "ValidatingAdmissionPolicyBinding",
)
"""The kinds that the controller and its ports read, those first without which it is blind."""
_REFUSED: Final = range(400, 600)
_LOOK_AGAIN: Final = frozenset({404, 409, 429})
_NOT_THE_CLUSTERS: Final = frozenset({409, NOT_SENT})
"""Of a canary's creation: it is there already, or was never asked for."""
REFUSED_NS: Final = 60 * SECOND_NS
"""A write that was refused with other than 409 is tried again after so long."""
HELD_NS: Final = 5 * SECOND_NS
"""So long after a guard held a write back it is decided anew."""
PASS_NS: Final = 10 * SECOND_NS
"""A pass is made at least so often while a node is in flight, and else each `IDLE_NS`."""
IDLE_NS: Final = 30 * SECOND_NS
PACE_NS: Final = 200 * MILLISECOND_NS
"""Changes within so long after a pass are looked at together."""
_PASS: Final = "pass"


class UpgradeController:
    """One leader's controller of one run, for one epoch. `host`: what its leader knows beside the
    cluster. `superseded`: why this leader must end and write nothing more, "" while it leads.
    `is_over`: the run has ended, and its marks are off. `last`: the last pass, for reports.
    """

    name = marks.CONTROLLER
    watches = frozenset(READS)
    reads_conditions_of = frozenset({ANY_OWNER})
    reads_success = True

    def __init__(
        self, policy: UpgradePolicy, ports: UpgradePorts, epoch: int, began_ns: int
    ) -> None:
        self.policy, self.ports, self.epoch = policy, ports, epoch
        self.host = HostState()
        self.memory = UpgradeMemory(began_ns)
        self.memory.addresses.update(ports.planned_addresses)
        self.fleet = Fleet(policy, ports, self.memory, epoch)
        self.superseded = ""
        self.is_over = False
        self.last: UpgradePass | None = None
        self._changed: set[str] = set()
        """Nodes that changed since they were looked at last."""
        self._due_ns: int | None = None
        self._not_before_ns = began_ns

    # The interface of a controller

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Begin: what is to be remembered is on the nodes and on the Lease."""
        return self.wake(now_ns)

    join = start

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Something changed: ask for a pass."""
        if change.kind == "Node":
            obj = change.new or change.old
            self._changed.add(obj.name if obj is not None else "")
        return self.wake(now_ns)

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """Make a pass, and ask for the next one."""
        yield from self.make_pass(cache, now_ns, self._changed)
        self._not_before_ns = now_ns + PACE_NS
        self._due_ns = self._next_due_ns(now_ns)
        yield actions.Requeue(marks.CONTROLLER, _PASS, self._due_ns)

    def rests(self, key: Hashable) -> bool:
        """True if no pass of this leader decides anything any more."""
        return self.is_over or bool(self.superseded)

    def fork(self, cache: Cache) -> UpgradeController:
        """No branch has a leader of its own: scenarios with upgrades cannot be forked."""
        raise NotImplementedError

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """Take in what came of an action, done or not."""
        action, code, memory = outcome.action, outcome.code, self.memory
        if not memory.pending.ended(outcome):
            return ()
        if isinstance(action, actions.NodeMarkPatch) and code in _REFUSED:
            memory.written_marks.pop(action.node, None)
        message = outcome.message or f"code {code}"
        if code in _REFUSED and code not in _LOOK_AGAIN:
            wait_ns = HELD_NS if code == NOT_SENT else REFUSED_NS
            memory.refused[action.target] = (now_ns + wait_ns, message)
        else:
            memory.refused.pop(action.target, None)
        is_refused = code in _REFUSED and code not in _NOT_THE_CLUSTERS
        if is_refused and isinstance(action, actions.CreateForNode) and action.kind == "Pod":
            proof = memory.proof_of(action.node, now_ns)
            proof.refused, proof.refused_ns = message, now_ns
            proof.fault = f"the canary is refused: {proof.refused}"
        return self.wake(now_ns)

    def wake(self, now_ns: int) -> tuple[actions.Requeue, ...]:
        """The request for a pass as soon as the pace allows; none where one is due by then."""
        at_ns = max(now_ns, self._not_before_ns)
        if self._due_ns is not None and self._due_ns <= at_ns:
            return ()
        self._due_ns = at_ns
        return (actions.Requeue(marks.CONTROLLER, _PASS, at_ns),)

    # The pass

    def make_pass(
        self, cache: Cache, now_ns: int, changed: Collection[str] | None = None
    ) -> list[actions.Action]:
        """One pass: the actions, in the order in which they are to be carried out. `changed`: the
        nodes that may be other objects than at the last pass; None: any may.
        """
        if self.superseded:
            return []
        self.memory.pending.settle(cache)
        key = self.policy.lease_key
        shown = cache.get("Lease", key)
        lease = self.memory.pending.laid_over("Lease", key, shown, now_ns)
        try:
            document = document_of(shown if isinstance(shown, Lease) else None)
        except UnreadableDocument as error:
            self.superseded = f"the run's document cannot be read: {error}"
            return []
        if not isinstance(lease, Lease) or document is None:
            return []
        self.fleet.look(cache, lease, document, now_ns, changed)
        self._changed.clear()
        self.superseded = self.fleet.superseded
        if self.superseded:
            return []
        p = UpgradePass(self.fleet, self.host)
        before, self.last = self.last, p
        self.fleet.counts.begin_from(document.base_counts)
        gates.evaluate(p)
        if gates.BLIND in p.gates and not (gates.is_merely_cold(p) and _end_at_once(p)):
            _stand_still(p)
        elif document.phase in OVER:
            p.skipped = before.skipped if before is not None else {}
            self.is_over = leaving.clean_up(p)
        else:
            self._decide(p)
        return p.decisions()

    @property
    def foreign(self) -> dict[str, str]:
        """The nodes that another took from the run: how, and what takes our marks off them."""
        texts, nodes = {}, self.last.nodes if self.last is not None else {}
        for name, because in self.memory.foreign.items():
            if name not in nodes:
                continue
            node, (uid, mark) = nodes[name], self.memory.last_marks.get(name, ("", None))
            is_ours = mark if node.uid == uid else None
            lines = leaving.release_by_hand(node, is_ours) if is_ours else ()
            commands = "; ".join(lines) or leaving.annotation_off(node)
            texts[name] = f"{because}; the run leaves it alone. To take it out: {commands}"
        return texts

    @property
    def holds(self) -> dict[str, ClaimHold]:
        """The hold on each candidate in the last pass."""
        return self.last.holds if self.last is not None else {}

    def _next_due_ns(self, now_ns: int) -> int:
        """When to make a pass again at the latest, after one at `now_ns`."""
        p = self.last
        is_idle = p is not None and not (p.in_flight or p.gone)
        due_ns = now_ns + (IDLE_NS if is_idle else PASS_NS)
        wake_ns = p.wake_ns if p is not None else None
        return due_ns if wake_ns is None or wake_ns <= now_ns else min(due_ns, wake_ns)

    def work_ended(self, node: str, try_: int, code: int) -> None:
        """The command of that try on the node ended with that exit code."""
        self.memory.work_of(node, try_).code = code

    def take_over(self, before: UpgradeController) -> None:
        """Know what the same process knew before it slept, or was without its Lease for a moment:
        of its commands, of addresses, and which nodes it said it would leave alone. Each command
        shows by its intent's stamp of which try it is; another leader's are of another.
        """
        memory, known = self.memory, before.memory
        for name, node in known.nodes.items():
            memory.of(name).work = node.work
        memory.addresses |= known.addresses
        memory.foreign |= known.foreign
        memory.last_marks |= {n: m for n, m in known.last_marks.items() if n in known.foreign}

    def _decide(self, p: UpgradePass) -> None:
        _take_request(p)
        follow_gone_nodes(p)
        follow_scale_down(p)
        _do_asked(p)
        self._report_refused(p)
        for name, mark in p.in_flight.items():
            if p.is_busy(name):
                continue
            node, has_failed = p.nodes[name], name in p.document.failed
            if mark.epoch < self.epoch:
                adopted = p.entered(mark, mark.state, mark.reason)  # its clock begins anew
                adopted = replace(adopted, since=mark.since)
                p.update_mark(node, adopted, f"epoch {self.epoch} leads")
            elif mark.state in _CAN_FAIL and (has_failed or p.memory.of(name).failing is not None):
                leaving.fail(p, node, mark, "failed, as the run's document says")
            else:
                STATES[mark.state](p, node, mark)
        for name in p.names_in(*marks.LEFT_TO_A_PERSON):
            leaving.delete_canary(p, p.nodes[name], f"{name} is {p.marks[name].state}")
        gates.after_proofs(p)
        if not p.document.base_counts:
            p.edit(base_counts=p.next.base_counts or p.fleet.base_counts())
            return  # nothing is claimed before it is known from how many nodes is counted
        claim = claim_for_proof if p.document.proof_only else claiming.claim
        is_left = claim(p) if p.phase is not RunPhase.ABORTING else False
        leaving.end(p, is_left=is_left)

    def _report_refused(self, p: UpgradePass) -> None:
        """Name each object on which a write was refused, until it is tried again."""
        for (kind, key), (until_ns, message) in list(self.memory.refused.items()):
            if p.is_over(until_ns, 0):
                del self.memory.refused[kind, key]
            else:
                name = key[1] if kind == "Node" else f"{kind} {'/'.join(key)}"
                p.holds[name] = ClaimHold("refused", message)


def _end_at_once(p: UpgradePass) -> bool:
    """Take what a person asks to end, or to pause, the run while nothing of it is in flight: this
    needs no evidence, and so no first grace period of the leader. True if the run has ended.
    """
    if p.phase in OVER:
        return True
    is_gone = any(entry.mark is not None for entry in p.document.step.nodes.values())
    if p.in_flight or p.foreign or is_gone:
        return False
    if p.phase is RunPhase.ABORTING:
        leaving.end(p, is_left=False)
    elif (request := readable_request(p.lease)) and request.verb in (Verb.PAUSE, Verb.ABORT):
        _take_request(p)
    return False


def _stand_still(p: UpgradePass) -> None:
    """Blind: nothing is written, and nothing counts as seen. In an abort clocks run on."""
    for name, mark in p.marks.items():
        if mark.state in marks.CHECKED:
            progress = p.progress(name, mark)
            progress.ready_since_ns = None
            if not p.is_aborting:
                progress.armed_ns = p.now_ns


class LeaderEngine(Engine):
    """The engine of the process that leads a run. A leader takes in events as it receives them, and
    decides when it may: a live one (`acts/upgrade/leader.py`) once its gate, Lease and limits
    allow, a simulated one (`sim/upgrade_run.py`) once its watches have sent all of an instant.
    """

    def __init__(
        self,
        controller: UpgradeController,
        cache: Cache,
        *,
        on_bug: OnBug | None = None,
        numbers: actions.ActionNumbers | None = None,
    ) -> None:
        super().__init__([controller], cache, on_bug=on_bug, numbers=numbers)
        self.controller = controller

    def take_in(self, events: Iterable[Event], now_ns: int) -> None:
        """Bring what happened into the cache and to the controller, which decides later."""
        self.timers_wait = True
        deque(self.turns(now_ns, events), maxlen=0)

    def wake_controller(self, now_ns: int) -> None:
        """Ask for a pass, since something changed that is no object of the cluster."""
        for requeue in self.controller.wake(now_ns):
            self.wake(requeue)

    def decide(self, host: HostState, now_ns: int) -> Iterator[Sequence[actions.Action]]:
        """The decisions of the pass that is due, if one is. `host`: what the leader knows now."""
        self.controller.host = host
        self.timers_wait = False
        return self.turns(now_ns, ())


def _take_request(p: UpgradePass) -> None:
    """Take the request on the Lease into the document."""
    try:
        request = request_on(p.lease)
    except UnreadableDocument:
        p.strikes_request = True  # of no version of ours: its meaning is unknown
        return
    if request is None:
        return
    p.strikes_request = True
    by = request.by or "a person"
    if request.verb is Verb.PAUSE:
        if p.phase is RunPhase.RUNNING:
            p.edit(phase=RunPhase.PAUSED, because=request.because or f"paused by {by}")
    elif request.verb is Verb.ABORT:
        because, cut_off = request.because or f"aborted by {by}", p.next.cut_off or request.now
        p.edit(phase=RunPhase.ABORTING, because=because, cut_off=cut_off)
    elif p.phase is not RunPhase.ABORTING:
        _resume(p, request)


def _resume(p: UpgradePass, request: UpgradeRequest) -> None:
    """Ends a pause, forgives the failures so far, and notes what is asked for single nodes."""
    asked, given_back = dict(p.next.asked), dict(p.next.given_back)
    undecided = sorted(p.names_in(*marks.LEFT_TO_A_PERSON))
    asked |= dict.fromkeys(_meant(request.retry, undecided), Ask.RETRY)
    asked |= dict.fromkeys(_meant(request.assume_done, undecided), Ask.ASSUME_DONE)
    asked |= dict.fromkeys(_meant(request.skip, undecided), Ask.SKIP)
    for name in given_back.keys() & set(_meant(request.retry, sorted(given_back))):
        del given_back[name]
        if name not in undecided:
            asked.pop(name, None)
    p.edit(
        phase=RunPhase.RUNNING,
        because="",
        failed=(),
        asked=asked,
        given_back=given_back,
        base_counts=p.fleet.base_counts() if request.rebase else p.next.base_counts,
    )
    p.memory.foreign.clear()
    for node in p.memory.nodes.values():
        node.failing = None
    p.memory.tail = None
    p.memory.without_room.clear()


def _meant(names: Iterable[str], all_names: list[str]) -> list[str]:
    return all_names if ALL in names else list(names)


def _do_asked(p: UpgradePass) -> None:
    """Do for each node what was asked, and strike it off once that is seen."""
    asked = dict(p.next.asked)
    for name, ask in p.document.asked.items():
        node, mark = p.nodes.get(name), p.marks.get(name)
        if ask is Ask.SKIP and name in p.next.step.nodes and (node is None or mark is None):
            p.name_nodes({n: e for n, e in p.next.step.nodes.items() if n != name})
            p.gone.pop(name, None)
        if ask is Ask.SKIP and name not in p.next.given_back:
            p.note_given_back({name: "skipped by a person"})
            continue
        if node is None or mark is None or mark.state not in marks.LEFT_TO_A_PERSON:
            asked.pop(name, None)
        elif p.is_busy(name):
            continue
        elif ask is Ask.RETRY:
            _retry(p, node, mark)
        elif ask is Ask.ASSUME_DONE:  # only the proof is still to come
            p.memory.forget(name)
            because = "the work counts as done, as a person said"
            p.advance(node, mark, marks.NodeEvent.ASSUMED_DONE, because)
        else:
            because = "skipped, as a person asked"
            leaving.take_marks_off(p, node, mark, marks.NodeEvent.SKIPPED, because)
    p.edit(asked=asked)


def _retry(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """Claim anew; a slot where it is available, and not while its work still runs."""
    if p.memory.work_of(node.name, mark.try_).runs:
        p.holds[node.name] = ClaimHold("work", "its work still runs")
        return
    hold = p.fleet.counts.hold(node.name) or claiming.control_plane_in_flight(p, node)
    if hold or p.gates or p.phase is not RunPhase.RUNNING:
        by = (SLOTS, hold) if hold else next(iter(p.gates.items()), ("phase", ""))
        p.holds[node.name] = ClaimHold(*by)
        return
    p.take_out(node.name)
    cordons = not node.spec.unschedulable
    info = node_info(node)
    before = replace(mark.before, uid=node.uid, boot_id=info.get("bootID", ""), node_info=info)
    owner = marks.CordonOwner.OURS if cordons else mark.cordon
    again = replace(
        mark, claimed=p.stamp, try_=1, work=marks.WorkMark(), before=before, cordon=owner
    )
    p.memory.forget(node.name)
    event, because = marks.NodeEvent.RETRIED, "claimed anew, as a person asked"
    p.advance(node, again, event, because, unschedulable=True if cordons else None)
