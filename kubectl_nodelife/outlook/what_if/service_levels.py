"""Counts, from outside of a play, the pods of workloads and Services that are ready and serve.

A pod is *ready* where the API shows its Ready condition True and it is not being deleted: then it
is a ready endpoint, too. It *serves* where it is ready in the API's or in its kubelet's eyes and
its machine is not off: a pod behind a lost link goes on serving. It is *blind* where it does not
serve and is still ready in the API, so that Services send traffic to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain, pairwise
from typing import NamedTuple

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import LabelSelector, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import SelectorIndex, matches, parse_selector
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.sim.machines import Reach
from kubectl_nodelife.sim.world import World

SERVICE = "Service"


class ServedObject(NamedTuple):
    """A workload, a pod without a controller, or a Service (`kind` SERVICE)."""

    namespace: str
    kind: str
    name: str


class Level(NamedTuple):
    """How many pods are ready, serve, and are blind, since an instant in ns."""

    at_ns: int
    ready: int
    serving: int
    blind: int


class _Judged(NamedTuple):
    counted: tuple[ServedObject, ...]
    ready: bool
    serves: bool
    blind: bool


class _PodClass:
    """Pods with the same labels and owners, which they share as objects: what they count for, and
    how many of them are ready at the beginning."""

    __slots__ = ("count", "counted", "not_ready", "ready")

    def __init__(self, counted: tuple[ServedObject, ...]) -> None:
        self.count = 0
        self.counted = counted
        self.not_ready = _Judged(counted, False, False, False)
        self.ready = _Judged(counted, True, True, False)


class ServiceLevels:
    """The levels over time of all that a world runs; it goes with the world's forks.

    `changed`: workloads and Services whose level is not what it was all the time. `made`: pods that
    came, by workload; `workload_of`, `node_of`: of each pod that ever was there, by uid; `unbound`:
    the pods without a node. Of the pods at the beginning that had not ended, how many there were by
    workload (`pods_of_start`) and by node (`pods_at_start`).
    """

    def __init__(self, world: World) -> None:
        """To be made before the first tick that it shall follow."""
        self._api, self._machines = world.api, world.machines
        self._series: dict[ServedObject, list[Level]] = {}
        self._judged: dict[str, _Judged] = {}
        self._served: set[str] = set()
        self._services: SelectorIndex[tuple[str, str]] = SelectorIndex()
        self.workload_of: dict[str, ServedObject] = {}
        self.node_of: dict[str, str] = {}
        self.made: dict[ServedObject, int] = {}
        self.changed: dict[ServedObject, None] = {}
        self.unbound: dict[Key, None] = {}
        self.pods_of_start: Counter[ServedObject] = Counter()
        self.pods_at_start: Counter[str] = Counter()
        self._begin()
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        self._machines.on_reach(self._reach_changed)
        world.join(self)

    def fork(self, world: World) -> ServiceLevels:
        """Those of the world's fork."""
        other = copy(self)
        other._api, other._machines = world.api, world.machines
        self._series, other._series = fork_dict(self._series, list)
        self._judged, other._judged = fork_dict(self._judged)
        self.workload_of, other.workload_of = fork_dict(self.workload_of)
        self.node_of, other.node_of = fork_dict(self.node_of)
        other._served, other.made = set(self._served), dict(self.made)
        other.changed, other.unbound = dict(self.changed), dict(self.unbound)
        other._machines.on_reach(other._reach_changed)
        return other

    @property
    def counted(self) -> Iterator[ServedObject]:
        """All workloads and Services."""
        return iter(self._series)

    def series(self, counted: ServedObject) -> list[Level]:
        """Its levels, the first one that of the beginning."""
        return self._series.get(counted) or [Level(self._began_ns, 0, 0, 0)]

    def _begin(self) -> None:
        self._began_ns = now_ns = self._api.now_ns
        for service in self._api.store.all(SERVICE):
            if not isinstance(service, Service) or not service.spec.selector:
                continue
            if not service.spec.publish_not_ready_addresses:
                counted = ServedObject(service.namespace, SERVICE, service.name)
                self._series[counted] = [Level(now_ns, 0, 0, 0)]
                selector = LabelSelector(match_labels=service.spec.selector)
                self._services.add(service.namespace, selector, service.key)
        self._count_all()

    def _count_all(self) -> None:
        """Count the pods that are there. No machine is off: one that is ready serves."""
        classes: dict[tuple[str, int, int], _PodClass] = {}
        workload_of, node_of, judged = self.workload_of, self.node_of, self._judged
        for pod in self._api.store.pods.values():
            meta, node = pod.metadata, pod.spec.node_name
            owners = meta.owner_references
            alike = (meta.namespace, id(meta.labels), id(owners) if owners else id(pod))
            of_class = classes.get(alike)
            if of_class is None:
                counted = (_workload_of(pod), *self._services_of(pod))
                of_class = classes[alike] = _PodClass(counted)
            workload = workload_of[meta.uid] = of_class.counted[0]
            node_of[meta.uid] = node
            if not node:
                self.unbound[pod.key] = None
            if pod.status.phase not in TERMINAL_PHASES:
                self.pods_of_start[workload] += 1
                self.pods_at_start[node] += 1
            if _is_ready(pod):
                of_class.count += 1
                judged[meta.uid] = of_class.ready
            else:
                judged[meta.uid] = of_class.not_ready
        ready: Counter[ServedObject] = Counter()
        for of_class in classes.values():
            for each in of_class.counted if of_class.count else of_class.counted[:1]:
                ready[each] += of_class.count
        for counted_one, count in ready.items():
            self._series[counted_one] = [Level(self._began_ns, count, count, 0)]

    def at_zero_before(self) -> Iterator[ServedObject]:
        """The workloads that had pods at the beginning of which none served."""
        return (w for w in self.pods_of_start if not self.series(w)[0].serving)

    def _take(self, pod: Pod) -> None:
        """Count the pod as it is now."""
        before = self._judged.get(pod.uid)
        if before is None:
            workload = _workload_of(pod)
            self.workload_of[pod.uid] = workload
            self.made[workload] = self.made.get(workload, 0) + 1
            counted = (workload, *self._services_of(pod))
        else:
            counted = before.counted
        self.node_of[pod.uid] = pod.spec.node_name
        if not pod.spec.node_name:
            self.unbound[pod.key] = None
        elif self.unbound:
            self.unbound.pop(pod.key, None)
        after = self._judge(pod, counted)
        self._judged[pod.uid] = after
        self._move(before, after)

    def _services_of(self, pod: Pod) -> Iterator[ServedObject]:
        for namespace, name in self._services.find(pod.namespace, pod.metadata.labels):
            yield ServedObject(namespace, SERVICE, name)

    def _judge(self, pod: Pod, counted: tuple[ServedObject, ...]) -> _Judged:
        ready = _is_ready(pod)
        reach = self._machines.reach.get(pod.spec.node_name, Reach.REACHED)
        if reach is Reach.OFF:
            return _Judged(counted, ready, False, ready)
        if reach is Reach.REACHED and (ready or pod.metadata.deletion_timestamp is not None):
            self._served.discard(pod.uid)
        return _Judged(counted, ready, ready or pod.uid in self._served, False)

    def _move(self, before: _Judged | None, after: _Judged | None) -> None:
        """From one judgement to another; None: the pod is not there."""
        was = (before.ready, before.serves, before.blind) if before else (False, False, False)
        now = (after.ready, after.serves, after.blind) if after else (False, False, False)
        if was == now and before is not None:
            return
        found = after or before
        assert found is not None
        now_ns = self._api.now_ns
        for counted in found.counted:
            self.changed[counted] = None
            series = self._series.setdefault(counted, [Level(self._began_ns, 0, 0, 0)])
            last = series[-1]
            new = Level(now_ns, *(n + b - a for n, a, b in zip(last[1:], was, now, strict=True)))
            if last.at_ns == now_ns and len(series) > 1:
                series[-1] = new
            else:
                series.append(new)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._served.discard(old.uid)
            self.unbound.pop(old.key, None)
            if (judged := self._judged.pop(old.uid, None)) is not None:
                self._move(judged, None)
        if new is not None:
            self._take(new)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for _, new, _ in changes:
            self._take(new)

    def _reach_changed(self, node: str, reach: Reach) -> None:
        """Called after the machine's reach has changed; what its pods were judged before still
        stands."""
        for pod in list(self._api.store.pods_on(node)):
            judged = self._judged.get(pod.uid)
            if reach is Reach.CUT_OFF and judged is not None and judged.serves:
                self._served.add(pod.uid)
            elif reach is Reach.OFF:
                self._served.discard(pod.uid)
            self._take(pod)


