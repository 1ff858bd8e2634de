"""What `daemonset` and `rollout` look at: a dump, or four lists of a live cluster.

Without -A only the one namespace is read, but for the nodes, so that somebody who may not read more
gets an answer too. What may not be read is said, and what hangs on it is left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

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
from kubectl_nodelife.commands.dumps import load, source_of
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.inputs import settings_of
from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.daemon.settings import Wish, decide, read_running
from kubectl_nodelife.daemon.sight import COLD, Sight
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import Failed, Unreachable
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listing import read_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, KindsRead, cache_for
from kubectl_nodelife.report.progress import progress_bar

# kind -> what cannot be told without it
_NOT_TOLD: Final[Mapping[str, str]] = {
    "Node": "which nodes should run a pod",
    "Pod": "which nodes have a pod",
    "ControllerRevision": "revisions and rollbacks",
}
_KINDS: Final = (*_NOT_TOLD, "DaemonSet")

Progress = Callable[[int], None]


class SetLook(NamedTuple):
    """The sets as they were at one moment, where they are from, and what is to be said of that."""

    sets: DaemonSets
    source: dict[str, Any]
    warnings: list[str]


def look_at_dump(
    filename: tuple[str, ...], now: str | None, profile: str | None, assignments: tuple[str, ...]
) -> SetLook:
    """The sets of a dump, as the controller of its release would see them. Raises BadInput."""
    snapshot = load(filename, now, profile)
    settings = settings_of(snapshot, assignments)
    missing = {kind: "" for kind in _KINDS if not snapshot.has_read(kind)}
    warnings = [*snapshot.warnings, *_missing(missing)]
    if "DaemonSet" in missing:
        warnings.append("no DaemonSets were read")
    moment_ns = snapshot.moment_ns
    sets = _sets(snapshot.objects, None, settings, moment_ns, missing)
    return SetLook(sets, source_of(snapshot), warnings)


def look_at_cluster(
    connection: Connection, namespace: str, profile: str | None, assignments: tuple[str, ...]
) -> SetLook:
    """The sets of a live cluster's namespace, "" for all. Raises NodelifeError."""
    target = target_of(connection)
    wish = wish_of(profile, assignments)
    with progress_bar(f"reading {target.server}") as step:
        return asyncio.run(_look(target, wish, namespace, step))


def look_at_sight(sight: Sight, namespace: str, name: str = "") -> Callable[[], SetLook]:
    """What the daemon sees of all sets, or one. Raises Failed, Unreachable where it has none.

    The look is had by calling what is returned, in a thread if that is better: the daemon's own
    cache is read here, and only objects that nobody changes are taken from it.
    """
    if "DaemonSet" in sight.unread:
        error = sight.unread["DaemonSet"]
        if error:
            raise Failed(error, on="daemonsets.apps", remedy="see 'kubectl nodelife rbac'")
        remedy = "try again in a moment, or look directly with --no-daemon"
        raise Unreachable("the daemon has not read the DaemonSets yet", remedy=remedy)
    outlook = sight.outlook
    objects = [obj for kind in _KINDS for obj in outlook.cache.all(kind)]
    settings, now_ns = outlook.settings, outlook.now_ns
    within = namespace or None
    warnings = [w for w in sight.warnings if not w.startswith(COLD)]  # sets do not hang on that

    def look() -> SetLook:
        sets = _sets(objects, within, settings, now_ns, sight.unread, name)
        return SetLook(sets, sight.source, warnings)

    return look


def _sets(
    objects: Iterable[KubeObject],
    namespace: str | None,
    settings: Settings,
    now_ns: int,
    missing: Mapping[str, str],
    name: str = "",
) -> DaemonSets:
    rules = behaviour_of((1, settings.profile.minor), settings.gates)
    read = KindsRead(
        pods="Pod" not in missing,
        nodes="Node" not in missing,
        revisions="ControllerRevision" not in missing,
        sets="DaemonSet" not in missing,
    )
    return DaemonSets(cache_for(objects, namespace, rules, name), settings, now_ns, read)


def _missing(missing: Mapping[str, str]) -> list[str]:
    """What was not read, and what cannot be told for that reason."""
    return [
        f"{kind} cannot be read ({missing[kind]}): {what} cannot be told"
        if missing[kind]
        else f"no {kind}s were read: {what} cannot be told"
        for kind, what in _NOT_TOLD.items()
        if kind in missing
    ]


async def _look(target: Target, wish: Wish, namespace: str, step: Progress) -> SetLook:
    async with reading(target) as client:
        objects, refused = await _read(client, namespace, step)
        among = Cache()
        among.fill((o for kind in ("Node", "Pod") for o in objects[kind]), 0)
        decided = decide(
            wish, await read_running(client, among), among, target.server, target.context
        )
        settings = decided.settings
        if namespace and behaviour_of((1, settings.profile.minor), settings.gates).suspends:
            everywhere = read_all(client, Resource(kind_named("Pod")), step)
            pods = await or_refused(everywhere)  # all take up room
            objects["Pod"] = objects["Pod"] if isinstance(pods, ApiError) else pods
    now_ns = server_now_ns(client)
    warnings = [*_missing(refused), *decided.warnings, *skew_warnings(client)]
    source = direct_source(target, synced=not refused)
    found = [obj for kind in _KINDS for obj in objects[kind]]
    return SetLook(_sets(found, namespace or None, settings, now_ns, refused), source, warnings)


async def _read(
    client: Client, namespace: str, step: Progress
) -> tuple[dict[str, list[KubeObject]], dict[str, str]]:
    """The lists by kind, and what the server refuses to list. DaemonSets must be had."""
    progress = adding_up(step)
    kinds = [kind_named(name) for name in _KINDS]
    resources = [Resource(kind, namespace if kind.namespaced else "") for kind in kinds]
    lists = await asyncio.gather(
        *(or_refused(read_all(client, each, progress)) for each in resources)
    )
    objects: dict[str, list[KubeObject]] = {}
    refused: dict[str, str] = {}
    for kind, found in zip(_KINDS, lists, strict=True):
        if isinstance(found, ApiError):
            if kind == "DaemonSet":
                on = "daemonsets.apps"
                raise Failed(found.what, on=on, remedy="see 'kubectl nodelife rbac'")
            refused[kind] = found.what
        objects[kind] = [] if isinstance(found, ApiError) else found
    return objects, refused
