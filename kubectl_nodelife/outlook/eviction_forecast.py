"""Predicts when a pod of a lost node is deleted: by which toleration, or by the older eviction
without taints.

Follows the rules of the taint-eviction controller (first matching toleration for each taint, the
shortest of those counts), also for taints that the node does not have yet.

The older eviction follows `processNoTaintBaseEviction` and `DeletePods` of v1.16's
pkg/controller/nodelifecycle: a node that is False or Unknown for pod-eviction-timeout is queued,
its zone's limiter lets the queue go on, and all pods are deleted but those of DaemonSets. No
toleration counts.

When their time ends, pods are deleted at the pace of one client: taint-eviction deletes all pods of
all nodes through one client, of which each pod takes some requests: thirty whose time ends together
are gone seconds later, three thousand minutes. A pod whose time is over is not late while the
controller is seen at work: its newest write is a moment ago, and the client's pace explains the
rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.eviction import belongs_to_daemon_set
from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.pace import FASTER_QPS, Pace
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import RateLimitedTimedQueue
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod, Toleration, is_daemon_pod
from kubectl_nodelife.kube.taints import (
    find_matching_untolerated_taint,
    matching_tolerations,
    min_toleration_seconds,
)
from kubectl_nodelife.kube.times import SECOND_NS, format_time

MOMENT_NS: Final = 10 * SECOND_NS
"""A controller whose newest write is no older is at work."""

PACED_NS: Final = SECOND_NS
"""So much later than due a deletion must come before the pace of the client is told."""

_MARK: Final = "DeletionByTaintManager"


class EvictionTimer(msgspec.Struct, frozen=True):
    """A pod's pending deletion: when it is due (ns since the epoch), what the pod tolerates, and
    when the deletion comes at the pace of its controller's client.
    """

    namespace: str
    name: str
    due_ns: int
    toleration_seconds: int
    comes_ns: int


class PacedDeletions(NamedTuple):
    """By node: pods that wait, those that should have been deleted, and when the last one is gone
    if the clients are faster than is assumed."""

    timers: Mapping[str, list[EvictionTimer]]
    overdue: Mapping[str, list[EvictionTimer]]
    sooner: Mapping[str, int] = MappingProxyType({})


def paced_deletions(
    timers: Mapping[str, list[EvictionTimer]],
    overdue: Mapping[str, list[EvictionTimer]],
    cache: Cache,
    pace: Pace | None,
    now_ns: int,
) -> PacedDeletions:
    """The pods of all tainted nodes, by node, with the instants at which their deletions come; what
    is overdue waits as well, where its controller is at work.
    """
    if pace is None:
        return PacedDeletions(timers, overdue)
    late = [timer for each in overdue.values() for timer in each]
    if late and not is_at_work((pod for name in timers for pod in cache.pods_on(name)), now_ns):
        late = []
    begun = [(t, is_marked(cache.pod(t.namespace, t.name))) for t in late]
    waiting = [timer for each in timers.values() for timer in each]
    if late:
        timers = {name: [*overdue[name], *each] for name, each in timers.items()}
        overdue = {}
    comes = comes_at(waiting, begun, pace, now_ns)
    paced = {name: _at(each, comes) for name, each in timers.items()}
    if pace.is_seen or pace.qps >= FASTER_QPS:
        return PacedDeletions(paced, overdue)
    sooner = comes_at(waiting, begun, pace.at(FASTER_QPS), now_ns)
    last_ns = {name: max(sooner[key_of(t)] for t in each) for name, each in paced.items() if each}
    return PacedDeletions(paced, overdue, last_ns)


def key_of(timer: EvictionTimer) -> Key:
    """Namespace and name of its pod."""
    return timer.namespace, timer.name


def _at(timers: Sequence[EvictionTimer], comes: Mapping[Key, int]) -> list[EvictionTimer]:
    """The timers with the instants at which the deletions come, the first one first."""
    paced = [replace(timer, comes_ns=comes[key_of(timer)]) for timer in timers]
    return sorted(paced, key=lambda t: (t.comes_ns, t.due_ns, t.namespace, t.name))


def clock_time(at_ns: int) -> str:
    """`10:31:05`."""
    return format_time(at_ns).partition("T")[2][:8]


def is_marked(pod: Pod | None) -> bool:
    """True if taint-eviction has announced the deletion of the pod on it."""
    target = pod.status.condition(wellknown.DISRUPTION_TARGET) if pod is not None else None
    return target is not None and target.status == wellknown.TRUE and target.reason == _MARK


def is_at_work(pods: Iterable[Pod], now_ns: int) -> bool:
    """True if taint-eviction has written to one of these pods a moment ago."""
    marks = (pod.status.condition(wellknown.DISRUPTION_TARGET) for pod in pods if is_marked(pod))
    written = (mark.last_transition_time for mark in marks if mark is not None)
    return any(at_ns is not None and now_ns - at_ns <= MOMENT_NS for at_ns in written)


def comes_at(
    waiting: Iterable[EvictionTimer],
    late: Iterable[tuple[EvictionTimer, bool]],
    pace: Pace,
    now_ns: int,
) -> dict[Key, int]:
    """When each of the pods is deleted. `late`: those whose time is over and whose controller is at
    work, each with whether it is marked.
    """
    whole = pace.requests_a_deletion
    turns = [(pod.due_ns, whole, key_of(pod)) for pod in waiting]
    over = [(now_ns, 1 if marked else whole, key_of(pod)) for pod, marked in late]
    turns = sorted([*over, *turns], key=lambda turn: turn[0])
    ends_ns = pace.deletions_ns([turn[:2] for turn in turns], idle=not over)
    return {key: end_ns for (_, _, key), end_ns in zip(turns, ends_ns, strict=True)}


LOST = (
    Taint(key=wellknown.TAINT_NODE_UNREACHABLE, effect=wellknown.NO_EXECUTE),
    Taint(key=wellknown.TAINT_NODE_NOT_READY, effect=wellknown.NO_EXECUTE),
)
_DEFAULT_GRACE_SECONDS = 30


class EvictionForecast(msgspec.Struct, frozen=True):
    """`after_seconds`:

    from the taint to the deletion; 0: at once; None: never. `because`: which rule.
    """

    after_seconds: int | None
    because: str


def eviction_forecast(
    pod: Pod, taints: Sequence[Taint], *, comparison_operators: bool = False
) -> EvictionForecast:
    """When these NoExecute taints delete the pod, if ever, and why then."""
    if not taints:
        return EvictionForecast(None, "there is no NoExecute taint")
    tolerations = pod.spec.tolerations
    untolerated = find_matching_untolerated_taint(
        taints, tolerations, comparison_operators=comparison_operators
    )
    if untolerated is not None:
        return EvictionForecast(0, f"it does not tolerate {untolerated}")
    _, used = matching_tolerations(taints, tolerations, comparison_operators=comparison_operators)
    seconds = min_toleration_seconds(used)
    if seconds is None:
        return EvictionForecast(None, f"it tolerates that for ever ({describe(used[0])})")
    limited = (t for t in used if t.toleration_seconds is not None)
    shortest = min(limited, key=lambda toleration: toleration.toleration_seconds or 0)
    return EvictionForecast(seconds, f"it tolerates that for {seconds}s ({describe(shortest)})")


def eviction_due(taints: Sequence[Taint], forecast: EvictionForecast) -> int | None:
    """When these NoExecute taints have a pod deleted of which that is foreseen; None: never, or
    since when the taints are there is not known."""
    times = [taint.time_added for taint in taints]
    if forecast.after_seconds is None or not times or None in times:
        return None
    return min(int(t) for t in times if t is not None) + forecast.after_seconds * SECOND_NS


def describe(toleration: Toleration) -> str:
    """A toleration in a few words, as a user would look for it in the pod."""
    key = toleration.key or "every key"
    operator = toleration.operator or "Equal"
    value = f" {toleration.value}" if toleration.value else ""
    effect = toleration.effect or "every effect"
    seconds = toleration.toleration_seconds
    limit = "" if seconds is None else f", tolerationSeconds {seconds}"
    return f"toleration {key} {operator}{value}, {effect}{limit}"


def termination_grace_seconds(pod: Pod) -> int:
    """The pod's grace period, the API's default where it says none."""
    grace = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE_SECONDS if grace is None else grace


class ClassicEviction(msgspec.Struct, frozen=True):
    """One node's way to the eviction of its pods.

    `clock`: what pod-eviction-timeout is counted from. `left`: until a monitor pass finds it over
    and queues the node; for a Ready node, if it fell silent now. None: the clock is not known, or
    the node is queued or evicted already. `evicted`: its turn in the queue has come. `first_to_go`:
    namespace and name of the first pod that the turn of a lost node deletes.
    """

    timeout_ns: int
    clock: str
    left: Range | None
    evicted: bool
    first_to_go: tuple[str, str] | None


def classic_eviction(
    node: Node,
    health: NodeHealth | None,
    probe_ns: int | None,
    queue: RateLimitedTimedQueue | None,
    cache: Cache,
    settings: Settings,
    now_ns: int,
) -> ClassicEviction:
    """The clock that v1.16 reads for the node. `probe_ns`: its last sign of life, None: unknown."""
    ready = node.ready()
    status = ready.status if ready is not None else ""
    reported, left = status == "False", None
    clock = "Ready turned False" if reported else "its last sign of life"
    since_ns = health.ready_transition_ns if health is not None and reported else probe_ns
    queued = queue is not None and node.name in queue
    if since_ns is not None and not queued:
        left = _left(status, since_ns, settings, now_ns)
    evicted = queued and queue is not None and not queue.is_waiting(node.name)
    lost = ready is not None and status != "True"
    first = _first_to_go(cache.pods_on(node.name), cache) if lost else None
    return ClassicEviction(settings.pod_eviction_timeout_ns, clock, left, evicted, first)


def _left(status: str, since_ns: int, settings: Settings, now_ns: int) -> Range:
    """A node that is Ready must be called lost before, and then be seen Unknown by a pass."""
    period_ns, timeout_ns = settings.node_monitor_period_ns, settings.pod_eviction_timeout_ns
    low_ns, high_ns = since_ns + timeout_ns, since_ns + timeout_ns + period_ns
    if status not in ("False", "Unknown"):
        startup_ns = settings.node_startup_grace_period_ns
        lost_ns = since_ns + (settings.node_monitor_grace_period_ns if status else startup_ns)
        low_ns, high_ns = max(low_ns, lost_ns + period_ns), max(high_ns, lost_ns + 2 * period_ns)
    return Range(max(0, low_ns - now_ns), max(0, high_ns - now_ns))


def is_left_out(pod: Pod, cache: Cache) -> bool:
    """True if the pod is a DaemonSet's, which the eviction leaves where it is.

    Upstream asks the selectors of all DaemonSets; where none were read the pod's owner decides.
    """
    if belongs_to_daemon_set(pod, cache):
        return True
    return is_daemon_pod(pod) and not any(cache.all("DaemonSet"))


def _first_to_go(pods: Iterable[Pod], cache: Cache) -> tuple[str, str] | None:
    """The first pod, by name, that the eviction would delete."""
    there = (pod for pod in pods if pod.metadata.deletion_timestamp is None)
    return min((pod.key for pod in there if not is_left_out(pod, cache)), default=None)


class Range(msgspec.Struct, frozen=True):
    """Some time from now, in ns: at the earliest and at the latest."""

    low_ns: int
    high_ns: int

    @property
    def middle_ns(self) -> int:
        """Where to place it if one instant is asked for."""
        return (self.low_ns + self.high_ns) // 2