class Outage(NamedTuple):
    """The gaps in a series; instants and durations in ns. `first`: when fewer serve than at t=0;
    `back`: when as many do again, None where they do not; `at_zero`: how long no pod serves;
    `no_ready`: how long no pod is ready; `blind`: how long any pod is blind. `none_from`,
    `none_to`: since when no pod is ready, and when one is again for good.
    """

    before: Level
    lowest_ready: int
    lowest_serving: int
    first_ns: int | None
    back_ns: int | None
    at_zero_ns: int
    no_ready_ns: int
    blind_ns: int
    missing_pod_ns: int
    none_from_ns: int | None
    none_to_ns: int | None


def outage_of(series: Sequence[Level], end_ns: int) -> Outage:
    """The figures of a series that ends at this instant."""
    before = series[0]
    at_zero_ns = no_ready_ns = blind_ns = missing_ns = 0
    first_ns = back_ns = none_from_ns = none_to_ns = None
    for level, after in pairwise(chain(series, [series[-1]._replace(at_ns=end_ns)])):
        lasts_ns = after.at_ns - level.at_ns
        at_zero_ns += lasts_ns * (level.serving == 0)
        no_ready_ns += lasts_ns * (level.ready == 0)
        blind_ns += lasts_ns * (level.blind > 0)
        missing_ns += lasts_ns * max(0, before.serving - level.serving)
        if before.ready and level.ready == 0:
            none_from_ns = level.at_ns if none_from_ns is None else none_from_ns
            none_to_ns = None
        elif none_from_ns is not None and none_to_ns is None:
            none_to_ns = level.at_ns
        if level.serving < before.serving:
            first_ns = level.at_ns if first_ns is None else first_ns
            back_ns = None
        elif first_ns is not None and back_ns is None:
            back_ns = level.at_ns
    return Outage(
        before,
        min(level.ready for level in series),
        min(level.serving for level in series),
        first_ns,
        back_ns,
        at_zero_ns,
        no_ready_ns,
        blind_ns,
        missing_ns,
        none_from_ns,
        none_to_ns,
    )


