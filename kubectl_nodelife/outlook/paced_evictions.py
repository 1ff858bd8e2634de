"""When pods whose time under a NoExecute taint ends are deleted: at the pace of one client.

taint-eviction deletes all pods of all nodes through one client, of which each pod takes some
requests: thirty whose time ends together are gone seconds later, three thousand minutes. A pod
whose time is over is not late while the controller is seen at work: its newest write is a moment
ago, and the client's pace explains the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.pace import FASTER_QPS, Pace
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import DISRUPTION_TARGET, TRUE

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
    target = pod.status.condition(DISRUPTION_TARGET) if pod is not None else None
    return target is not None and target.status == TRUE and target.reason == _MARK


def is_at_work(pods: Iterable[Pod], now_ns: int) -> bool:
    """True if taint-eviction has written to one of these pods a moment ago."""
    marks = (pod.status.condition(DISRUPTION_TARGET) for pod in pods if is_marked(pod))
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
