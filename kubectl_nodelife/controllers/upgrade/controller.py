"""The upgrade controller: one pass over a run, from what the cluster shows to what is to be done.

One of the engine's controllers, alone in the engine of the process that leads a run. Each change
of the cluster asks for a pass, at most one each `PACE_NS`. A node's state is on the node, the run's
on its Lease; a new leader makes a new controller, which reads both and counts every clock anew.

A leader, of a live run or of one in the virtual cluster, does this beside what every host of an
engine does:

1. It makes one `UpgradeController` and one `LeaderEngine` for each epoch in which it leads. What
   this process began in an older epoch, such as before a laptop slept, the controller is given
   first (`take_over`).
2. The engine's clock is one that cannot be set and that counts suspend. With each decision the
   leader says what it knows beside the cluster (`HostState`).
3. It carries the actions out in their order, each under the version of the object in the cache, and
   passes `StartWork` and `StopWork` to what runs commands, whose ends go to `work_ended`.
   Outcomes of writes come back as events, of those that were done, too.
4. The run's document and the requests of people are on its Lease in the cache, as the leader puts
   it there when it reads or writes it.
5. It ends when `superseded` says why, without another write, or when `is_over` says that the run
   has ended and all is cleared away that goes with it.

People's requests are carried out here: pause, resume, abort; and for single nodes retry, skip and
so on. A request stands on the run's Lease and is struck off in the PATCH that records its effect;
what is asked for a node is written into the document, and stays there until it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import claiming, gates, leaving, marks, upgrade_pass
from kubectl_nodelife.controllers.upgrade.claiming import control_plane_in_flight
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
from kubectl_nodelife.controllers.upgrade.newcomers import (
    follow_gone_nodes,
    follow_scale_down,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, node_info
from kubectl_nodelife.controllers.upgrade.proving import claim_for_proof, prove
from kubectl_nodelife.controllers.upgrade.settling import settle, soak
from kubectl_nodelife.controllers.upgrade.working import work
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import ANY_OWNER, Actions
from kubectl_nodelife.engine.engine import Engine, OnBug
from kubectl_nodelife.engine.events import NOT_SENT, Change, Event, Outcome
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS

STATES: Final[
    dict[marks.NodeState, Callable[[upgrade_pass.UpgradePass, Node, marks.NodeMark], None]]
] = {
    marks.NodeState.DRAINING: drain,
    marks.NodeState.WORKING: work,
    marks.NodeState.SETTLING: settle,
    marks.NodeState.PROVING: prove,
    marks.NodeState.SOAKING: soak,
}
_CAN_FAIL: Final = marks.states_with(marks.NodeEvent.FAILED)
_MOVES_ON: Final = frozenset({*marks.IN_FLIGHT, *_CAN_FAIL, *STATES})
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
IDLE_NS: Final = 30 * SECOND_NS
PACE_NS: Final = 200 * MILLISECOND_NS
"""Changes within so long after a pass are looked at together."""
_PASS: Final = "pass"


class UpgradeController:
    """One leader's controller of one run, for one epoch.

    `host`: what its leader knows beside the cluster. `superseded`: why this leader must end and
    write nothing more, "" while it leads. `is_over`: the run has ended, and its marks are off.
    `last`: the last pass, for reports of what is held, skipped and waited for.
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
        self.last: upgrade_pass.UpgradePass | None = None
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
            wait_ns = upgrade_pass.HELD_NS if code == NOT_SENT else upgrade_pass.REFUSED_NS
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
        """One pass. Returns the actions, in the order in which they are to be carried out.

        `changed`: the nodes that may be other objects than at the last pass; None: any may.
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
        p = upgrade_pass.UpgradePass(self.fleet, cache, self.host, now_ns, lease, document)
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
        texts = {}
        for name, because in self.memory.foreign.items():
            node = self.last.nodes.get(name) if self.last is not None else None
            uid, mark = self.memory.last_marks.get(name, ("", None))
            if node is None:
                continue
            is_ours = mark is not None and node.uid == uid
            lines = (
                leaving.release_by_hand(node, mark)
                if is_ours and mark
                else (leaving.annotation_off(node),)
            )
            commands = "; ".join(lines)
            texts[name] = f"{because}; the run leaves it alone. To take it out: {commands}"
        return texts

    @property
    def holds(self) -> dict[str, ClaimHold]:
        """The hold on each candidate in the last pass."""
        return self.last.holds if self.last is not None else {}

    def _next_due_ns(self, now_ns: int) -> int:
        """When to make a pass again at the latest, after one at `now_ns`."""
        p = self.last
        if p is None:
            return now_ns + upgrade_pass.PASS_NS
        due = now_ns + (upgrade_pass.PASS_NS if p.in_flight or p.gone else IDLE_NS)
        return due if p.wake_ns is None or p.wake_ns <= now_ns else min(due, p.wake_ns)

    def work_ended(self, node: str, try_: int, code: int) -> None:
        """The command of that try on the node ended with that exit code."""
        self.memory.work_of(node, try_).code = code

    def take_over(self, before: UpgradeController) -> None:
        """Know what the same process knew before it slept, or was without its Lease for a moment:
        of its commands, of addresses, and which nodes it said it would leave alone.

        Each command shows by its intent's stamp of which try it is; another leader's are of
        another.
        """
        for name, node in before.memory.nodes.items():
            self.memory.of(name).work = node.work
        self.memory.addresses.update(before.memory.addresses)
        self.memory.foreign.update(before.memory.foreign)
        self.memory.last_marks.update(
            (name, before.memory.last_marks[name])
            for name in before.memory.foreign
            if name in before.memory.last_marks
        )

    def _decide(self, p: upgrade_pass.UpgradePass) -> None:
        _take_request(p)
        follow_gone_nodes(p)
        follow_scale_down(p)
        _do_asked(p)
        self._report_refused(p)
        for name, mark in list(p.marks.items()):
            if mark.state not in _MOVES_ON or p.is_busy(name):
                continue
            node = p.nodes[name]
            if mark.state in marks.IN_FLIGHT and mark.epoch < self.epoch:
                adopted = p.entered(mark, mark.state, mark.reason)  # its clock begins anew
                adopted = replace(adopted, since=mark.since)
                p.update_mark(node, adopted, f"epoch {self.epoch} leads")
            elif mark.state in _CAN_FAIL and (
                name in p.document.failed or p.memory.of(name).failing is not None
            ):
                leaving.fail(p, node, mark, "failed, as the run's document says")
            elif mark.state in STATES:
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

    def _report_refused(self, p: upgrade_pass.UpgradePass) -> None:
        """Name each object on which a write was refused, until it is tried again."""
        for (kind, key), (until_ns, message) in list(self.memory.refused.items()):
            if p.is_over(until_ns, 0):
                del self.memory.refused[kind, key]
            else:
                name = key[1] if kind == "Node" else f"{kind} {'/'.join(key)}"
                p.holds[name] = ClaimHold("refused", message)


def _end_at_once(p: upgrade_pass.UpgradePass) -> bool:
    """Take what a person asks to end, or to pause, the run while nothing of it is in flight.

    It needs no evidence, so that it need not wait for the leader's first grace period. Whether
    that was done, or the run has ended.
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


