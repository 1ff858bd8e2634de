"""One run of a plan: `kubectl drain` on a branch of the present, and the record of what becomes of
each pod and of its owner.

The branch is that of every forecast (`sim/present.py`), with the whole cluster and its controllers;
what happens to pods is decided there. Nothing happens that no component would do: a pod held by a
finalizer or by a silent kubelet stays, and a budget whose replacement fits on no node never
refills.

The record is kept while the run goes on, and not read off its timeline afterwards as that of other
plays is (`sim/reading.py`): kubectl and the waves decide by it.

Once only the questions of kubectl processes are left in the world's agenda and each has been
answered since the last change, nothing will ever change, and the run ends. That is how "never" is
found without waiting. Where only something far away will change anything (a grace period may be 292
years), the questions in between are skipped, and so are passes of controllers that look at nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.snapshot import BELONG_TO_NODES, PlanSnapshot, Scope
from kubectl_nodelife.engine.actions import Action, DeletePod
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import HOUR_NS, human_duration
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.disruption import BudgetLedger, DisruptionController
from kubectl_nodelife.sim.kubectl.conversation import FAILED, GONE, SKIPPED, NodeRun, PodDeletion
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain, KubectlRequests
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timeline import Asker
from kubectl_nodelife.sim.timing import OVERDUE_NS, SLOW, Timing
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.owners import NEVER, WHEN_GONE, Replacement, successor
from kubectl_nodelife.workloads.placement import PlacementSimulator


@dataclass(slots=True, eq=False)
class PlannedPod:
    """A pod while a plan is played. Instants are nanoseconds since the plan's moment.

    `pod` is the object as the API shows it, or last did. `node` is where it is, "" while it waits
    for one. `goes_ns`: when a marked pod's object will be gone, or was; None where it stays.
    `held`: (gate, reason) of what keeps a marked pod from going. `refusal`: why it was last
    refused. `replacement`: the pod that its owner made for it.
    """

    pod: Pod
    ledgers: tuple[BudgetLedger, ...]
    workload: Workload | None
    node: str = field(init=False)
    ready: bool = field(init=False)
    going: bool = field(init=False)
    gone_ns: int | None = None
    goes_ns: int | None = None
    created_ns: int | None = None
    placed_ns: int | None = None
    ready_ns: int | None = None
    held: tuple[str, str] | None = None
    refusal: str = ""
    replacement: PlannedPod | None = None

    def __post_init__(self) -> None:
        self.node, self.ready = self.pod.spec.node_name, self.pod.ready()
        self.going = self.pod.metadata.deletion_timestamp is not None

    @property
    def uid(self) -> str:
        """metadata.uid"""
        return self.pod.metadata.uid

    @property
    def gone(self) -> bool:
        """True if the object is gone."""
        return self.gone_ns is not None


@dataclass(slots=True, eq=False)
class Workload:
    """An owner while a plan is played.

    `ready`: Ready pods; `entries`: how that number went, as (instant, number).
    """

    uid: str
    namespace: str
    kind: str
    name: str
    rule: Replacement
    ready: int
    entries: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.entries = [(0, self.ready)]

    @property
    def keeps_names(self) -> bool:
        """True if a new pod has the name of the old one and must wait for it to be gone."""
        return self.rule.when == WHEN_GONE and self.kind == "StatefulSet"

    def note_ready(self, at_ns: int, by: int) -> None:
        """One Ready pod more or less."""
        self.ready += by
        if self.entries[-1][0] == at_ns:
            self.entries[-1] = (at_ns, self.ready)
        else:
            self.entries.append((at_ns, self.ready))


def new_pod(old: Pod, number: int, now_ns: int) -> Pod:
    """The pod that an owner makes in place of `old`, with a name that nothing else has."""
    generated = old.metadata.generate_name or f"{old.metadata.name}-"
    return successor(old, f"{generated}new-{number}", f"new-{number}", Time(now_ns))


HORIZON_NS: Final = HOUR_NS
"""So long the cluster's controllers act; a cluster in trouble may keep them busy for ever."""

_FAILED: Final = Replacement(NEVER, why="its Job has failed")