def _is_ready(pod: Pod) -> bool:
    return (
        pod.ready()
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL_PHASES
    )


def _workload_of(pod: Pod) -> ServedObject:
    owner = controller_of(pod.metadata)
    if owner is None:
        return ServedObject(pod.namespace, "Pod", pod.name)
    return ServedObject(pod.namespace, owner.kind, owner.name)


def named_workloads(text: str, cluster: Cache) -> set[ServedObject]:
    """The workloads and Services that NAMESPACE/KIND/NAME or a selector of pods' labels means.
    Raises BadInput."""
    parts = text.split("/")
    if len(parts) == 3 and "=" not in text:
        namespace, kind, name = parts
        known = {_workload_of(p) for p in cluster.pods.values() if p.namespace == namespace}
        services = (service.key for service in cluster.all(SERVICE))
        known |= {ServedObject(ns, SERVICE, service) for ns, service in services if ns == namespace}
        found = {w for w in known if w.kind.lower() == kind.lower() and w.name == name}
    else:
        try:
            wanted = parse_selector(text)
        except ValueError as error:
            raise BadInput(str(error), on="--ignore") from None
        pods = cluster.pods.values()
        found = {_workload_of(p) for p in pods if matches(wanted, p.metadata.labels)}
    if not found:
        remedy = "write NAMESPACE/KIND/NAME, or a selector of pods' labels"
        raise BadInput(f"{text!r} matches no workload", on="--ignore", remedy=remedy)
    return found
