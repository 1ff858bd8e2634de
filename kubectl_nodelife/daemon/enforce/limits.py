"""The limits on writes of enforce mode: caps of the guard, and each controller's client QPS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.budget import (
    InvalidBudgetError,
    surge_count,
    unavailable_count,
)
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import UPSTREAM, Caps
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.workload import DaemonSet

QPS: Final = 200.0
BURST: Final = 400


CAPS: Final[Mapping[str, tuple[str, bool]]] = {
    "taints-per-minute": ("taints_a_minute", False),
    "deletions-per-minute": ("deletions_a_minute", False),
    "zone-percent": ("zone_share", True),
    "cluster-percent": ("cluster_share", True),
    "daemonset-deletions-per-minute": ("set_deletions_a_minute", False),
    "nodes-gone-percent": ("nodes_gone_share", True),
    "errors-of-ten": ("errors", False),
}
"""Name of a cap on the command line -> its field of Caps, and whether it is given in percent."""


def client_rate(settings: Settings) -> tuple[float, int]:
    """Requests a second and at once, of each controller: ours, unless the user set upstream's."""
    given = {n for n in ("kube-api-qps", "kube-api-burst") if settings.origins.get(n) == "--set"}
    qps = float(settings.flags["kube-api-qps"]) if "kube-api-qps" in given else QPS
    burst = int(settings.flags["kube-api-burst"]) if "kube-api-burst" in given else BURST
    return qps, burst


def daemon_set_syncs(settings: Settings) -> int:
    """How many DaemonSets have writes on their way at once."""
    return int(settings.flags["concurrent-daemonset-syncs"])


def caps_of(orders: Orders) -> Caps:
    """The caps that the user asked for; `NAME=N` of a single cap: see `CAPS`."""
    caps = UPSTREAM if orders.caps == "upstream" else Caps()
    for text in orders.single_caps:
        name, _, value = text.partition("=")
        field, in_percent = CAPS[name]
        caps = replace(caps, **{field: int(value) / 100 if in_percent else int(value)})
        if field == "set_deletions_a_minute":
            caps = replace(caps, set_deletions_by_budget=False)
    return replace(caps, total=orders.max_writes)


def set_of(cache: Cache) -> Callable[[DeletePod], tuple[str, int]]:
    """For the guard: a daemon pod's set, and how many of its pods an update may take down."""

    def found(action: DeletePod) -> tuple[str, int]:
        pod = cache.pods.get(action.target[1])
        owner = controller_of(pod.metadata) if pod is not None else None
        if pod is None or owner is None:
            return "", 0
        daemon_set = cache.get("DaemonSet", (pod.namespace, owner.name))
        if not isinstance(daemon_set, DaemonSet):
            return owner.uid, 0
        desired = daemon_set.status.desired_number_scheduled
        try:
            down, surge = unavailable_count(daemon_set, desired), surge_count(daemon_set, desired)
        except InvalidBudgetError:
            return owner.uid, 0
        return owner.uid, max(down, surge)

    return found
