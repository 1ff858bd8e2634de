"""How much and how fast at most: caps of the guard, and each controller's requests a second."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.engine.guard import UPSTREAM, Caps
from kubectl_nodelife.engine.settings import Settings

QPS: Final = 200.0
BURST: Final = 400


def client_rate(settings: Settings) -> tuple[float, int]:
    """Requests a second and at once, of each controller: ours, unless the user set upstream's."""
    given = {n for n in ("kube-api-qps", "kube-api-burst") if settings.origins.get(n) == "--set"}
    qps = float(settings.flags["kube-api-qps"]) if "kube-api-qps" in given else QPS
    burst = int(settings.flags["kube-api-burst"]) if "kube-api-burst" in given else BURST
    return qps, burst


def caps_of(orders: Orders) -> Caps:
    """The caps that the user asked for. `NAME=N` of a single cap: see `_CAP_NAMES`."""
    caps = UPSTREAM if orders.caps == "upstream" else Caps()
    for text in orders.single_caps:
        name, _, value = text.partition("=")
        caps = replace(caps, **{_CAP_NAMES[name]: int(value)})
    return replace(caps, total=orders.max_writes)


_CAP_NAMES: Final = {
    "taints-per-minute": "taints_a_minute",
    "deletions-per-minute": "deletions_a_minute",
}
