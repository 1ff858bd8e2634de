"""Counts, from outside of a play, the pods of workloads and Services that are ready and serve.

A pod is *ready* where the API shows its Ready condition True and it is not being deleted: then it
is a ready endpoint, too. It *serves* where it is ready in the API's or in its kubelet's eyes and
its machine is not off: a pod behind a lost link goes on serving. It is *blind* where it does not
serve and is still ready in the API, so that Services send traffic to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple

from kubectl_nodelife.copy_on_write import fork_dict, unchanging
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import ObjectMeta, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.sim.endpoints import EndpointsController
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


_NOTHING: Final = _Judged((), False, False, False)
_NOT_JUDGED: Final = _Judged((), False, False, False)


class _CountedFor(NamedTuple):
    """`meta`: of one of the pods, whose labels and owners it keeps alive, so that their ids stay
    theirs."""

    counted: tuple[ServedObject, ...]
    meta: ObjectMeta


class ClusterAtStart:
    """The cluster at the beginning, which all forks share: what a play does not reach is counted
    only when it is asked for.
    """

    def __init__(self, cluster: Cache, endpoints: EndpointsController, now_ns: int) -> None:
        self.cluster, self._endpoints = cluster, endpoints
        self._pods = unchanging(cluster.pods)
        self._now_ns = now_ns
        self._levels: dict[ServedObject, Level] = {}
        self._counted: dict[tuple[str, int, int], _CountedFor] = {}

    @cached_property
    def _uids(self) -> dict[ServedObject, list[str]]:
        """The uids by which the pods of each workload are found."""
        uids: dict[ServedObject, list[str]] = {}
        for uid, pod in self.cluster.first_of_owners():
            uids.setdefault(workload_of(pod), []).append(uid)
        return uids

    @cached_property
    def _without_uid(self) -> dict[ServedObject, list[Pod]]:
        """The pods of workloads whose uid is not known, as in objects written by hand."""
        pods: dict[ServedObject, list[Pod]] = {}
        for pod in self.cluster.pods_of_nobody():
            pods.setdefault(workload_of(pod), []).append(pod)
        return pods

    def pod(self, of: Pod) -> Pod | None:
        """The pod as it was; None: it was not there."""
        pod = self._pods.get((of.namespace, of.name))
        return pod if pod is not None and pod.metadata.uid == of.uid else None

    def counted_for(self, pod: Pod) -> tuple[ServedObject, ...]:
        """The workload and the Services for which the pod counts: found once for pods that share
        their labels and owners, as those of a workload do."""
        meta = pod.metadata
        key = (meta.namespace, id(meta.labels), id(meta.owner_references))
        before = self._counted.get(key)
        if before is not None:
            return before.counted
        services = self._endpoints.services_of(pod)
        served = (ServedObject(namespace, SERVICE, name) for namespace, name in services)
        counted = (workload_of(pod), *served)
        if controller_of(meta) is not None:  # else the pod's own name is the workload's
            self._counted[key] = _CountedFor(counted, meta)
        return counted

    def pods_of(self, counted: ServedObject) -> list[Pod]:
        """The pods that count for a workload or Service."""
        if counted.kind == SERVICE:
            at_start = self._endpoints.pods_at_start((counted.namespace, counted.name))
            found = (self._pods.get(pod.key) for pod in at_start)
            return [pod for pod in found if pod is not None]
        pods = [pod for uid in self._uids.get(counted, ()) for pod in self.cluster.pods_of(uid)]
        pods += self._without_uid.get(counted, ())
        return [pod for pod in pods if workload_of(pod) == counted]

    def level(self, counted: ServedObject) -> Level:
        """How many of its pods were ready. No machine is off: one that is ready serves."""
        level = self._levels.get(counted)
        if level is None:
            ready = sum(map(_is_ready, self.pods_of(counted)))
            level = self._levels[counted] = Level(self._now_ns, ready, ready, 0)
        return level


class ServiceLevels:
    """The levels over time of all that a world runs; it goes with the world's forks.

    `start`: the cluster at the beginning. `changed`: workloads and Services whose level is not what
    it was all the time; `unbound`: the pods without a node. `all_at_start`: how many pods there
    were at the beginning that had not ended.
    """

    def __init__(self, world: World) -> None:
        """To be made before the first tick that it shall follow."""
        self._api, self._machines = world.api, world.machines
        self._endpoints = world.endpoints
        cluster = world.api.store.fork()
        self.start = ClusterAtStart(cluster, world.endpoints, world.api.now_ns)
        self._series: dict[ServedObject, list[Level]] = {}
        self._judged: dict[str, _Judged | None] = {}
        self._served: set[str] = set()
        self.changed: dict[ServedObject, None] = {}
        unsettled = cluster.unsettled_pods()
        self.unbound = {pod.key: None for pod in unsettled if not pod.spec.node_name}
        ended = sum(pod.status.phase in TERMINAL_PHASES for pod in unsettled)
        self.all_at_start = len(cluster.pods) - ended
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        self._machines.on_reach(self._reach_changed)
        world.join(self)

    def fork(self, world: World) -> ServiceLevels:
        """Those of the world's fork."""
        other = copy(self)
        other._api, other._machines = world.api, world.machines
        other._endpoints = world.endpoints
        self._series, other._series = fork_dict(self._series, list)
        self._judged, other._judged = fork_dict(self._judged)
        other._served = set(self._served)
        other.changed, other.unbound = dict(self.changed), dict(self.unbound)
        other._machines.on_reach(other._reach_changed)
        return other

    def series(self, counted: ServedObject) -> list[Level]:
        """Its levels, the first one that of the beginning."""
        return self._series.get(counted) or [self.start.level(counted)]

    def pods_at_start(self, workload: ServedObject) -> int:
        """How many pods that had not ended it had at the beginning."""
        return sum(p.status.phase not in TERMINAL_PHASES for p in self.start.pods_of(workload))

    def pods_on_at_start(self, node: str) -> int:
        """How many pods that had not ended were on a node at the beginning."""
        pods = self.start.cluster.pods_on(node)
        return sum(pod.status.phase not in TERMINAL_PHASES for pod in pods)

    def at_zero_before(self) -> set[ServedObject]:
        """The workloads that had pods at the beginning of which none served."""
        doubtful = {
            workload_of(pod)
            for pod in self.start.cluster.unsettled_pods()
            if pod.status.phase not in TERMINAL_PHASES
        }
        return {workload for workload in doubtful if not self.start.level(workload).serving}

    def _take(self, pod: Pod, before: _Judged | None) -> None:
        """Count the pod as it is now. `before`: how it was judged last."""
        meta, node = pod.metadata, pod.spec.node_name
        counted = before.counted if before is not None else self.start.counted_for(pod)
        if not node:
            self.unbound[pod.key] = None
        elif self.unbound:
            self.unbound.pop(pod.key, None)
        after = self._judge(pod, counted)
        self._judged[meta.uid] = after
        self._move(before, after)

    def _judged_before(self, pod: Pod) -> _Judged | None:
        """How the pod was judged last; None: it was not there."""
        judged = self._judged.get(pod.metadata.uid, _NOT_JUDGED)
        if judged is not _NOT_JUDGED:
            return judged
        at_start = self.start.pod(pod)
        if at_start is None:
            return None
        ready = _is_ready(at_start)
        return _Judged(self.start.counted_for(at_start), ready, ready, False)

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
        was, now = before or _NOTHING, after or _NOTHING
        ready, serving = now.ready - was.ready, now.serves - was.serves
        blind = now.blind - was.blind
        if not (ready or serving or blind) and before is not None:
            return
        either = after or before
        assert either is not None
        now_ns = self._api.now_ns
        for counted in either.counted:
            self.changed[counted] = None
            series = self._series.get(counted)
            if series is None:
                series = self._series[counted] = [self.start.level(counted)]
            last = series[-1]
            new = Level(now_ns, last.ready + ready, last.serving + serving, last.blind + blind)
            if last.at_ns == now_ns and len(series) > 1:
                series[-1] = new
            else:
                series.append(new)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._served.discard(old.uid)
            self.unbound.pop(old.key, None)
            if (judged := self._judged_before(old)) is not None:
                self._judged[old.uid] = None
                self._move(judged, None)
        if new is not None:
            self._take(new, self._judged_before(new))

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for _, new, _ in changes:
            self._take(new, self._judged_before(new))

    def _reach_changed(self, node: str, reach: Reach) -> None:
        """Called after the machine's reach has changed; what its pods were judged before still
        stands."""
        for pod in self._api.store.pods_on(node):
            judged = self._judged_before(pod)
            if reach is Reach.CUT_OFF and judged is not None and judged.serves:
                self._served.add(pod.uid)
            elif reach is Reach.OFF:
                self._served.discard(pod.uid)
            self._take(pod, judged)


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
    stays = pod.metadata.deletion_timestamp is None
    return pod.ready() and stays and pod.status.phase not in TERMINAL_PHASES


