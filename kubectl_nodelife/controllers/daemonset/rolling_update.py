"""The next step of a set's rolling update: which pods are replaced within its budget.

Follows `rollingUpdate` (`pkg/controller/daemon/update.go`), the present form and the one before
surge (below 1.21). The decision is made from what each node counts as (`NodeUpdateState`), read off
the node status index: it needs only sums and a few nodes, and the index has both, so that a step
over thousands of nodes costs as much as what it changes.

Upstream walks a map in chance order and so may take any of several equal candidates; here the
node's name decides.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from kubectl_nodelife.controllers.daemonset.memory import TrackedSet
from kubectl_nodelife.controllers.daemonset.node_status_index import (
    AVAILABLE_WITH_SURGE,
    EATS_MAX_SURGE,
    EATS_MAX_UNAVAILABLE,
    NodeStatusIndex,
    NodeUpdateState,
    OrderedNames,
    UpdateBudget,
    surge_count,
    unavailable_count,
)
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    PodToDelete,
    is_pod_available,
    is_pod_updated,
    pod_age_key,
)
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import NotAPercentage


@dataclass
class UpdateStep:
    """The next step of the rolling update; `create` holds (node, because)."""

    budget: UpdateBudget
    create: list[tuple[str, str]] = field(default_factory=list)
    delete: list[PodToDelete] = field(default_factory=list)


class UpdateImpossibleError(Exception):
    """The rolling update stops here with an error, as upstream's does."""


def budget_of(tracked: TrackedSet, desired: int) -> UpdateBudget:
    """The set's budget in nodes. Follows `updatedDesiredNodeCounts`.

    Raises UpdateImpossibleError for a value that is neither a number nor a percentage.
    """
    budget = tracked.budgets.get(desired)
    if budget is None:
        budget = tracked.budgets[desired] = effective_budget(tracked, desired)
    return budget


def plan_update(
    tracked: TrackedSet, node_index: NodeStatusIndex, revision_hash: str, now: int
) -> UpdateStep:
    """The next step of the rolling update, by a fresh index. Raises UpdateImpossibleError."""
    budget = budget_of(tracked, node_index.tally.desired)
    if not node_index.with_old:
        return UpdateStep(budget)
    if tracked.rules.classic_rolling_update:
        return replace_classic(tracked, node_index, budget, revision_hash, now)
    if budget.max_surge > 0:
        return replace_beside(tracked, node_index, budget, revision_hash)
    return replace_in_place(tracked, node_index, budget)


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


def effective_budget(tracked: TrackedSet, desired: int) -> UpdateBudget:
    """The budget with upstream's guard: both zero would never move, so one may be unavailable."""
    try:
        unavailable = unavailable_count(tracked.daemon_set, desired)
        surge = surge_count(tracked.daemon_set, desired) if tracked.rules.surge else 0
    except NotAPercentage as error:
        raise UpdateImpossibleError(f"couldn't get unavailable numbers: {error}") from None
    if tracked.rules.classic_rolling_update:
        return UpdateBudget(desired, unavailable, 0)
    if desired > 0 and unavailable == 0 and surge == 0:
        unavailable = 1
    return UpdateBudget(desired, unavailable, surge)


def _eats_unavailable(tracked: TrackedSet) -> frozenset[NodeUpdateState]:
    if tracked.rules.unavailable_old_pods_use_budget:
        return EATS_MAX_UNAVAILABLE
    return EATS_MAX_UNAVAILABLE - {NodeUpdateState.OLD_UNAVAILABLE}


