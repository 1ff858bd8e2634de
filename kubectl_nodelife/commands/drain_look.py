"""What a drain plan is made from: a dump, or one look at a live cluster.

A look lists every kind that a plan or a budget hangs on, once. A kind that may not be listed is
left out, and the plan says so; one that the server does not serve at all has no objects. Nothing is
written. Whether the user may evict pods at all is not asked: the API answers that only to a POST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubectl_nodelife.commands.direct import (
    adding_up,
    or_refused,
    reading,
    server_now_ns,
    target_of,
)
from kubectl_nodelife.commands.dumps import load
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.inputs import choose_profile
from kubectl_nodelife.drain.snapshot import Snapshot
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listing import read_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.report.progress import progress_bar

KINDS: Final = (
    "Node",
    "Pod",
    "Lease",
    "Namespace",
    "PodDisruptionBudget",
    "ReplicaSet",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicationController",
    "Job",
    "HorizontalPodAutoscaler",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Service",
    "EndpointSlice",
)
NEEDED: Final = ("Node", "Pod")
"""Without these there is nothing to plan."""


class Look(NamedTuple):
    """The objects, where they are from, and what is to be said about that."""

    snapshot: Snapshot
    source: dict[str, Any]
    warnings: list[str]


def look(
    connection: Connection, filename: tuple[str, ...], now: str | None, profile: str | None
) -> Look:
    """The dump that `-f` names, or else the cluster. Raises NodelifeError."""
    if filename:
        return _of_dump(filename, now, profile)
    if now:
        raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
    target = target_of(connection)
    with progress_bar(f"reading {target.server}") as step:
        return asyncio.run(_of_cluster(target, profile, step))


def _of_dump(filename: tuple[str, ...], now: str | None, profile: str | None) -> Look:
    found = load(filename, now, profile)
    snapshot = Snapshot(
        found.objects, found.moment_ns, None if found.complete else found.kinds_read
    )
    source = {
        "kind": "snapshot",
        "context": None,
        "moment": found.moment(),
        "profile": found.profile.name,
        "profileOrigin": found.profile_origin,
    }
    return Look(snapshot, source, list(found.warnings))


async def _of_cluster(target: Target, profile: str | None, step: Callable[[int], None]) -> Look:
    async with reading(target) as client:
        objects, read, warnings = await _read(client, step)
    now_ns = server_now_ns(client)
    chosen, origin = choose_profile(objects, profile)
    source = {
        "kind": "direct",
        "context": target.context or None,
        "server": target.server,
        "moment": {"time": format_micro_time(now_ns), "origin": "the API server's clock"},
        "profile": chosen.name,
        "profileOrigin": origin,
    }
    return Look(Snapshot(objects, now_ns, read), source, warnings)


async def _read(
    client: Client, step: Callable[[int], None]
) -> tuple[list[KubeObject], set[str], list[str]]:
    """All objects, the kinds they are of, and which kinds the server refuses to list."""
    progress = adding_up(step)
    lists = await asyncio.gather(*(_list(client, kind, progress) for kind in KINDS))
    objects: list[KubeObject] = []
    read: set[str] = set()
    warnings = []
    for kind, found in zip(KINDS, lists, strict=True):
        if isinstance(found, ApiError):
            if kind in NEEDED:
                raise Failed(found.what, on=kind_named(kind).plural, remedy="ask for the right")
            warnings.append(f"{kind} cannot be read ({found.what})")
        else:
            read.add(kind)
            objects += found
    return objects, read, warnings


async def _list(
    client: Client, kind: str, progress: Callable[[int], None]
) -> list[KubeObject] | ApiError:
    namespace = NAMESPACE_NODE_LEASE if kind == "Lease" else ""
    found = await or_refused(read_all(client, Resource(kind_named(kind), namespace), progress))
    if isinstance(found, ApiError) and found.code == 404:
        return []  # not served here, so there are none
    return found
