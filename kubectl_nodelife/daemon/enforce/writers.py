"""The writers of the enforcing controllers: each has a client, a token bucket, Events and limits.

The limits are the caps of the guard and each controller's client QPS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.rolling_update import (
    InvalidBudgetError,
    surge_count,
    unavailable_count,
)
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.settings import EMPTY_CONFIG, ClusterConfig
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import CAP_NAMES, UPSTREAM, Caps
from kubectl_nodelife.engine.pace import ENFORCED_BURST, ENFORCED_QPS
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.live.clock import ServerClock
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import ControllerWriter
from kubectl_nodelife.live.writer import Writer, WritingSession


def client_rate(settings: Settings) -> tuple[float, int]:
    """Requests a second and at once, of each controller: ours, unless the user set upstream's."""
    given = {n for n in ("kube-api-qps", "kube-api-burst") if settings.origins.get(n) == "--set"}
    qps = float(settings.flags["kube-api-qps"]) if "kube-api-qps" in given else ENFORCED_QPS
    burst = int(settings.flags["kube-api-burst"]) if "kube-api-burst" in given else ENFORCED_BURST
    return qps, burst


def daemon_set_syncs(settings: Settings) -> int:
    """How many DaemonSets have writes on their way at once."""
    return int(settings.flags["concurrent-daemonset-syncs"])


def caps_of(orders: Orders, section: ClusterConfig = EMPTY_CONFIG) -> Caps:
    """The caps that the user asked for: flags before what the config file says of the cluster, none
    of which counts beside `--caps=upstream`. `NAME=N` of a single cap: see `CAP_NAMES`.
    """
    upstream = orders.caps == "upstream"
    given = {} if upstream else dict(section.caps)
    for text in orders.single_caps:
        name, _, value = text.partition("=")
        given[name] = int(value)
    caps = UPSTREAM if upstream else Caps()
    for name, number in given.items():
        field, in_percent = CAP_NAMES[name]
        caps = replace(caps, **{field: number / 100 if in_percent else number})
        if field == "set_deletions_a_minute":
            caps = replace(caps, set_deletions_by_budget=False)
    total = section.max_writes if orders.max_writes is None else orders.max_writes
    return replace(caps, total=total)


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


_EVENT_SHARE: Final = 8
_GIVES_WAY_S: Final = 2.0
_LOOK_S: Final = 0.02


def controller_writers(
    controllers: Iterable[str],
    settings: Settings,
    session: WritingSession,
    now_ns: Callable[[], int],
    monotonic_ns: Callable[[], int],
    clock: ServerClock,
    closed_because: Callable[[], str],
    is_sending: Callable[[], bool],
) -> dict[str, ControllerWriter]:
    """By controller. Events get an eighth of its tokens, and are sent while the gate is open.

    While writes are on their way (`is_sending`) an Event waits up to two seconds: upstream sends
    both at once, here they share one thread, and a mark or taint matters more.
    """
    qps, burst = client_rate(settings)

    def writing(name: str) -> ControllerWriter:
        writer = Writer(session, name, monotonic_ns, clock)
        tokens = TokenBucket(qps / _EVENT_SHARE, max(1, burst // _EVENT_SHARE))

        async def admitted() -> bool:
            at_ns = tokens.reserve(monotonic_ns())
            await asyncio.sleep(max(0.0, (at_ns - monotonic_ns()) / SECOND_NS))
            until_ns = monotonic_ns() + int(_GIVES_WAY_S * SECOND_NS)
            while is_sending() and monotonic_ns() < until_ns:
                await asyncio.sleep(_LOOK_S)
            return not closed_because()

        events = EventSender(writer, now_ns, admitted)
        return ControllerWriter(writer, TokenBucket(qps, burst), events)

    return {name: writing(name) for name in controllers}
