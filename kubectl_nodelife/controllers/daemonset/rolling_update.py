"""Which pods a rolling update replaces next, how many nodes it may take down or double at once, and
which nodes eat that budget.

Follows `rollingUpdate` and `findUpdatedPodsOnNode` (`pkg/controller/daemon/update.go`), the present
form and the one before surge (below 1.21). The decision is made from what each node counts as
(`NodeUpdateState`), so that thousands of unchanged nodes need not be looked at again.

Upstream walks a map in chance order and so may take any of several equal candidates; here the
node's name decides.

The budget follows `GetScaledValueFromIntOrPercent` (`apimachinery/pkg/util/intstr`) and
`UnavailableCount`, `SurgeCount` (`pkg/controller/daemon/util/daemonset_util.go`). Both percentages
are rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kubectl_nodelife.controllers.daemonset.pods_on_node import PodToDelete
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet, IntOrString

ROLLING_UPDATE = "RollingUpdate"
_PERCENT = re.compile(r"^(-?[0-9]+)%$")


class NodeUpdateState(Enum):
    """The state of a node's pods in a rolling update; terminating pods are not looked at."""

    NONE = "no pod that stays"
    EXCESS = "too many pods of one version"
    NEW_AVAILABLE = "new pod available"
    NEW_UNAVAILABLE = "new pod not available"
    OLD_AVAILABLE = "old pod available"
    OLD_UNAVAILABLE = "old pod not available"
    BOTH_OLD_AVAILABLE = "both, new pod not available, old one available"
    BOTH_NEW_AVAILABLE = "both, new pod available, old one not"
    BOTH_AVAILABLE = "both available"
    BOTH_UNAVAILABLE = "both, neither available"


EATS_MAX_UNAVAILABLE = frozenset(NodeUpdateState) - {
    NodeUpdateState.NEW_AVAILABLE,
    NodeUpdateState.OLD_AVAILABLE,
}
"""States that count against maxUnavailable without surge (below 1.30 OLD_UNAVAILABLE did not)."""

EATS_MAX_SURGE = frozenset(
    {NodeUpdateState.EXCESS, NodeUpdateState.BOTH_OLD_AVAILABLE, NodeUpdateState.BOTH_UNAVAILABLE}
)
"""States that count against maxSurge."""

AVAILABLE_WITH_SURGE = frozenset(
    {
        NodeUpdateState.NEW_AVAILABLE,
        NodeUpdateState.OLD_AVAILABLE,
        NodeUpdateState.BOTH_OLD_AVAILABLE,
        NodeUpdateState.BOTH_AVAILABLE,
    }
)
"""Nodes with an available pod; where both versions stand, it is the old one that is asked."""

_BOTH = {
    (False, False): NodeUpdateState.BOTH_UNAVAILABLE,
    (False, True): NodeUpdateState.BOTH_OLD_AVAILABLE,
    (True, False): NodeUpdateState.BOTH_NEW_AVAILABLE,
    (True, True): NodeUpdateState.BOTH_AVAILABLE,
}


def node_update_state(new: Sequence[bool], old: Sequence[bool]) -> NodeUpdateState:
    """The state of a node; `new` and `old` have for each pod of that version if it is available.

    Terminating pods are left out by the caller. Follows `findUpdatedPodsOnNode`.
    """
    if len(new) > 1 or len(old) > 1:
        return NodeUpdateState.EXCESS
    if new and old:
        return _BOTH[new[0], old[0]]
    if new:
        return NodeUpdateState.NEW_AVAILABLE if new[0] else NodeUpdateState.NEW_UNAVAILABLE
    if old:
        return NodeUpdateState.OLD_AVAILABLE if old[0] else NodeUpdateState.OLD_UNAVAILABLE
    return NodeUpdateState.NONE


@dataclass(frozen=True)
class UpdateBudget:
    """maxUnavailable and maxSurge in nodes, and the number of nodes that should run a pod."""

    desired: int
    max_unavailable: int
    max_surge: int

    @property
    def limit(self) -> tuple[int, str]:
        """To how many nodes at once the update goes, and the name of what says so: maxSurge where
        it is above zero."""
        if self.max_surge:
            return self.max_surge, "maxSurge"
        return self.max_unavailable, "maxUnavailable"


@dataclass
class UpdateStep:
    """The next step of the rolling update; `create` holds (node, because)."""

    budget: UpdateBudget
    create: list[tuple[str, str]] = field(default_factory=list)
    delete: list[PodToDelete] = field(default_factory=list)


def effective_budget(desired: int, max_unavailable: int, max_surge: int) -> UpdateBudget:
    """The budget with upstream's guard: both zero would never move, so one may be unavailable."""
    if desired > 0 and max_unavailable == 0 and max_surge == 0:
        max_unavailable = 1
    return UpdateBudget(desired, max_unavailable, max_surge)


