"""Predicts when the taint-eviction controller deletes a pod, by which toleration.

Follows the controller's rules (first matching toleration for each taint, the shortest of those
counts), also for taints that the node does not have yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, Toleration
from kubectl_nodelife.kube.taints import (
    find_matching_untolerated_taint,
    matching_tolerations,
    min_toleration_seconds,
)
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE

LOST = (
    Taint(key=TAINT_NODE_UNREACHABLE, effect=NO_EXECUTE),
    Taint(key=TAINT_NODE_NOT_READY, effect=NO_EXECUTE),
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
    shortest = next(t for t in used if t.toleration_seconds is not None)
    for toleration in used:
        if toleration.toleration_seconds is not None and (
            toleration.toleration_seconds < (shortest.toleration_seconds or 0)
        ):
            shortest = toleration
    return EvictionForecast(seconds, f"it tolerates that for {seconds}s ({describe(shortest)})")


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
