"""The drains of a rehearsed run: played in the planner's world, or of a known length.

`PlayedDrains` is `kubectl drain` of each claimed node in the world of `drain/`: budgets are spent
and refill, replacements land on nodes that are in service. `TimedDrains` only takes its time; with
it the ends of an estimate are found without playing every pod again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import outdated
from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.clock import PlanClock
from kubectl_nodelife.drain.loads import cap_of
from kubectl_nodelife.drain.planned_nodes import cordoned
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.drain.timing import Timing
from kubectl_nodelife.drain.world import PlanWorld
from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.quantity import Amounts, pod_requests
from kubectl_nodelife.kube.taints import remove_taints
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.upgrade.course import Course
from kubectl_nodelife.workloads.capacity import COUNTED
from kubectl_nodelife.workloads.eviction import asks_budgets
from kubectl_nodelife.workloads.owners import NEVER, successor
from kubectl_nodelife.workloads.waves import BudgetKey

Free = Mapping[str, tuple[int, int]]
"""Of cpu and memory: what is free, and what there is in all."""

Ended = Callable[[str, bool], None]
"""Is told the node whose drain has ended, and whether it is drained."""


class DrainDriver(Protocol):
    """What a rehearsal asks of its drains."""

    timeline: PlanClock

    def take(self, name: str) -> None:
        """The node is about to be claimed: what it needs of the budgets is not for others."""
        ...

    def begin(self, name: str, ended: Ended) -> None:
        """The node is claimed: cordoned, and its drain begins."""
        ...

    def release(self, name: str) -> None:
        """The node takes pods again."""
        ...

    def waits(self, name: str) -> str:
        """Why the budgets do not let the node's pods go now; "" where they do."""
        ...

    def free(self, names: Sequence[str]) -> Free:
        """What is left on these nodes once all that is leaving others stands on them."""
        ...

    def cost(self, name: str) -> Free:
        """How much less is free, and is there in all, without the node."""
        ...

    def homeless(self, name: str) -> str:
        """A pod of the node that would find no other, and why; "" where each finds one."""
        ...

    def settled(self) -> bool:
        """Whether nothing moves any more in the drains under way."""
        ...

    def close(self, course: Course) -> None:
        """Note in the course what became of the pods."""
        ...


class TimedDrains:
    """Drains that take so many nanoseconds, by node, and of each budget what `needs` says.

    `caps`: how many pods each budget spares at once.
    """

    def __init__(
        self,
        lengths_ns: Mapping[str, int],
        needs: Mapping[str, Mapping[BudgetKey, int]] | None = None,
        caps: Mapping[BudgetKey, int] | None = None,
    ) -> None:
        self.timeline = PlanClock()
        self._lengths_ns = lengths_ns
        self._needs = needs or {}
        self._caps = caps or {}
        self._taken: Counter[BudgetKey] = Counter()

    def take(self, name: str) -> None:
        """It needs as much as when it was played."""
        self._taken.update(self._needs.get(name, {}))

    def begin(self, name: str, ended: Ended) -> None:
        """The drain ends after its time."""
        at_ns = self.timeline.now_ns + self._lengths_ns.get(name, 0)
        self.timeline.at(at_ns, self._end, name, ended)

    def _end(self, name: str, ended: Ended) -> None:
        self._taken.subtract(self._needs.get(name, {}))
        ended(name, True)

    def release(self, name: str) -> None:
        """Nothing to do."""

    def waits(self, name: str) -> str:
        """As 6.4 has it, but that budgets have refilled as soon as a drain ends."""
        return _spares_no_more(self._needs.get(name, {}), self._taken, self._caps)

    def free(self, names: Sequence[str]) -> Free:
        """Nothing is known of pods."""
        return {}

    def cost(self, name: str) -> Free:
        """Nothing is known of pods."""
        return {}

    def homeless(self, name: str) -> str:
        """Nothing is known of pods."""
        return ""

    def settled(self) -> bool:
        """Always: there are no processes."""
        return True

    def close(self, course: Course) -> None:
        """Nothing to note."""