class DrainedBranch(KubectlRequests[PlannedPod]):
    """The branch of a plan for its kubectl processes, with the record of pods. Use once.

    Instants are nanoseconds since the moment of the plan.
    """

    def __init__(self, scope: Scope, timing: Timing, *, late_renew: bool = False) -> None:
        """`late_renew`: a kubelet that is late is slow, and not silent."""
        branch = scope.snapshot.branch(timing, late_renew=late_renew)
        super().__init__(branch.world, scope.snapshot, {}, scope.snapshot.now_ns)
        self.scope, self.timing = scope, timing
        self.snapshot = scope.snapshot
        self.workloads: dict[str, Workload] = {}
        self.actors: dict[str, PlannedPod] = {}
        self.branch = branch
        placement = branch.world.scheduler.placement
        placement.takes_last = timing.ready == SLOW.ready  # other luck in the slow plays
        placement.equals = {}
        branch.world.owners.on_successor = self._replaced
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        for pod in scope.all_pods():
            self._actor_of(pod)

    def run(self, asker: Asker) -> None:
        """Play until nothing happens any more, or the asker's questions alone are left, each with
        the answer that it had before."""
        self.branch.play_out(asker, self.snapshot.now_ns + HORIZON_NS)

    def end(self) -> None:
        """The play is read off. Undo the circles in which the parts hold one another, so that all
        of it goes as soon as nothing refers to it, without the garbage collector.
        """
        self._world.end()

    @property
    def placement(self) -> PlacementSimulator:
        """Where pods find room, as the run leaves the nodes."""
        return self._world.scheduler.placement

    def equals(self, actor: PlannedPod) -> Sequence[str]:
        """The first nodes with the same score among which the pod got its node by chance."""
        return (self.placement.equals or {}).get(actor.uid, ())

    @property
    def hangs_on_luck(self) -> bool:
        """True if a pod has no node that other luck of another might have left one."""
        return bool(self.placement.equals and self.waiting)

    @property
    def not_made(self) -> dict[str, str]:
        """Uids of pods in whose place StatefulSets make none, as the run leaves them: and why."""
        return {lost.uid: why for lost, why in self._world.owners.not_made()}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes, as the run has them."""
        return self._api.store.nodes

    @property
    def disruption(self) -> DisruptionController:
        """The budgets, as the run has them."""
        return self._world.disruption

    @property
    def waiting(self) -> list[PlannedPod]:
        """The replacements that wait for a node."""
        return [
            actor
            for actor in self.actors.values()
            if actor.created_ns is not None and not (actor.node or actor.gone or actor.going)
        ]

    def deletions(self) -> list[tuple[int, DeletePod]]:
        """The pods that controllers deleted, and when, ns since the plan's moment."""
        start_ns = self.snapshot.now_ns
        return [
            (at_ns - start_ns, action)
            for at_ns, action in self.branch.timeline.entries
            if isinstance(action, DeletePod) and action.controller != CLUSTER
        ]

    def uncordon(self, *names: str) -> None:
        """The nodes take pods again."""
        for name in names:
            node = self.nodes[name]
            spec = replace(node.spec, unschedulable=False)
            self._api.put("Node", replace(node, spec=spec))

    def pods_on(self, node: str) -> list[PlannedPod]:
        """The pods that a list call for the node returns now."""
        pods = sorted(self._api.store.pods_on(node), key=lambda pod: pod.key)
        return [self._actor_of(pod) for pod in pods]

    # --- the record of pods ----------------------------------------------------------------------

    def _actor_of(self, pod: Pod) -> PlannedPod:
        uid = pod.metadata.uid
        actor = self.actors.get(uid)
        if actor is None:
            ledgers = tuple(self._world.disruption.budgets_of(pod))
            actor = self.actors[uid] = PlannedPod(pod, ledgers, self._workload_of(pod))
            if actor.going:
                self._note_end(actor)
        return actor

    def _replaced(self, lost: Pod, pod: Pod) -> None:
        """An owner makes a pod in place of another."""
        old, new = self._actor_of(lost), self._actor_of(pod)
        old.replacement = new
        new.created_ns = self.now_ns
        if new.node:
            new.placed_ns = new.created_ns

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if old is None or (new is not None and new.metadata.uid != old.metadata.uid):
            return  # `_replaced` received it
        actor = self._actor_of(old)
        if new is None:
            actor.gone_ns = actor.goes_ns = self.now_ns
            self._stops_counting(actor)
            return
        actor.pod = new
        if not actor.node and new.spec.node_name:
            actor.node, actor.placed_ns = new.spec.node_name, self.now_ns
        if new.metadata.deletion_timestamp != old.metadata.deletion_timestamp:
            self._stops_counting(actor)
            self._note_end(actor)
        elif not (actor.ready or actor.going) and new.ready():
            actor.ready, actor.ready_ns = True, self.now_ns
            if actor.workload is not None:
                actor.workload.note_ready(actor.ready_ns, 1)
        elif actor.ready and not actor.going and not new.ready():
            actor.ready = False
            if actor.workload is not None:
                actor.workload.note_ready(self.now_ns, -1)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for change in changes:
            self._pod_changed(*change)

    def _stops_counting(self, actor: PlannedPod) -> None:
        if actor.going:
            return
        actor.going = True
        workload = actor.workload
        if workload is not None:
            if actor.ready:
                workload.note_ready(self.now_ns, -1)
            if workload.uid in self._world.owners.failed_jobs:
                workload.rule = _FAILED

    def _workload_of(self, pod: Pod) -> Workload | None:
        """The owner that replaces the pod."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind in BELONG_TO_NODES:
            return None
        workload = self.workloads.get(owner.uid)
        if workload is None:
            ready, rule = self.scope.ready_pods(owner.uid), self.scope.rule_of(pod)
            workload = Workload(owner.uid, pod.namespace, owner.kind, owner.name, rule, ready)
            self.workloads[owner.uid] = workload
        return workload

    def _note_end(self, actor: PlannedPod) -> None:
        """When the pod goes, or what holds it."""
        actor.held, gone_ns = self._held(actor.pod), self._world.kubelets.gone_at(actor.pod)
        goes = gone_ns is not None and actor.held is None
        actor.goes_ns = gone_ns - self.snapshot.now_ns if goes and gone_ns is not None else None

    def _held(self, pod: Pod) -> tuple[str, str] | None:
        """(gate, reason) of what keeps a pod that is marked deleted."""
        node, snapshot = pod.spec.node_name, self.snapshot
        due_ns = (pod.metadata.deletion_timestamp or 0) - snapshot.now_ns
        if self._world.kubelets.alive(node):
            return permanent_gate(pod, node, snapshot, due_ns, None)
        held = permanent_gate(pod, node, snapshot, due_ns, snapshot.silent_kubelet(node))
        if held is None and node in snapshot.late and not snapshot.out_of_service(node):
            late = human_duration(snapshot.now_ns - snapshot.late[node])
            reason = f"the kubelet of {node} last reported {late} ago: nothing ends the pod"
            return "kubelet-unreachable", f"{reason} until it reports again"
        return held


def permanent_gate(
    pod: Pod, node: str, snapshot: PlanSnapshot, due_ns: int, silent: str | None
) -> tuple[str, str] | None:
    """(gate, reason) of what keeps the pod for ever, or None.

    `due_ns`: when it is to be gone, since the plan's moment. `silent`: why its kubelet is held to
    be silent, None where it is not.
    """
    collected = silent is not None and snapshot.out_of_service(node)
    if pod.metadata.deletion_grace_period_seconds != 0 and silent is not None and not collected:
        return "kubelet-unreachable", f"{silent}: nothing ends the pod or says that it did"
    if finalizers := finalizers_that_hold(pod):
        return "finalizer", f"finalizer {', '.join(finalizers)} keeps the object"
    if due_ns < -OVERDUE_NS and not collected:
        return (
            "kubelet-unreachable",
            f"it should have been gone {human_duration(-due_ns)} ago; its kubelet has not ended it",
        )
    return None


class WaveInPlay(NamedTuple):
    """Nodes that are drained together; `start_ns` is None where the plan does not come to it."""

    nodes: tuple[str, ...]
    start_ns: int | None
    end_ns: int | None


@dataclass(slots=True, eq=False)
class Play:
    """The events and results of one run.

    `runs`: each node's turn, for those that had one. `end_ns`: when the last command returned,
    None where one never does.
    """

    scope: Scope
    options: DrainOptions
    world: DrainedBranch
    runs: dict[str, NodeRun[PlannedPod]] = field(default_factory=dict)
    waves: list[WaveInPlay] = field(default_factory=list)
    end_ns: int | None = None

    def empties(self, name: str) -> bool:
        """True if the node has its turn, and kubectl gets rid of all pods that it set out to."""
        run = self.runs.get(name)
        ended = run is not None and run.end_ns is not None and not run.refused
        return ended and all(map(went, self.runs[name].targets))

    def empties_all(self) -> bool:
        """True if it empties each of its nodes."""
        return all(map(self.empties, self.scope.nodes))

    def end(self) -> None:
        """Free the branch of the play once it is read off."""
        self.world.end()


def went(target: PodDeletion[PlannedPod]) -> bool:
    """True if kubectl got rid of the pod. One may fail for kubectl and be gone."""
    failed_elsewhere = target.outcome == FAILED and target.accepted_ns is not None
    return target.outcome in (GONE, SKIPPED) or (failed_elsewhere and target.actor.gone)


def play_kubectl(
    scope: Scope,
    options: DrainOptions,
    timing: Timing,
    cordoned: Sequence[str] = (),
    *,
    late_renew: bool = False,
) -> Play:
    """`kubectl drain NODE...`: one process, the nodes of the scope in their order.

    `cordoned`: nodes that the command names besides, where only a part of it is played.
    `late_renew`: kubelets that are late are slow, and not silent.
    """
    world = DrainedBranch(scope, timing, late_renew=late_renew)
    world.cordon(*(name for name in cordoned if name not in scope.pods))
    process = KubectlDrain(world, options, scope.nodes, timing.requests)
    process.start(0)
    world.run(process)
    play = Play(scope, options, world, end_ns=process.ended_ns)
    play.runs = {run.name: run for run in process.runs}
    for name in scope.nodes:
        run = play.runs.get(name)
        play.waves.append(
            WaveInPlay((name,), run.start_ns if run else None, run.end_ns if run else None)
        )
    return play