def replace_in_place(
    budget: UpdateBudget,
    used: int,
    old_unavailable: Sequence[tuple[str, Pod]],
    old_available: Sequence[tuple[str, Pod]],
) -> UpdateStep:
    """The step without surge: delete old pods, the unavailable ones whatever the budget.

    `used`: nodes that count as unavailable. Both lists are (node, its old pod) in the order in
    which they are to be taken.
    """
    step = UpdateStep(budget)
    for node, pod in old_unavailable:
        because = f"the old pod on {node} is not available, so replacing it costs nothing"
        step.delete.append(PodToDelete(pod, because))
    remaining = max(0, budget.max_unavailable - used)
    for node, pod in old_available[:remaining]:
        because = (
            f"rolling update: {used} of maxUnavailable {budget.max_unavailable} in use,"
            f" the pod on {node} is of an old revision"
        )
        step.delete.append(PodToDelete(pod, because))
    return step


@dataclass(frozen=True)
class SurgeNodes:
    """The nodes that the surge rules act on, each list in the order in which it is taken."""

    superseded: Sequence[tuple[str, Pod]]
    """both pods, the new one available: its old pod goes"""
    old_unavailable_unfit: Sequence[tuple[str, Pod]]
    old_available_unfit: Sequence[tuple[str, Pod]]
    old_unavailable: Sequence[str]
    old_available: Sequence[str]


def replace_beside(
    budget: UpdateBudget, used: int, available: int, nodes: SurgeNodes
) -> UpdateStep:
    """The step with surge: the new pod is made beside the old one, which goes when it is available.

    `used`: nodes that eat maxSurge; `available`: see AVAILABLE_WITH_SURGE.
    """
    step = UpdateStep(budget)
    for node, pod in nodes.superseded:
        because = f"the new pod on {node} is available"
        step.delete.append(PodToDelete(pod, because))
    for node, pod in nodes.old_unavailable_unfit:
        because = f"the old pod on {node} is not available and the node should not run one"
        step.delete.append(PodToDelete(pod, because))
    spare = max(0, available - budget.desired)
    for node, pod in nodes.old_available_unfit[:spare]:
        because = f"{node} should not run a pod, and {available} are available for {budget.desired}"
        step.delete.append(PodToDelete(pod, because))
    for node in nodes.old_unavailable:
        step.create.append((node, f"the old pod on {node} is not available: surge costs nothing"))
    for node in nodes.old_available[: max(0, budget.max_surge - used)]:
        because = f"rolling update: {used} of maxSurge {budget.max_surge} in use"
        step.create.append((node, because))
    return step


def replace_classic(
    budget: UpdateBudget,
    num_unavailable: int,
    old_unavailable: Sequence[tuple[str, Pod]],
    old_available: Sequence[tuple[str, Pod]],
) -> UpdateStep:
    """The step of releases before 1.21.

    All old pods that are not available go at once (terminating ones were deleted already); then
    available ones, terminating ones among them, as far as the budget allows.
    """
    step = UpdateStep(budget)
    max_unavailable = budget.max_unavailable
    for node, pod in old_unavailable:
        if pod.metadata.deletion_timestamp is None:
            step.delete.append(PodToDelete(pod, f"the old pod on {node} is not available"))
    for node, pod in old_available:
        if num_unavailable >= max_unavailable:
            break
        num_unavailable += 1
        because = (
            f"rolling update: {num_unavailable} of maxUnavailable {max_unavailable} with this one,"
            f" the pod on {node} is of an old revision"
        )
        step.delete.append(PodToDelete(pod, because))
    return step


class InvalidBudgetError(ValueError):
    """maxUnavailable or maxSurge is neither an integer nor a percentage."""


def scaled_value(value: IntOrString, total: int) -> int:
    """The value itself, or the percentage of `total` rounded up.

    Raises InvalidBudgetError for a string that is not a percentage.
    """
    if isinstance(value, int):
        return value
    match = _PERCENT.match(value)
    if match is None:
        raise InvalidBudgetError(f"invalid value for IntOrString: {value!r} is not a percentage")
    return -(-int(match.group(1)) * total // 100)


def unavailable_count(daemon_set: DaemonSet, desired: int) -> int:
    """maxUnavailable for `desired` nodes; 0 unless the strategy is a rolling update."""
    rolling = _rolling_update(daemon_set)
    if rolling is None or rolling.max_unavailable is None:
        return 0
    return scaled_value(rolling.max_unavailable, desired)


def surge_count(daemon_set: DaemonSet, desired: int) -> int:
    """maxSurge for `desired` nodes; 0 unless the strategy is a rolling update."""
    rolling = _rolling_update(daemon_set)
    if rolling is None or rolling.max_surge is None:
        return 0
    return scaled_value(rolling.max_surge, desired)


def allows_surge(daemon_set: DaemonSet) -> bool:
    """True if maxSurge is above zero for a single node. Follows `AllowsSurge`.

    A value that is neither a number nor a percentage allows none.
    """
    try:
        return surge_count(daemon_set, 1) > 0
    except InvalidBudgetError:
        return False


def _rolling_update(daemon_set: DaemonSet):  # type: ignore[no-untyped-def]
    strategy = daemon_set.spec.update_strategy
    return strategy.rolling_update if strategy.type == ROLLING_UPDATE else None
