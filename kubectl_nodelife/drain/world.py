"""The cluster that a plan is played on: it answers evictions, stops pods and replaces them.

It stands for the API server (evictions and deletions), the kubelets (a pod marked deleted goes
after its grace period), the owners (a lost pod is replaced), the scheduler (`planned_nodes`) and
the disruption controller. Decisions are made by `workloads`, here is only when. Nothing happens
that no component would do: a pod held by a finalizer or by a dead kubelet stays, and a budget whose
replacement fits on no node never refills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kubectl_nodelife.drain.actors import PlannedPod, Workload, new_pod
from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.held import why_held
from kubectl_nodelife.drain.history import is_starting
from kubectl_nodelife.drain.planned_nodes import PlannedNodes, cordoned, uncordoned
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.timeline import PlanTimeline
from kubectl_nodelife.drain.timing import Timing
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.answers import ACCEPTED, CONFLICT, MISSING, Answer
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger, evict_under
from kubectl_nodelife.workloads.budgets import DELETION_TIMEOUT_NS
from kubectl_nodelife.workloads.eviction import (
    TERMINAL_PHASES,
    EvictionRefused,
)
from kubectl_nodelife.workloads.owners import JOB_BATCH_NS, NEVER

POD_GC_PERIOD_NS: Final = 20 * SECOND_NS
BACK_OFF_NS: Final = 1 * SECOND_NS
"""How long the scheduler lets a pod wait before it tries again."""


class PlanWorld:
    """The cluster of a scope while a plan is played. Use once."""

    def __init__(
        self, scope: Scope, admission: Admission, timing: Timing, timeline: PlanTimeline
    ) -> None:
        self.scope = scope
        self.snapshot = self.owners = scope.snapshot
        self.timing = timing
        self.timeline = self.clock = timeline
        self.landing = PlannedNodes(scope.node_index)
        self.ledgers = {key: ledger.clone() for key, ledger in scope.ledgers.items()}
        self.workloads: dict[str, Workload] = {}
        self.actors: dict[str, PlannedPod] = {}
        self.on_node: dict[str, dict[str, PlannedPod]] = {name: {} for name in scope.nodes}
        self.waiting: list[PlannedPod] = []
        self.version = 0
        self._admission = admission
        self._made = 0
        self._syncs: set[int] = set()
        self._retry_filed = False
        self._begin()

    # --- the beginning ---------------------------------------------------------------------------

    def _begin(self) -> None:
        for uid in self.scope.rules:
            self._found_workload(uid)
        for name, pods in self.scope.pods.items():
            for pod in pods:
                actor = self.on_node[name][pod.metadata.uid] = self._actor_of(pod)
                ends_ns = self._admission.namespace_ends_pods_ns(pod.namespace)
                if ends_ns is not None and not actor.going:
                    self.timeline.at(ends_ns - self.snapshot.now_ns, self._mark, actor, None)
        for workload in self.workloads.values():
            workload.settle_target()
            workload.entries.append((0, workload.ready))
        for ledger in self.ledgers.values():
            if ledger.needs_sync:
                self.timeline.at(self.timing.controller_ns, self._sync, ledger)
            for name, since in ledger.disrupted.items():
                ends_ns = since + DELETION_TIMEOUT_NS - self.snapshot.now_ns
                self.timeline.at(ends_ns, self._disruption_ends, ledger, name)

    def _found_workload(self, uid: str) -> None:
        """An owner with the counts of all its pods, and with those that move on their own."""
        pods = self.scope.owner_pods[uid]
        owner = controller_of(pods[0].metadata)
        assert owner is not None
        rule = self.scope.rules[uid]
        namespace = pods[0].namespace
        if self._admission.namespace_terminates(namespace):
            rule = rule._replace(when=NEVER, why=f"namespace {namespace} is being deleted")
        workload = Workload(uid, namespace, owner.kind, owner.name, rule)
        self.workloads[uid] = workload
        workload.active, workload.ready = self.scope.counts[uid]
        for pod in self.scope.moving[uid]:
            workload.adopt(self._actor_of(pod))

    def _actor_of(self, pod: Pod) -> PlannedPod:
        """The pod as an actor; what it is in the middle of goes on."""
        actor = self.actors.get(pod.metadata.uid)
        if actor is not None:
            return actor
        owner = controller_of(pod.metadata)
        workload = self.workloads.get(owner.uid) if owner is not None else None
        keys = self.scope.budgets_of.get(pod.metadata.uid, ())
        ledgers = tuple(self.ledgers[key] for key in keys)
        actor = self.actors[pod.metadata.uid] = PlannedPod(
            pod, ledgers, workload, pod.spec.node_name
        )
        deleted = pod.metadata.deletion_timestamp
        if deleted is not None:
            self._will_go(actor, deleted - self.snapshot.now_ns)
        elif is_starting(pod) and pod.spec.node_name:
            self._will_be_ready(actor, self._age_ns(pod))
        return actor

    def _age_ns(self, pod: Pod) -> int:
        created = pod.metadata.creation_timestamp
        return 0 if created is None else max(0, self.snapshot.now_ns - created)

    def _disruption_ends(self, ledger: BudgetLedger, name: str) -> None:
        """Two minutes are over and the pod was not deleted: it counts again."""
        if ledger.disrupted.pop(name, None) is None:
            return
        pod = self.snapshot.find("Pod", ledger.budget.namespace, name)
        actor = self.actors.get(pod.uid) if pod is not None else None
        if isinstance(pod, Pod) and (actor is None or not actor.going) and pod.ready():
            ledger.healthy += 1
        self._sync(ledger)

    # --- nodes -----------------------------------------------------------------------------------

    def time_ns(self) -> int:
        """The present instant, nanoseconds since the epoch."""
        return self.snapshot.now_ns + self.timeline.now_ns

    def to_cordon(self, names: Sequence[str]) -> list[str]:
        """Those of the nodes that are not cordoned yet."""
        nodes = self.landing.nodes
        return [name for name in names if name in nodes and not nodes[name].spec.unschedulable]

    def cordon(self, *names: str) -> None:
        """The nodes take no more pods."""
        nodes = [self.landing.nodes[name] for name in names if name in self.landing.nodes]
        self.landing.set_nodes(cordoned(node) for node in nodes)

    def uncordon(self, *names: str) -> None:
        """The nodes take pods again."""
        self.landing.set_nodes(uncordoned(self.landing.nodes[name]) for name in names)
        # The back-off of pods that waited so long is over: they are the first to be tried.
        self._retry()

    def pods_on(self, node: str) -> list[PlannedPod]:
        """The pods that a list call for the node returns now."""
        return [actor for actor in self.on_node[node].values() if not actor.gone]

    # --- requests --------------------------------------------------------------------------------

    def evict(
        self, actor: PlannedPod, requested_grace: int | None, *, again: bool = False
    ) -> Answer:
        """POST pods/eviction. `again`: the API server's own second try after a conflict."""
        if actor.gone:
            return MISSING
        refused = self._admission.refuses_eviction(actor.pod)
        if refused is not None:
            return refused
        answer = evict_under(
            actor.ledgers, actor.pod, self.timeline.now_ns, self.time_ns(), again=again
        )
        if answer is None:
            return CONFLICT
        if isinstance(answer, EvictionRefused):
            return answer
        self._mark(actor, requested_grace)
        return ACCEPTED

    def delete(self, actor: PlannedPod, requested_grace: int | None) -> Answer:
        """DELETE of the pod."""
        if actor.gone:
            return MISSING
        refused = self._admission.refuses_deletion(actor.pod)
        if refused is not None:
            return refused
        self._mark(actor, requested_grace)
        return ACCEPTED

    # --- a pod goes ------------------------------------------------------------------------------

    def _mark(self, actor: PlannedPod, requested_grace: int | None) -> None:
        """The pod is marked deleted, or goes at once."""
        now_ns = self.timeline.now_ns
        was_going = actor.going
        marked = delete_pod(actor.pod, self.snapshot.now_ns + now_ns, requested_grace)
        if not was_going:
            self._stops_counting(actor)
        if marked is None:
            self._gone(actor)
            return
        if marked is actor.pod:
            return
        actor.pod = marked
        grace = marked.metadata.deletion_grace_period_seconds or 0
        self._will_go(actor, now_ns + grace * SECOND_NS)

    def _stops_counting(self, actor: PlannedPod) -> None:
        now_ns = self.timeline.now_ns
        self.version += 1
        actor.going = True
        counted = actor.pod.status.phase not in TERMINAL_PHASES
        if actor.ready:
            for ledger in actor.ledgers:
                if ledger.disrupted.pop(actor.pod.name, None) is None:
                    ledger.healthy -= 1
        workload = actor.workload
        if workload is not None:
            if actor.ready:
                workload.note_ready(now_ns, -1)
            if counted and (workload.marked(actor) or workload.rule.failures_allowed == 0):
                self._create_soon(workload)
        self._sync_soon(actor)
        self.landing.marked(actor.pod)
        self._retry_soon()

    def _will_go(self, actor: PlannedPod, due_ns: int) -> None:
        """The kubelet ends the pod and the object goes, unless something holds it."""
        actor.held = why_held(actor.pod, actor.node, self.snapshot, due_ns)
        now_ns = self.timeline.now_ns
        if actor.held is not None:
            actor.goes_ns = None
            return
        if self.snapshot.silent_kubelet(actor.node) is not None:
            gone_ns = now_ns + POD_GC_PERIOD_NS
        else:
            rest_ns = max(0, due_ns - now_ns)
            gone_ns = now_ns + rest_ns * self.timing.grace_percent // 100
            gone_ns += self.timing.stop_extra_ns
        actor.goes_ns = gone_ns
        self.timeline.at(gone_ns, self._gone, actor)

    def _gone(self, actor: PlannedPod) -> None:
        if actor.gone:
            return
        now_ns = self.timeline.now_ns
        self.version += 1
        actor.gone_ns = now_ns
        for ledger in actor.ledgers:
            ledger.leave(actor.pod, self.owners)
        self._sync_soon(actor)
        if actor.node:
            self.landing.left(actor.pod)
            if actor.node in self.on_node:
                self.on_node[actor.node].pop(actor.uid, None)
        elif actor in self.waiting:
            self.waiting.remove(actor)
        workload = actor.workload
        if workload is not None and workload.gone(actor):
            self._create_soon(workload)
        self._retry_soon()

    # --- a pod comes -----------------------------------------------------------------------------

    def _create_soon(self, workload: Workload) -> None:
        """The owner sees that a pod is missing: it makes one, or a Job backs off or gives up."""
        now_ns = self.timeline.now_ns
        at_ns = now_ns + self.timing.controller_ns
        if workload.rule.delay_ns:  # a Job
            at_ns += JOB_BATCH_NS
            if workload.note_failure(now_ns - self.timing.cut_ns):
                self._end_all(workload, at_ns)
                return
        self.timeline.at(max(at_ns, workload.not_before_ns), self._create, workload)

    def _end_all(self, workload: Workload, at_ns: int) -> None:
        """A Job that has failed deletes what is left of its pods."""
        for pod in self.scope.owner_pods[workload.uid]:
            self._actor_of(pod)
        for actor in [a for a in self.actors.values() if a.workload is workload]:
            if not actor.going and actor.pod.status.phase not in TERMINAL_PHASES:
                self.timeline.at(at_ns, self._mark, actor, None)

    def _create(self, workload: Workload) -> None:
        """The owner makes what it owes; a Job that has failed again since waits for longer."""
        if self.timeline.now_ns < workload.not_before_ns:
            return
        for old in workload.to_create():
            self._made += 1
            pod = new_pod(old.pod, self._made, self.snapshot.now_ns + self.timeline.now_ns)
            actor = PlannedPod(pod, old.ledgers, workload, "")
            actor.created_ns = self.timeline.now_ns
            actor.cause, old.replacement = old, actor
            self.actors[pod.metadata.uid] = actor
            self.version += 1
            workload.active += 1
            workload.adopt(actor)
            for ledger in actor.ledgers:
                ledger.join(pod, self.owners)
            self._sync_soon(actor)
            self._place(actor)

    def _place(self, actor: PlannedPod) -> bool:
        node = self.landing.place(actor.pod)
        if node is None:
            if actor not in self.waiting:
                self.waiting.append(actor)
            return False
        self.version += 1
        actor.node, actor.placed_ns = node, self.timeline.now_ns
        if node in self.on_node:
            self.on_node[node][actor.uid] = actor
        self._will_be_ready(actor, 0)
        return True

    def _will_be_ready(self, actor: PlannedPod, age_ns: int) -> None:
        took = self.scope.history.time_to_ready(actor.pod)
        # One that should have been Ready long ago will not be, for all that can be seen.
        if took is not None and age_ns <= took.high_ns:
            rest_ns = max(0, took.pick(self.timing.ready) - age_ns)
            self.timeline.at(self.timeline.now_ns + rest_ns, self._ready, actor)

    def _ready(self, actor: PlannedPod) -> None:
        if actor.gone or actor.going or actor.ready:
            return
        now_ns = self.timeline.now_ns
        self.version += 1
        actor.ready, actor.ready_ns = True, now_ns
        actor.pod = msgspec.structs.replace(actor.pod, status=_RUNNING)
        for ledger in actor.ledgers:
            ledger.healthy += 1
        self._sync_soon(actor)
        workload = actor.workload
        if workload is not None:
            workload.note_ready(now_ns, 1)
            if workload.keeps_names and workload.rule.ordered:
                delay_ns = self.timing.controller_ns
                delay_ns += workload.rule.min_ready_seconds * SECOND_NS
                self.timeline.at(now_ns + delay_ns, self._create, workload)

    def _retry_soon(self) -> None:
        """Something left: pods that wait for a node are tried again."""
        if self.waiting and not self._retry_filed:
            self._retry_filed = True
            self.timeline.at(self.timeline.now_ns + BACK_OFF_NS, self._retry)

    def _retry(self) -> None:
        self._retry_filed = False
        self.waiting = [actor for actor in self.waiting if not actor.going]
        self.waiting = [actor for actor in list(self.waiting) if not self._place(actor)]

    # --- budgets ---------------------------------------------------------------------------------

    def _sync_soon(self, actor: PlannedPod) -> None:
        """The disruption controller looks at the pod's budgets in a moment."""
        for ledger in actor.ledgers:
            if id(ledger) not in self._syncs:
                self._syncs.add(id(ledger))
                at_ns = self.timeline.now_ns + self.timing.controller_ns
                self.timeline.at(at_ns, self._sync, ledger)

    def _sync(self, ledger: BudgetLedger) -> None:
        self._syncs.discard(id(ledger))
        now_ns = self.timeline.now_ns
        before = ledger.budget
        ledger.sync(now_ns, self.snapshot.now_ns + now_ns)
        if ledger.budget is not before:
            self.version += 1


_RUNNING = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
