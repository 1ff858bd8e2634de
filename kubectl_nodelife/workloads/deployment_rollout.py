"""The steps of a Deployment's rolling update, as numbers: which ReplicaSet is scaled to what.

Follows pkg/controller/deployment (`rolloutRolling`, `rolloutRecreate`, `reconcileNewReplicaSet`,
`reconcileOldReplicaSets`, `cleanupUnhealthyReplicas`, `scaleDownOldReplicaSetsForRollingUpdate`),
its util (`NewRSNewReplicas`, `ResolveFenceposts`), and `ActivePodsWithRanks` of pkg/controller for
the pods that a ReplicaSet gives up first. Left out: proportional scaling while a roll-out is under
way, the progress deadline, and old ReplicaSets beyond revisionHistoryLimit, which have no pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Final, NamedTuple

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DeploymentStrategy, IntOrString

RECREATE: Final = "Recreate"
DEFAULT_SHARE: Final = "25%"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_PERCENT = re.compile(r"([0-9]+)%")
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaCount(NamedTuple):
    """A ReplicaSet of the Deployment: how many pods it is to have, and how many are available."""

    name: str
    replicas: int
    available: int


def next_step(
    wanted: int,
    strategy: DeploymentStrategy,
    new: ReplicaCount,
    old: Sequence[ReplicaCount],
    *,
    old_pods: bool,
) -> dict[str, int]:
    """The replicas that one sync gives to ReplicaSets, by name; empty where it changes nothing.

    `old`: the others, the oldest first; `old_pods`: whether any pod of theirs is still there.
    """
    if strategy.type == RECREATE:
        down = {one.name: 0 for one in old if one.replicas}
        if down or old_pods:
            return down
        return {new.name: wanted} if new.replicas != wanted else {}
    surge, unavailable = fenceposts(strategy, wanted)
    count = _new_replicas(wanted, surge, new, old)
    if count != new.replicas:
        return {new.name: count}
    return _scaled_down(wanted, unavailable, new, old)


def fenceposts(strategy: DeploymentStrategy, wanted: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers: the one is rounded up, the other down, and they are
    not both 0. Follows `ResolveFenceposts` and `MaxUnavailable`.
    """
    rolling = strategy.rolling_update
    surge = _scaled(rolling.max_surge if rolling else None, wanted, up=True)
    unavailable = _scaled(rolling.max_unavailable if rolling else None, wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def _new_replicas(wanted: int, surge: int, new: ReplicaCount, old: Sequence[ReplicaCount]) -> int:
    """Follows `reconcileNewReplicaSet` and `NewRSNewReplicas`."""
    if new.replicas >= wanted:
        return wanted
    room = wanted + surge - new.replicas - _replicas(old)
    return new.replicas + max(0, min(room, wanted - new.replicas))


def _scaled_down(
    wanted: int, unavailable: int, new: ReplicaCount, old: Sequence[ReplicaCount]
) -> dict[str, int]:
    """First the pods of old ReplicaSets that are not available, then as many of the others as may
    be missing. Follows `reconcileOldReplicaSets`.
    """
    least = wanted - unavailable
    most = _replicas(old) + new.replicas - least - (new.replicas - new.available)
    if not _replicas(old) or most <= 0:
        return {}
    cleaned, left = {}, most
    for one in old:
        count = min(left, max(0, one.replicas - one.available))
        if count:
            cleaned[one.name] = one.replicas - count
            left -= count
    lower = dict(cleaned)
    left = new.available + sum(one.available for one in old) - least
    for one in old:
        replicas = cleaned.get(one.name, one.replicas)
        count = min(replicas, max(0, left))
        if count:
            lower[one.name] = replicas - count
            left -= count
    return lower


def _replicas(sets: Iterable[ReplicaCount]) -> int:
    return sum(one.replicas for one in sets)


def _scaled(value: IntOrString | None, total: int, *, up: bool) -> int:
    """An int as it is, a percentage of `total` rounded; one that is neither counts as 0."""
    value = DEFAULT_SHARE if value is None else value
    if isinstance(value, int):
        return max(0, value)
    match = _PERCENT.fullmatch(value)
    share = int(match[1]) * total if match else 0
    return -(-share // 100) if up else share // 100


def first_to_go(pods: Iterable[Pod], related: Iterable[Pod], now_ns: int) -> list[Pod]:
    """A ReplicaSet's active pods in the order in which it gives them up.

    `related`: the active pods of all ReplicaSets of the same Deployment. Follows
    `ActivePodsWithRanks.Less`.
    """
    on_node: dict[str, int] = {}
    for pod in related:
        on_node[pod.spec.node_name] = on_node.get(pod.spec.node_name, 0) + 1

    def less(one: Pod, other: Pod) -> int:
        plain, theirs = _rank(one, on_node), _rank(other, on_node)
        if plain != theirs:
            return -1 if plain < theirs else 1
        by_uid = -1 if one.uid < other.uid else 1
        if one.ready() and other.ready() and _ready_time(one) != _ready_time(other):
            return _compare_ages(_ready_time(one), _ready_time(other), now_ns) or by_uid
        if _restarts(one) != _restarts(other):
            return _restarts(other) - _restarts(one)
        created = one.metadata.creation_timestamp, other.metadata.creation_timestamp
        return _compare_ages(*created, now_ns) or by_uid

    return sorted(pods, key=cmp_to_key(less))


def _rank(pod: Pod, on_node: dict[str, int]) -> tuple[int, ...]:
    """What counts before ages: unbound, by phase, not Ready, the deletion cost, doubled up."""
    cost = (pod.metadata.annotations or {}).get(POD_DELETION_COST, "0")
    return (
        int(bool(pod.spec.node_name)),
        _PHASES.get(pod.status.phase, 0),
        int(pod.ready()),
        int(cost) if cost.lstrip("-").isdecimal() else 0,
        -on_node.get(pod.spec.node_name, 0) if pod.spec.node_name else 0,
    )


def _ready_time(pod: Pod) -> Time | None:
    ready = pod.status.condition("Ready")
    return ready.last_transition_time if ready is not None else None


def _restarts(pod: Pod) -> int:
    """Follows `compareMaxContainerRestarts`, init containers left out."""
    return max((s.restart_count for s in pod.status.container_statuses or ()), default=0)


def _compare_ages(one: Time | None, other: Time | None, now_ns: int) -> int:
    """The younger first, by the logarithm of the ages: pods of about the same age are alike. What
    has no time goes before. Follows `logarithmicRankDiff`.
    """
    if one is None or other is None:
        return (one is not None) - (other is not None)
    return max(0, now_ns - one).bit_length() - max(0, now_ns - other).bit_length()