def _stand_still(p: upgrade_pass.UpgradePass) -> None:
    """Blind: nothing is written, and nothing counts as seen. In an abort clocks run on."""
    for name, mark in p.marks.items():
        if mark.state in marks.CHECKED:
            progress = p.progress(name, mark)
            progress.ready_since_ns = None
            if not p.is_aborting:
                progress.armed_ns = p.now_ns


class LeaderEngine(Engine):
    """The engine of the process that leads a run, with the upgrade controller alone in it.

    A leader takes in events as it receives them, and decides when it may: a live one
    (`acts/upgrade/leader.py`) once its gate, Lease and limits allow, a simulated one
    (`sim/upgrade_run.py`) once the API server has sent its watches all of an instant.
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


def _take_request(p: upgrade_pass.UpgradePass) -> None:
    """Take the request on the Lease into the document."""
    try:
        request = request_on(p.lease)
    except UnreadableDocument:
        p.strikes_request = True  # of no version of ours: its meaning is unknown
        return
    if request is None or p.phase in OVER:
        p.strikes_request = request is not None
        return
    p.strikes_request = True
    if request.verb is Verb.PAUSE:
        if p.phase is RunPhase.RUNNING:
            because = request.because or f"paused by {request.by or 'a person'}"
            p.edit(phase=RunPhase.PAUSED, because=because)
    elif request.verb is Verb.ABORT:
        because = request.because or f"aborted by {request.by or 'a person'}"
        p.edit(phase=RunPhase.ABORTING, because=because, cut_off=p.next.cut_off or request.now)
    elif p.phase is not RunPhase.ABORTING:
        _resume(p, request)


def _resume(p: upgrade_pass.UpgradePass, request: UpgradeRequest) -> None:
    """Ends a pause, forgives the failures so far, and notes what is asked for single nodes."""
    asked = dict(p.next.asked)
    undecided = sorted(
        name for name, mark in p.marks.items() if mark.state in marks.LEFT_TO_A_PERSON
    )
    given_back = dict(p.next.given_back)
    for names, ask in (
        (request.retry, Ask.RETRY),
        (request.assume_done, Ask.ASSUME_DONE),
        (request.skip, Ask.SKIP),
    ):
        for name in _meant(names, undecided):
            asked[name] = ask
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


def _do_asked(p: upgrade_pass.UpgradePass) -> None:
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


def _retry(p: upgrade_pass.UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """Claim anew; a slot where it is available, and not while its work still runs."""
    if p.memory.work_of(node.name, mark.try_).runs:
        p.holds[node.name] = ClaimHold("work", "its work still runs")
        return
    hold = p.fleet.counts.hold(node.name) or control_plane_in_flight(p, node)
    if hold or p.gates or p.phase is not RunPhase.RUNNING:
        by = (SLOTS, hold) if hold else next(iter(p.gates.items()), ("phase", ""))
        p.holds[node.name] = ClaimHold(*by)
        return
    p.take_out(node.name)
    cordons = not node.spec.unschedulable
    info = node_info(node)
    before = replace(mark.before, uid=node.uid, boot_id=info.get("bootID", ""), node_info=info)
    again = replace(
        mark,
        claimed=p.stamp,
        try_=1,
        work=marks.WorkMark(),
        before=before,
        cordon=marks.CordonOwner.OURS if cordons else mark.cordon,
    )
    p.memory.forget(node.name)
    p.advance(
        node,
        again,
        marks.NodeEvent.RETRIED,
        "claimed anew, as a person asked",
        unschedulable=True if cordons else None,
    )
