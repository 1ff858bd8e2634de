"""The simulated cluster that a plan is played on: `sim`'s parts, with a part of the objects.

API server, kubelets, scheduler, owners and the disruption controller are those of every scenario.
What is the plan's own is what it knows beforehand: counts of pods that it leaves out (`scope`), how
long pods take to be Ready, what refuses evictions in admission, and what holds a pod for good; and
the record of what becomes of each pod. Nothing happens that no component would do: a
pod held by a finalizer or by a silent kubelet stays, and a budget whose replacement fits on no node
never refills.

A `Play` is one run of a plan: a world, and the kubectl processes in it. Once only their questions
are left in the world's agenda and each has been answered since the last change, nothing will ever
change, and the run ends. That is how "never" is found without waiting. Where only something far
away will change anything (a grace period may be 292 years), the questions in between are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kubectl_nodelife.drain.actors import PlannedPod, Workload
from kubectl_nodelife.drain.planned_nodes import PlannedNodes, cordoned, uncordoned
from kubectl_nodelife.drain.running_controllers import (
    JoinedControllers,
    RunningControllers,
    reporting_kubelets,
)
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, human_duration
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.drained import KubectlRequests
from kubectl_nodelife.sim.joined import hold_up_to_date
from kubectl_nodelife.sim.kubectl.conversation import NodeRun
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timeline import SCRIPT
from kubectl_nodelife.sim.timing import LearntTerms, Timing
from kubectl_nodelife.sim.world import Asker, World
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.owners import NEVER, Replacement
from kubectl_nodelife.workloads.time_to_ready import is_on_its_way

Call = Callable[..., None]


class PlanClock:
    """The world's agenda for calls of kubectl processes; instants are nanoseconds since the moment
    of the plan.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._origin_ns = world.api.now_ns

    @property
    def now_ns(self) -> int:
        """The present instant."""
        return self._world.api.now_ns - self._origin_ns

    def at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File a call that changes something or may; one that lies in the past is made now."""
        self._world.agenda.add(self._instant(instant_ns), SCRIPT, _make, call, arguments)

    def ask_again_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File a question, which may be put off while nothing changes."""
        at_ns, now_ns = self._origin_ns + instant_ns, self._world.api.now_ns
        self._world.agenda.ask(at_ns if at_ns > now_ns else now_ns, call, *arguments)

    def alarm_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File a question that is asked at that very instant, such as a deadline."""
        self._world.agenda.ask(self._instant(instant_ns), call, *arguments, waits=False)

    def _instant(self, instant_ns: int) -> int:
        at_ns, now_ns = self._origin_ns + instant_ns, self._world.api.now_ns
        return at_ns if at_ns > now_ns else now_ns


def _make(call: Call, arguments: tuple[Any, ...], at_ns: int) -> None:
    call(*arguments)


POD_GC_PERIOD_NS: Final = 20 * SECOND_NS

OVERDUE_NS: Final = 1 * MINUTE_NS
"""A pod that long past its grace does not go by itself any more."""

_NO_END_NS: Final = 1 << 70
_FAILED: Final = Replacement(NEVER, why="its Job has failed")


class PlanTerms(LearntTerms, frozen=True, kw_only=True):
    """How kubelets behave under the timing of one run. `silent`: nodes whose kubelet is late;
    `slow`: those whose kubelet is late and renews again.
    """

    scope: Scope
    silent: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()

    def starts_after(self, pod: Pod) -> int | None:
        """As its like took; nothing starts where the kubelet is late and stays silent."""
        return None if pod.spec.node_name in self.silent else super().starts_after(pod)

    def stops_after(self, pod: Pod, grace_ns: int) -> int | None:
        """So much of its grace as the timing says, unless something holds it."""
        if self.held(pod) is not None:
            return None
        if self._why_silent(pod.spec.node_name) is not None:
            return POD_GC_PERIOD_NS
        return super().stops_after(pod, grace_ns)

    def _why_silent(self, node: str) -> str | None:
        return None if node in self.slow else self.scope.snapshot.silent_kubelet(node)

    def held(self, pod: Pod) -> tuple[str, str] | None:
        """(gate, reason) of what keeps a pod that is marked deleted."""
        node, snapshot = pod.spec.node_name, self.scope.snapshot
        due_ns = (pod.metadata.deletion_timestamp or 0) - snapshot.now_ns
        found = why_held(pod, node, snapshot, due_ns, self._why_silent(node))
        if found is None and node in self.silent and not snapshot.out_of_service(node):
            late = human_duration(snapshot.now_ns - snapshot.late[node])
            reason = f"the kubelet of {node} last reported {late} ago: nothing ends the pod"
            return "kubelet-unreachable", f"{reason} until it reports again"
        return found


class PlanWorld(KubectlRequests):
    """The cluster of a scope while a plan is played. Use once."""

    def __init__(
        self,
        scope: Scope,
        admission: Admission,
        timing: Timing,
        *,
        controllers: bool = True,
        late_renew: bool = False,
    ) -> None:
        """`controllers`: whether the cluster's own act in it as well. `late_renew`: a kubelet that
        is late is slow, and not silent.
        """
        self.scope = scope
        self.snapshot = self.owners = scope.snapshot
        self.timing = timing
        self.landing = PlannedNodes(scope.node_index)
        self.workloads: dict[str, Workload] = {}
        self.actors: dict[str, PlannedPod] = {}
        self._admission = admission
        store = Cache()
        store.nodes = self.landing.nodes
        moving = self._fill(store)
        uids = frozenset(pod.uid for pod in moving if pod.spec.node_name)
        joined = self._join(store, late_renew) if controllers else None
        slow = self.snapshot.late.keys() & joined.reporting.keys() if joined is not None else set()
        self.landing.take_pods_again(slow)
        self._terms = PlanTerms(
            scope=scope,
            times=scope.times,
            timing=timing,
            start_ns=self.snapshot.now_ns,
            starting=uids,
            silent=frozenset(self.snapshot.late.keys() - slow if joined is not None else ()),
            slow=frozenset(slow),
        )
        api = Api(None, self.snapshot.now_ns, store)  # nothing reads action by action
        api.profile = self.snapshot.settings.profile
        super().__init__(World(api, self._terms, end_ns=_NO_END_NS), {})
        self.clock = PlanClock(self._world)
        self._begin(moving)
        self.controllers: RunningControllers | None = None
        if joined is not None:
            self.controllers = RunningControllers(self._world, joined)

    def run(self, asker: Asker) -> None:
        """Play until nothing happens any more, or the asker's questions alone are left, each with
        the answer that it had before."""
        world, controllers = self._world, self.controllers
        world.asker = asker
        while controllers is None or world.agenda.goes_on:
            tick = world.next(controllers.next_due() if controllers is not None else None)
            if tick is None:
                return
            if controllers is not None:
                controllers.step(tick[1])

    def end(self) -> None:
        """The play is over. Undo the circles in which the parts hold one another, so that all of it
        goes as soon as nothing refers to it, without the garbage collector.
        """
        self._world.end()

    @property
    def ledgers(self) -> Mapping[Key, BudgetLedger]:
        """The budgets of the scope, as the run has them."""
        return self._world.disruption.ledgers

    @property
    def waiting(self) -> list[PlannedPod]:
        """The replacements that wait for a node."""
        return [
            actor
            for actor in self.actors.values()
            if actor.created_ns is not None and not (actor.node or actor.gone or actor.going)
        ]

    # --- the beginning ---------------------------------------------------------------------------

    def _fill(self, store: Cache) -> list[Pod]:
        """Put the pods into the store that may change; returns those that start or stop."""
        scope, pods = self.scope, [*self.scope.all_pods(), *self.scope.unsettled]
        if self._decides:
            store.fill(self.snapshot.heartbeats(), self.snapshot.now_ns)
        for uid, rule in scope.rules.items():
            pods += scope.owner_pods[uid] if rule.delay_ns else scope.moving[uid]
        for (namespace, _), ledger in scope.ledgers.items():
            found = (self.snapshot.find("Pod", namespace, name) for name in ledger.disrupted)
            pods += [pod for pod in found if isinstance(pod, Pod)]
        store.fill([*pods, *scope.daemon_sets], self.snapshot.now_ns)
        if not self.snapshot.was_read("ControllerRevision"):
            hold_up_to_date(store, self.snapshot.now_ns)
        return [
            pod
            for pod in store.pods.values()
            if pod.metadata.deletion_timestamp is not None or is_on_its_way(pod)
        ]

    def _join(self, store: Cache, late_renew: bool) -> JoinedControllers | None:
        """The cluster's controllers; None where they have nothing to decide."""
        snapshot, scope = self.snapshot, self.scope
        if not self._decides:
            return None
        if late_renew not in scope.joined:
            silent = () if late_renew else snapshot.late
            found = reporting_kubelets(store, snapshot.now_ns, snapshot.settings)
            reporting = {name: beats for name, beats in found.items() if name not in silent}
            scope.joined[late_renew] = JoinedControllers(
                store,
                snapshot.now_ns,
                snapshot.settings,
                reporting,
                daemon_sets=bool(scope.daemon_sets),
            )
        return scope.joined[late_renew]

    @property
    def _decides(self) -> bool:
        """True if a controller may have something to decide by itself."""
        return bool(self.snapshot.in_trouble or self.scope.daemon_sets)

    def _begin(self, moving: list[Pod]) -> None:
        world, scope, snapshot = self._world, self.scope, self.snapshot
        rules = {uid: self._rule(uid, rule) for uid, rule in scope.rules.items()}
        for uid, rule in rules.items():
            pods = scope.owner_pods[uid]
            owner = controller_of(pods[0].metadata)
            assert owner is not None
            self.workloads[uid] = Workload(
                uid, pods[0].namespace, owner.kind, owner.name, rule, scope.counts[uid][1]
            )
        world.owners.delay_ns = world.disruption.sync_ns = self.timing.controller_ns
        world.owners.cut_ns = self.timing.cut_ns
        world.owners.on_successor = self._replaced
        world.scheduler.begin(self.landing, self.landing.placement)
        world.owners.take_over({uid: count[0] for uid, count in scope.counts.items()}, rules)
        world.disruption.take_over(scope.ledgers, snapshot)
        world.kubelets.take_over(moving)
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        for pod in scope.all_pods():
            actor = self._actor_of(pod)
            ends_ns = self._admission.namespace_ends_pods_ns(pod.namespace, snapshot.now_ns)
            if ends_ns is not None and not actor.going:
                self.clock.at(ends_ns - snapshot.now_ns, self._end, actor)
        world.scheduler.place_waiting()

    def _rule(self, uid: str, rule: Replacement) -> Replacement:
        namespace = self.scope.owner_pods[uid][0].namespace
        if namespace in self._admission.terminating:
            return rule._replace(when=NEVER, why=f"namespace {namespace} is being deleted")
        return rule

    def _end(self, actor: PlannedPod) -> None:
        """The namespace's controller deletes the pod."""
        if not actor.gone:
            self._delete(actor.pod, None, "its namespace is being deleted", None)

    # --- nodes -----------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """The node is so from now on."""
        self._api.put("Node", node)

    def cordon(self, *names: str) -> None:
        """The nodes take no more pods."""
        for name in names:
            if name in self.landing.nodes:
                self.put_node(cordoned(self.landing.nodes[name]))

    def uncordon(self, *names: str) -> None:
        """The nodes take pods again."""
        for name in names:
            self.put_node(uncordoned(self.landing.nodes[name]))
        self._world.scheduler.place_waiting()

    def pods_on(self, node: str) -> list[PlannedPod]:
        """The pods that a list call for the node returns now."""
        pods = sorted(self._api.store.pods_on(node), key=lambda pod: pod.key)
        return [self._actor_of(pod) for pod in pods]

    def refuses_eviction(self, pod: Pod) -> EvictionRefused | None:
        """Admission's answer to an eviction."""
        return self._admission.refuses_eviction(pod)

    def refuses_deletion(self, pod: Pod) -> EvictionRefused | None:
        """Admission's answer to a deletion."""
        return self._admission.refuses_deletion(pod)

    def _set_disruption_target(self, pod: Pod) -> None:
        """Nothing here reads the condition."""

    # --- the record of pods ----------------------------------------------------------------------

    def _actor_of(self, pod: Pod) -> PlannedPod:
        uid = pod.metadata.uid
        actor = self.actors.get(uid)
        if actor is None:
            owner = controller_of(pod.metadata)
            workload = self.workloads.get(owner.uid) if owner is not None else None
            ledgers = tuple(self._world.disruption.budgets_of(pod))
            actor = self.actors[uid] = PlannedPod(pod, ledgers, workload)
            if actor.going:
                self._note_end(actor)
        return actor

    def _replaced(self, lost: Pod, pod: Pod) -> None:
        """An owner makes a pod in place of another."""
        old, new = self._actor_of(lost), self._actor_of(pod)
        old.replacement = new
        new.created_ns = self._now_ns()
        if new.node:
            new.placed_ns = new.created_ns

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if old is None or (new is not None and new.metadata.uid != old.metadata.uid):
            return  # `_replaced` received it
        actor = self._actor_of(old)
        if new is None:
            actor.gone_ns = actor.goes_ns = self._now_ns()
            self._stops_counting(actor)
            return
        actor.pod = new
        if not actor.node and new.spec.node_name:
            actor.node, actor.placed_ns = new.spec.node_name, self._now_ns()
        if new.metadata.deletion_timestamp != old.metadata.deletion_timestamp:
            self._stops_counting(actor)
            self._note_end(actor)
        elif not (actor.ready or actor.going) and new.ready():
            actor.ready, actor.ready_ns = True, self._now_ns()
            if actor.workload is not None:
                actor.workload.note_ready(actor.ready_ns, 1)
        elif actor.ready and not actor.going and not new.ready():
            actor.ready = False
            if actor.workload is not None:
                actor.workload.note_ready(self._now_ns(), -1)

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
                workload.note_ready(self._now_ns(), -1)
            if workload.uid in self._world.owners.failed_jobs:
                workload.rule = _FAILED

    def _note_end(self, actor: PlannedPod) -> None:
        """When the pod goes, or what holds it."""
        gone_ns = self._world.kubelets.gone_at(actor.pod)
        actor.goes_ns = None if gone_ns is None else gone_ns - self.snapshot.now_ns
        actor.held = self._terms.held(actor.pod)

    def _now_ns(self) -> int:
        return self._api.now_ns - self.snapshot.now_ns


