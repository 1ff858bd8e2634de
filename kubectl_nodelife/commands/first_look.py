"""A direct look at a live cluster, for when no daemon watches it: three lists, and the settings.

Nobody has watched before, so ages are told with what they would mean, and no node is called lost by
its age alone. What may not be read is said, and what hangs on it is not evaluated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kubectl_nodelife.commands.direct import (
    adding_up,
    direct_source,
    or_refused,
    reading,
    server_now_ns,
    skew_warnings,
    target_of,
    wish_of,
)
from kubectl_nodelife.commands.dumps import without_leases
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.settings import Wish, decide, read_running
from kubectl_nodelife.daemon.sight import Sight
from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE, Cache
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listing import read_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.outlook.join import joined
from kubectl_nodelife.report.progress import progress_bar

_RESOURCES = {
    "Node": Resource(kind_named("Node")),
    "Lease": Resource(kind_named("Lease"), NODE_LEASE_NAMESPACE),
    "Pod": Resource(kind_named("Pod")),
}
_NOT_EVALUATED = {
    "Lease": "how long until a node is Unknown",
    "Pod": "evictions",
}


def first_look(connection: Connection, profile: str | None, assignments: tuple[str, ...]) -> Sight:
    """The outlook of this moment. Raises NodelifeError."""
    target = target_of(connection)
    wish = wish_of(profile, assignments)
    with progress_bar(f"reading {target.server}") as step:
        return asyncio.run(_look(target, wish, step))


def own_namespace(connection: Connection) -> str:
    """The namespace that the flags or the context name. Raises BadInput."""
    return target_of(connection).namespace


async def _look(target: Target, wish: Wish, step: Callable[[int], None]) -> Sight:
    async with reading(target) as client:
        cache, refused = await _read(client, step)
        running = await read_running(client, cache)
    decided = decide(wish, running, cache, target.server, target.context)
    now_ns = server_now_ns(client)
    outlook, _ = joined(cache, decided.settings, now_ns, first_look=True)
    warnings = [*refused, *decided.warnings]
    if not refused:
        warnings += without_leases(cache)
    warnings += skew_warnings(client)
    return Sight(
        outlook=outlook,
        source=direct_source(target, synced=not refused),
        moment={
            "time": format_micro_time(now_ns),
            "origin": "a first look, by the API server's clock",
        },
        mode="dry-run",
        warnings=warnings,
    )


async def _read(client: Client, step: Callable[[int], None]) -> tuple[Cache, list[str]]:
    """The lists, and what the server refuses to list. Nodes must be had."""
    cache, refused = Cache(), []
    progress = adding_up(step)
    found = await asyncio.gather(
        *(or_refused(read_all(client, each, progress)) for each in _RESOURCES.values())
    )
    now_ns = time.time_ns()
    for kind, objects in zip(_RESOURCES, found, strict=True):
        if isinstance(objects, ApiError):
            if kind == "Node":
                raise Failed(objects.what, on="nodes", remedy="see 'kubectl nodelife rbac'")
            what = _NOT_EVALUATED[kind]
            refused.append(f"{kind} cannot be read ({objects.what}): {what}: not evaluated")
        else:
            cache.fill(objects, now_ns)
    return cache, refused
