"""A direct look at a live cluster, for when no daemon watches it: three lists, and the settings.

Nobody has watched before, so ages are told with what they would mean, and no node is called lost by
its age alone. What may not be read is said, and what hangs on it is not evaluated.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable

from kubectl_nodelife.commands.dumps import without_leases
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.config import load_config
from kubectl_nodelife.daemon.places import config_file
from kubectl_nodelife.daemon.settings import Wish, decide, read_running
from kubectl_nodelife.daemon.sight import Sight, clock_warning
from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE, Cache
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.clock import SKEW_TOLD_NS, steady_ns
from kubectl_nodelife.live.listing import read_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.target import Overrides, Target, find_target
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
    target = find_target(Overrides(**connection._asdict()), os.environ)
    wish = Wish(profile or "", assignments, load_config(config_file(os.environ)))
    with progress_bar(f"reading {target.server}") as step:
        return asyncio.run(_look(target, wish, step))


def own_namespace(connection: Connection) -> str:
    """The namespace that the flags or the context name. Raises BadInput."""
    return find_target(Overrides(**connection._asdict()), os.environ).namespace


async def _look(target: Target, wish: Wish, step: Callable[[int], None]) -> Sight:
    client = Client(Session(target, os.environ))
    try:
        cache, refused = await _read(client, step)
        running = await read_running(client, cache)
    finally:
        await client.close()
    decided = decide(wish, running, cache, target.server, target.context)
    steady = steady_ns()
    server_ns = client.clock.now_ns(steady)
    now_ns = time.time_ns() if server_ns is None else server_ns
    outlook, _ = joined(cache, decided.settings, now_ns, first_look=True)
    warnings = [*refused, *decided.warnings]
    if not refused:
        warnings += without_leases(cache)
    skew_ns = client.clock.skew_ns(steady, time.time_ns())
    if abs(skew_ns) > SKEW_TOLD_NS:
        warnings.append(clock_warning(skew_ns))
    return Sight(
        outlook=outlook,
        source={
            "kind": "direct",
            "context": target.context or None,
            "server": target.server,
            "synced": not refused,
            "age": 0.0,
        },
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
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        step(done)

    gc.disable()
    try:
        found = await asyncio.gather(
            *(_list(client, resource, progress) for resource in _RESOURCES.values())
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
    finally:
        gc.enable()
        gc.freeze()
    return cache, refused


async def _list(
    client: Client, resource: Resource, progress: Callable[[int], None]
) -> list[KubeObject] | ApiError:
    try:
        return await read_all(client, resource, progress)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return error