class PlayedDrains:
    """`kubectl drain` of each node, in one world. Use once."""

    def __init__(
        self,
        snapshot: PlanSnapshot,
        names: Sequence[str],
        options: DrainOptions,
        admission: Admission,
        timing: Timing,
    ) -> None:
        self._scope = Scope(snapshot, names)
        self._world = PlanWorld(self._scope, admission, timing)
        self.timeline = self._world.clock
        self._options = options
        self._timing = timing
        self._running: dict[str, KubectlDrain[PlannedPod]] = {}
        self._evictions = self._tried = 0
        self._needed: dict[str, dict[BudgetKey, int]] = {}
        self._taken: Counter[BudgetKey] = Counter()
        self._taken_ns = -1

    @cached_property
    def _caps(self) -> dict[BudgetKey, int]:
        return {key: cap_of(self._scope, key) for key in self._scope.ledgers}

    def timed(self, lengths_ns: Mapping[str, int]) -> TimedDrains:
        """The same drains with other lengths, once these were played."""
        return TimedDrains(lengths_ns, self._needed, self._caps)

    def take(self, name: str) -> None:
        """The budgets of what leaves it now."""
        self._needed[name] = self._needs(name)
        self._taken_now().update(self._needed[name])

    def begin(self, name: str, ended: Ended) -> None:
        """Cordon the node and drain it."""

        def on_end() -> None:
            run = self._running.pop(name).runs[-1]
            self._evictions += sum(1 for t in run.targets if t.accepted_ns is not None)
            ended(name, run.drained)

        self._world.cordon(name)
        process = KubectlDrain(
            self._world, self._options, (name,), self._timing.requests, on_end=on_end
        )
        self._running[name] = process
        process.start(self.timeline.now_ns, cordon=False)

    def release(self, name: str) -> None:
        """Uncordon it; it is no longer outdated."""
        landing = self._world.landing
        node = landing.nodes[name]
        taints = remove_taints(node.spec.taints, (outdated("run"),))
        if taints is not node.spec.taints:
            landing.set_nodes([replace(node, spec=replace(node.spec, taints=taints))])
        self._world.uncordon(name)

    def waits(self, name: str) -> str:
        """As 6.4 has it: a budget spares none now, or those Draining take what it spares."""
        needs = self._needs(name)
        for key in needs:
            if not self._world.ledgers[key].budget.status.disruptions_allowed:
                return f"budget {key[0]}/{key[1]} spares none now"
        return _spares_no_more(needs, self._taken_now(), self._caps) if needs else ""

    def _taken_now(self) -> Counter[BudgetKey]:
        """What the nodes Draining still take; counted once an instant, `take` adds to it."""
        if self._taken_ns != self.timeline.now_ns:
            self._taken_ns = self.timeline.now_ns
            self._taken = Counter()
            for name in self._running:
                self._taken.update(self._needs(name))
        return self._taken

    def _needs(self, name: str) -> dict[BudgetKey, int]:
        """How many pods that must still be evicted from the node each budget guards."""
        needs: dict[BudgetKey, int] = {}
        for actor in self._leaving(name):
            budgets = [ledger.budget for ledger in actor.ledgers]
            if actor.ready or asks_budgets(actor.pod, budgets, self._world.time_ns()):
                for budget in budgets:
                    needs[budget.key] = needs.get(budget.key, 0) + 1
        return needs

    def free(self, names: Sequence[str]) -> Free:
        """Requests against what is allocatable; what leaves the nodes Draining is taken off."""
        infos = [self._world.landing.placement.info(name) for name in names]
        leaving = [self._moving(name) for name in self._running]
        found = {}
        for resource in COUNTED:
            total = sum(info.allocatable.get(resource, 0) for info in infos)
            used = sum(info.requested.get(resource, 0) for info in infos)
            used += sum(moving.get(resource, 0) for moving in leaving)
            found[resource] = (total - used, total)
        return found

    def cost(self, name: str) -> Free:
        """The node's own room is lost, and its pods take room elsewhere; daemon pods do not."""
        info, moving = self._world.landing.placement.info(name), self._moving(name)
        found = {}
        for resource in COUNTED:
            total = info.allocatable.get(resource, 0)
            own = total - info.requested.get(resource, 0)
            found[resource] = (own + moving.get(resource, 0), total)
        return found

    def homeless(self, name: str) -> str:
        """Each is put somewhere by the scheduler, one after another, and all are taken back."""
        landing, now_ns = self._world.landing, self.timeline.now_ns
        before = landing.nodes[name]
        landing.set_nodes([cordoned(before)])
        tried = []
        try:
            for actor in self._leaving(name):
                if actor.workload is None or actor.workload.rule.when == NEVER:
                    continue
                self._tried += 1
                pod = successor(actor.pod, f"{actor.pod.name}-", f"try-{self._tried}", Time(now_ns))
                tried.append(pod)
                if landing.place(pod) is None:
                    why = landing.placement.no_room(pod)
                    return f"pod {actor.pod.namespace}/{actor.pod.name} finds no other node: {why}"
            return ""
        finally:
            for pod in tried:
                landing.left(pod)
            landing.set_nodes([before])

    def _leaving(self, name: str) -> list[PlannedPod]:
        """The pods that a drain of the node has still to move."""
        actors = self._world.pods_on(name)
        return [a for a in actors if not (a.gone or a.going or _stays(a))]

    def _moving(self, name: str) -> Amounts:
        """What the pods request that the drain of the node moves elsewhere."""
        found: Amounts = {}
        for actor in self._leaving(name):
            for resource, amount in pod_requests(actor.pod).items():
                found[resource] = found.get(resource, 0) + amount
        return found

    def settled(self) -> bool:
        """Whether every process is done for."""
        done = True
        for process in list(self._running.values()):
            done = process.settled() and done
        return done

    def close(self, course: Course) -> None:
        """Evictions, how often pods moved, and pods without a place."""
        course.evictions = self._evictions
        moved: dict[str, int] = {}
        for actor in self._world.actors.values():
            moves, first = 0, actor
            while first.cause is not None:
                moves, first = moves + 1, first.cause
            if moves:
                moved[first.uid] = max(moves, moved.get(first.uid, 0))
        if moved:
            course.moves = (sum(moved.values()) / len(moved), max(moved.values()))
        placement = self._world.landing.placement
        course.waiting = [
            f"{actor.pod.namespace}/{actor.pod.name}: {placement.no_room(actor.pod)}"
            for actor in self._world.waiting[:20]
        ]


def _spares_no_more(
    needs: Mapping[BudgetKey, int], taken: Mapping[BudgetKey, int], caps: Mapping[BudgetKey, int]
) -> str:
    """Why the nodes Draining leave too little of a budget; "" where they leave enough."""
    for key, count in needs.items():
        of_others = taken.get(key, 0)
        if of_others and of_others + count > max(1, caps.get(key, 0)):
            return f"budget {key[0]}/{key[1]} spares no more than the nodes Draining take"
    return ""


def _stays(actor: PlannedPod) -> bool:
    owner = controller_of(actor.pod.metadata)
    return owner is not None and owner.kind in ("DaemonSet", "Node")