def why_held(
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


@dataclass(slots=True)
class Play:
    """The events and results of one run.

    `runs`: each node's turn, for those that had one. `end_ns`: when the last command returned,
    None where one never does.
    """

    scope: Scope
    options: DrainOptions
    world: PlanWorld
    runs: dict[str, NodeRun[PlannedPod]] = field(default_factory=dict)
    waves: list[WaveInPlay] = field(default_factory=list)
    end_ns: int | None = None

    def end(self) -> None:
        """Free the nodes of the play once it is read off: no later call asks where pods find room.

        The nodes of each play are many objects, and go at once instead of by the garbage collector.
        """
        self.world.landing.end()


def play_kubectl(
    scope: Scope,
    admission: Admission,
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
    world = PlanWorld(scope, admission, timing, late_renew=late_renew)
    world.cordon(*(name for name in cordoned if name not in scope.pods))
    process = KubectlDrain(world, options, scope.nodes, timing.requests)
    process.start(0)
    world.run(process)
    world.end()
    play = Play(scope, options, world, end_ns=process.ended_ns)
    play.runs = {run.name: run for run in process.runs}
    for name in scope.nodes:
        run = play.runs.get(name)
        play.waves.append(
            WaveInPlay((name,), run.start_ns if run else None, run.end_ns if run else None)
        )
    return play
