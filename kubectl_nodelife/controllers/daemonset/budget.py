"""How many nodes a rolling update may take down or double at once.

Follows `GetScaledValueFromIntOrPercent` (`apimachinery/pkg/util/intstr`) and `UnavailableCount`,
`SurgeCount` (`pkg/controller/daemon/util/daemonset_util.go`). Both percentages are rounded up.
"""

from __future__ import annotations

import re

from kubectl_nodelife.kube.workload import DaemonSet, IntOrString

ROLLING_UPDATE = "RollingUpdate"

_PERCENT = re.compile(r"^(-?[0-9]+)%$")


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
