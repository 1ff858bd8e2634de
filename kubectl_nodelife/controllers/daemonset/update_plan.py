"""Plans the next step of a set's rolling update, read off the node status index.

The counting of `rolling_update.py` needs only sums and a few nodes, and the index has both, so
that a step over thousands of nodes costs as much as what it changes.
"""

from __future__ import annotations

from collections.abc import Set

from kubectl_nodelife.controllers.daemonset.memory import TrackedSet
from kubectl_nodelife.controllers.daemonset.node_status_index import NodeStatusIndex, OrderedNames
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    is_pod_available,
    is_pod_updated,
    pod_age_key,
)
from kubectl_nodelife.controllers.daemonset.rolling_update import (
    AVAILABLE_WITH_SURGE,
    EATS_MAX_SURGE,
    EATS_MAX_UNAVAILABLE,
    InvalidBudgetError,
    NodeUpdateState,
    SurgeNodes,
    UpdateBudget,
    UpdateStep,
    effective_budget,
    replace_beside,
    replace_classic,
    replace_in_place,
    surge_count,
    unavailable_count,
)
from kubectl_nodelife.kube.pod import Pod


class UpdateImpossibleError(Exception):
    """The rolling update stops here with an error, as upstream's does."""


def budget_of(tracked: TrackedSet, desired: int) -> UpdateBudget:
    """The set's budget in nodes. Follows `updatedDesiredNodeCounts`.

    Raises UpdateImpossibleError for a value that is neither a number nor a percentage.
    """
    budget = tracked.budgets.get(desired)
    if budget is None:
        budget = tracked.budgets[desired] = _budget_of(tracked, desired)
    return budget


def _budget_of(tracked: TrackedSet, desired: int) -> UpdateBudget:
    try:
        unavailable = unavailable_count(tracked.daemon_set, desired)
        surge = surge_count(tracked.daemon_set, desired) if tracked.rules.surge else 0
    except InvalidBudgetError as error:
        raise UpdateImpossibleError(f"couldn't get unavailable numbers: {error}") from None
    if tracked.rules.classic_rolling_update:
        return UpdateBudget(desired, unavailable, 0)
    return effective_budget(desired, unavailable, surge)


def plan_update(
    tracked: TrackedSet, node_index: NodeStatusIndex, revision_hash: str, now: int
) -> UpdateStep:
    """The next step of the rolling update, by a fresh index. Raises UpdateImpossibleError."""
    budget = budget_of(tracked, node_index.tally.desired)
    if not node_index.with_old:
        return UpdateStep(budget)
    if tracked.rules.classic_rolling_update:
        return _classic(tracked, node_index, budget, revision_hash, now)
    if budget.max_surge > 0:
        return _beside(tracked, node_index, budget, revision_hash)
    return _in_place(tracked, node_index, budget)


def nodes_using_budget(
    tracked: TrackedSet, node_index: NodeStatusIndex, budget: UpdateBudget
) -> dict[str, NodeUpdateState]:
    """The nodes that eat maxUnavailable (or maxSurge), with what each counts as, in name order."""
    eating = EATS_MAX_SURGE if budget.max_surge > 0 else _eats_unavailable(tracked)
    uses = {
        name: wave
        for wave, names in node_index.nodes_by_wave.items()
        if wave in eating
        for name in names
    }
    return dict(sorted(uses.items()))


def _eats_unavailable(tracked: TrackedSet) -> frozenset[NodeUpdateState]:
    if tracked.rules.unavailable_old_pods_use_budget:
        return EATS_MAX_UNAVAILABLE
    return EATS_MAX_UNAVAILABLE - {NodeUpdateState.OLD_UNAVAILABLE}


def _in_place(tracked: TrackedSet, node_index: NodeStatusIndex, budget: UpdateBudget) -> UpdateStep:
    used = node_index.count(_eats_unavailable(tracked))
    unavailable = sorted(node_index.nodes_by_wave[NodeUpdateState.OLD_UNAVAILABLE])
    room = max(0, budget.max_unavailable - used)
    available = _first(room, node_index.nodes_by_wave[NodeUpdateState.OLD_AVAILABLE])
    return replace_in_place(
        budget,
        used,
        [(node, _live_pod(tracked, node)) for node in unavailable],
        [(node, _live_pod(tracked, node)) for node in available],
    )


def _beside(
    tracked: TrackedSet, node_index: NodeStatusIndex, budget: UpdateBudget, revision_hash: str
) -> UpdateStep:
    old_unavailable = node_index.nodes_by_wave[NodeUpdateState.OLD_UNAVAILABLE]
    old_available = node_index.nodes_by_wave[NodeUpdateState.OLD_AVAILABLE]
    missing = node_index.strays and node_index.strays & (old_unavailable | old_available)
    if missing:
        raise UpdateImpossibleError(f'couldn\'t get node for nodeName "{min(missing)}": not found')
    unfit = node_index.unfit
    used = node_index.count(EATS_MAX_SURGE)
    superseded = (
        node_index.nodes_by_wave[NodeUpdateState.BOTH_AVAILABLE]
        | node_index.nodes_by_wave[NodeUpdateState.BOTH_NEW_AVAILABLE]
    )
    nodes = SurgeNodes(
        [(n, _old_pod(tracked, n, revision_hash)) for n in sorted(superseded)],
        [(n, _live_pod(tracked, n)) for n in sorted(old_unavailable & unfit)],
        [(n, _live_pod(tracked, n)) for n in sorted(old_available & unfit)],
        sorted(old_unavailable - unfit),
        _first(max(0, budget.max_surge - used), old_available, unfit),
    )
    available = node_index.count(AVAILABLE_WITH_SURGE)
    return replace_beside(budget, used, available, nodes)


def _classic(
    tracked: TrackedSet,
    node_index: NodeStatusIndex,
    budget: UpdateBudget,
    revision_hash: str,
    now: int,
) -> UpdateStep:
    available: list[tuple[str, Pod]] = []
    unavailable: list[tuple[str, Pod]] = []
    for node in sorted(node_index.with_old):
        for pod in sorted(tracked.pods.on_node(node) or (), key=pod_age_key):
            if _is_updated(tracked, pod, revision_hash):
                continue
            seconds = tracked.daemon_set.spec.min_ready_seconds
            inclusive = tracked.rules.available_at_the_instant
            is_available = is_pod_available(pod, seconds, now, inclusive)
            (available if is_available else unavailable).append((node, pod))
    return replace_classic(budget, node_index.lacking_available, unavailable, available)


def _is_updated(tracked: TrackedSet, pod: Pod, revision_hash: str) -> bool:
    counts = tracked.rules.generation_label_counts
    return is_pod_updated(pod.metadata.labels, revision_hash, tracked.generation, counts)


def _live_pods(tracked: TrackedSet, node: str) -> list[Pod]:
    pods = tracked.pods.on_node(node) or ()
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]


def _live_pod(tracked: TrackedSet, node: str) -> Pod:
    """The one pod of a node with a single version."""
    return _live_pods(tracked, node)[0]


def _old_pod(tracked: TrackedSet, node: str, revision_hash: str) -> Pod:
    """The old pod of a node with both versions."""
    live = _live_pods(tracked, node)
    return next(pod for pod in live if not _is_updated(tracked, pod, revision_hash))


def _first(count: int, names: OrderedNames, without: Set[str] = frozenset()) -> list[str]:
    """The first names in order, at most `count`: upstream takes them as a map's order has them."""
    return names.first(count, without) if count > 0 else []
