"""Preemption by the simulated scheduler: a pod that fits nowhere makes room by its priority.

Follows pkg/scheduler/framework/preemption and plugins/defaultpreemption: on each node the pods of
lower priority are removed, then as many as possible are put back, those first whose budget would be
broken, then those with the highest priority, and the node with the least important victims is
chosen. Its room is kept for the pod until that is bound (`PlacementSimulator.nominate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from kubectl_nodelife.engine.actions import SetPodCondition, of_pod
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, whole_seconds
from kubectl_nodelife.sim.api import CLUSTER, deletion, event_record
from kubectl_nodelife.sim.timeline import OWNER
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.placement import priority

CANDIDATE_PERCENT: Final = 10
CANDIDATES_AT_LEAST: Final = 100
"""minCandidateNodesPercentage and minCandidateNodesAbsolute of DefaultPreemptionArgs."""

_ABOVE_ZERO: Final = 1 << 31
"""What makes each priority count in a sum, so that two victims weigh more than one of them."""

_BY_SCHEDULER: Final = "PreemptionByScheduler"

NEVER: Final = "Never"
"""The preemptionPolicy of a pod that waits for its turn whatever its priority."""


class Candidate(NamedTuple):
    """A node with the pods that would have to go, in the order in which nodes are compared.

    Follows `pickOneNodeForPreemption`: the fewest victims whose budget is broken, then the lowest
    of the highest priorities, then the lowest sum, then the fewest, then whose most important
    victim started last, then the node's name (there: chance).
    """

    violations: int
    highest: int
    total: int
    number: int
    started: int
    node: str
    victims: tuple[Pod, ...]


class Preemption:
    """The scheduler's PostFilter. `marks`: victims get the condition DisruptionTarget first."""

    def __init__(self, world: World, *, marks: bool) -> None:
        self._world = world
        self._marks = marks
        world.join(self)
        world.scheduler.ask_when_unschedulable(self.unschedulable)

    def fork(self, world: World) -> Preemption:
        """The same in a fork of the world."""
        other = Preemption.__new__(Preemption)
        other._world, other._marks = world, self._marks
        return other

    def may_preempt(self, pod: Pod) -> bool:
        """True if the pod may have victims now. Follows `PodEligibleToPreemptOthers`."""
        return pod.spec.preemption_policy != NEVER and not self._waits(pod)

    def unschedulable(self, pod: Pod) -> None:
        """A pod was tried and fits on no node: look for victims right after."""
        if pod.spec.preemption_policy != NEVER:
            at_ns = self._world.api.now_ns + MILLISECOND_NS
            self._world.agenda.add(at_ns, OWNER, self._preempt, (pod.key, pod.uid))

    def _preempt(self, whose: tuple[Key, str], at_ns: int) -> None:
        pod = self._world.api.store.pods.get(whose[0])
        if pod is None or pod.uid != whose[1] or pod.spec.node_name:
            return
        placement = self._world.scheduler.placement
        if not self.may_preempt(pod) or placement.place(pod) is not None:
            return
        choices = self.choices(pod)
        if not choices:
            placement.nominate(pod, None)
            return
        best = choices[0]
        for other in placement.nominated_to(best.node):
            if priority(other) < priority(pod):
                placement.nominate(other, None)
        placement.nominate(pod, best.node)
        for victim in best.victims:
            self._evict(victim, pod, best.node)

    def choices(self, pod: Pod) -> list[Candidate]:
        """The candidates that are equal but for the node's name: upstream takes any of them."""
        candidates = sorted(islice(self._candidates(pod), self._most_candidates()))
        return [c for c in candidates if c[:5] == candidates[0][:5]]

    def _candidates(self, pod: Pod) -> Iterator[Candidate]:
        for node in self._world.api.store.nodes:
            candidate = self.candidate(pod, node)
            if candidate is not None:
                yield candidate

    def _most_candidates(self) -> int:
        """How many nodes are compared. Follows `calculateNumCandidates` with its defaults."""
        return max(len(self._world.api.store.nodes) * CANDIDATE_PERCENT // 100, CANDIDATES_AT_LEAST)

    def _waits(self, pod: Pod) -> bool:
        """True if victims are still going where the pod is nominated: it preempts no others then.

        Follows `PodEligibleToPreemptOthers`.
        """
        node = self._world.scheduler.placement.nominated_node(pod)
        return node is not None and any(
            priority(other) < priority(pod) and self._goes_by_preemption(other)
            for other in self._world.api.store.pods_on(node)
        )

    def _goes_by_preemption(self, pod: Pod) -> bool:
        """Follows `podTerminatingByPreemption`: any that goes, where victims get no condition."""
        if pod.metadata.deletion_timestamp is None:
            return False
        target = pod.status.condition("DisruptionTarget")
        return not self._marks or (
            target is not None and target.status == "True" and target.reason == _BY_SCHEDULER
        )

    def candidate(self, pod: Pod, node: str) -> Candidate | None:
        """The node with its victims; None where no victims help.

        Follows `SelectVictimsOnNode`, which keeps the more important ones (`MoreImportantPod`).
        """
        fits = self._world.scheduler.placement.fits_without
        lower = [
            other
            for other in self._world.api.store.pods_on(node)
            if priority(other) < priority(pod) and other.status.phase not in TERMINAL_PHASES
        ]
        if not lower or not fits(pod, node, lower):
            return None
        now_ns = self._world.api.now_ns
        lower.sort(key=lambda pod: (-priority(pod), _started(pod, now_ns), pod.name))
        broken = self._breaking(lower)
        victims = list(lower)
        for other in sorted(lower, key=lambda pod: pod.uid not in broken):
            without = [victim for victim in victims if victim is not other]
            if fits(pod, node, without):
                victims = without
        if not victims:
            return None
        return Candidate(
            sum(victim.uid in broken for victim in victims),
            priority(victims[0]),
            sum(priority(victim) + _ABOVE_ZERO for victim in victims),
            len(victims),
            -min(_started(v, now_ns) for v in victims if priority(v) == priority(victims[0])),
            node,
            tuple(victims),
        )

    def _breaking(self, pods: list[Pod]) -> set[str]:
        """The uids of those whose eviction breaks a budget, if they go in this order.

        Follows `filterPodsWithPDBViolation`.
        """
        allowed: dict[Key, int] = {}
        broken = set()
        for pod in pods:
            for ledger in self._world.disruption.budgets_of(pod):
                budget = ledger.budget
                if pod.name in (budget.status.disrupted_pods or {}):
                    continue
                room = allowed.get(budget.key, budget.status.disruptions_allowed) - 1
                allowed[budget.key] = room
                if room < 0:
                    broken.add(pod.uid)
        return broken

    def _evict(self, victim: Pod, pod: Pod, node: str) -> None:
        if victim.metadata.deletion_timestamp is not None:
            return
        api = self._world.api
        why = (
            f"{pod.namespace}/{pod.name} of priority {priority(pod)} needs its room,"
            f" and it has {priority(victim)}"
        )
        preempted = api.note(event_record(victim, "Preempted", f"{why}: preempted on {node}"))
        if self._marks:
            marked = SetPodCondition(
                controller=CLUSTER,
                because=why,
                cause=preempted,
                **of_pod(victim),
                condition=PodCondition(
                    type="DisruptionTarget",
                    status="True",
                    reason=_BY_SCHEDULER,
                    message="default-scheduler: preempting to accommodate a higher priority pod",
                    last_transition_time=Time(whole_seconds(api.now_ns)),
                ),
            )
            self._world.start(api.note(marked), api.now_ns)
        gone = deletion(victim, why, preempted)
        self._world.start(api.note(gone), api.now_ns)


def _started(pod: Pod, now_ns: int) -> int:
    """When the pod started. Follows `GetPodStartTime`: now, where it has not."""
    started = pod.status.start_time
    return int(started) if started is not None else now_ns