def replace_in_place(
    tracked: TrackedSet, node_index: NodeStatusIndex, budget: UpdateBudget
) -> UpdateStep:
    """The step without surge: delete old pods, the unavailable ones whatever the budget."""
    step = UpdateStep(budget)
    used = node_index.count(_eats_unavailable(tracked))
    for node in sorted(node_index.nodes_by_wave[NodeUpdateState.OLD_UNAVAILABLE]):
        because = f"the old pod on {node} is not available, so replacing it costs nothing"
        step.delete.append(PodToDelete(_live_pod(tracked, node), because))
    room = budget.max_unavailable - used
    for node in _first(room, node_index.nodes_by_wave[NodeUpdateState.OLD_AVAILABLE]):
        because = (
            f"rolling update: {used} of maxUnavailable {budget.max_unavailable} in use,"
            f" the pod on {node} is of an old revision"
        )
        step.delete.append(PodToDelete(_live_pod(tracked, node), because))
    return step


def replace_beside(
    tracked: TrackedSet, node_index: NodeStatusIndex, budget: UpdateBudget, revision_hash: str
) -> UpdateStep:
    """The step with surge: the new pod is made beside the old one, which goes when it is available.

    Where there are both and the new one is available, the old one goes.
    """
    step = UpdateStep(budget)
    waves, unfit = node_index.nodes_by_wave, node_index.unfit
    old_unavailable = waves[NodeUpdateState.OLD_UNAVAILABLE]
    old_available = waves[NodeUpdateState.OLD_AVAILABLE]
    missing = node_index.strays and node_index.strays & (old_unavailable | old_available)
    if missing:
        raise UpdateImpossibleError(f'couldn\'t get node for nodeName "{min(missing)}": not found')
    both = waves[NodeUpdateState.BOTH_AVAILABLE] | waves[NodeUpdateState.BOTH_NEW_AVAILABLE]
    for node in sorted(both):
        because = f"the new pod on {node} is available"
        step.delete.append(PodToDelete(_old_pod(tracked, node, revision_hash), because))
    for node in sorted(old_unavailable & unfit):
        because = f"the old pod on {node} is not available and the node should not run one"
        step.delete.append(PodToDelete(_live_pod(tracked, node), because))
    available = node_index.count(AVAILABLE_WITH_SURGE)
    for node in sorted(old_available & unfit)[: max(0, available - budget.desired)]:
        because = f"{node} should not run a pod, and {available} are available for {budget.desired}"
        step.delete.append(PodToDelete(_live_pod(tracked, node), because))
    for node in sorted(old_unavailable - unfit):
        step.create.append((node, f"the old pod on {node} is not available: surge costs nothing"))
    used = node_index.count(EATS_MAX_SURGE)
    for node in _first(budget.max_surge - used, old_available, unfit):
        because = f"rolling update: {used} of maxSurge {budget.max_surge} in use"
        step.create.append((node, because))
    return step


def replace_classic(
    tracked: TrackedSet,
    node_index: NodeStatusIndex,
    budget: UpdateBudget,
    revision_hash: str,
    now: int,
) -> UpdateStep:
    """The step of releases before 1.21.

    All old pods that are not available go at once (terminating ones were deleted already); then
    available ones, terminating ones among them, as far as the budget allows.
    """
    step, available = UpdateStep(budget), list[tuple[str, Pod]]()
    seconds = tracked.daemon_set.spec.min_ready_seconds
    inclusive = tracked.rules.available_at_the_instant
    for node in sorted(node_index.with_old):
        for pod in sorted(tracked.pods.on_node(node) or (), key=pod_age_key):
            if _is_updated(tracked, pod, revision_hash):
                continue
            if is_pod_available(pod, seconds, now, inclusive):
                available.append((node, pod))
            elif pod.metadata.deletion_timestamp is None:
                step.delete.append(PodToDelete(pod, f"the old pod on {node} is not available"))
    num_unavailable, most = node_index.lacking_available, budget.max_unavailable
    for node, pod in available[: max(0, most - num_unavailable)]:
        num_unavailable += 1
        because = (
            f"rolling update: {num_unavailable} of maxUnavailable {most} with this one,"
            f" the pod on {node} is of an old revision"
        )
        step.delete.append(PodToDelete(pod, because))
    return step


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