def workload_of(pod: Pod) -> ServedObject:
    """Its controller, or the pod itself."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return ServedObject(pod.namespace, "Pod", pod.name)
    return ServedObject(pod.namespace, owner.kind, owner.name)


def named_workloads(text: str, cluster: Cache) -> set[ServedObject]:
    """The workloads and Services that NAMESPACE/KIND/NAME or a selector of pods' labels means.
    Raises BadInput."""
    parts, pods = text.split("/"), cluster.pods.values()
    if len(parts) == 3 and "=" not in text:
        namespace, kind, name = parts
        every = {workload_of(pod) for pod in pods if pod.namespace == namespace}
        every |= {ServedObject(each.namespace, SERVICE, each.name) for each in cluster.all(SERVICE)}
        wanted_key = (namespace, kind.lower(), name)
        named = {w for w in every if (w.namespace, w.kind.lower(), w.name) == wanted_key}
    else:
        try:
            wanted = parse_selector(text)
        except ValueError as error:
            raise BadInput(str(error), on="--ignore") from None
        named = {workload_of(pod) for pod in pods if matches(wanted, pod.metadata.labels)}
    if not named:
        remedy = "write NAMESPACE/KIND/NAME, or a selector of pods' labels"
        raise BadInput(f"{text!r} matches no workload", on="--ignore", remedy=remedy)
    return named
