"""One look at a cluster: a dump, or lists of a live one, as a `ClusterView`.

A kind that may not be listed is left out, and the verb says what it cannot answer without it; one
that the server does not serve has no objects. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kubectl_nodelife.commands.flags import Where
from kubectl_nodelife.daemon.paths import config_file
from kubectl_nodelife.daemon.settings import (
    RequestedSettings,
    detect_settings,
    load_config,
    resolve_settings,
)
from kubectl_nodelife.dumps.dump import Dump, load, settings_of
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.kube.unreadable import unreadable_sentences
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.live.target import Target

_ORIGIN: Final = "a first look, by the API server's clock"
_NAMESPACE_OF_CONTROL_PLANE: Final = "kube-system"

Progress = Callable[[int], None]


class KindsToRead(NamedTuple):
    """A verb's reads. `kinds` in that order; without one of `needed` there is no answer.

    `namespace`: of namespaced kinds, "" for all. `pods_everywhere` says by the settings whether
    pods of all namespaces are needed all the same. `missing_parts` words what cannot be answered
    for lack of a kind. `fields`: kind -> the field selector of a live cluster's list. `optional`:
    kinds behind feature gates, read where the server serves them. `manager_role`: say where the
    controller manager may not do what it must before it calls a node lost.
    """

    kinds: Sequence[str]
    needed: Sequence[str]
    missing_parts: Callable[[ClusterView], Iterable[str]] = lambda view: ()
    namespace: str = ""
    pods_everywhere: Callable[[Settings], bool] = lambda settings: False
    fields: Mapping[str, str] = {}
    optional: Sequence[str] = ()
    manager_role: bool = False


def look(where: Where, wanted: KindsToRead) -> ClusterView:
    """The dump that `-f` names, or else the cluster at first sight. Raises NodelifeError."""
    where.check()
    if where.filename:
        dump = load(where.filename, where.now, where.profile)
        view = view_of_dump(dump, wanted.kinds, where.assignments)
    else:
        view = _of_cluster(where, wanted)
    view.warnings += wanted.missing_parts(view)
    return view


def view_of_dump(dump: Dump, kinds: Sequence[str], assignments: Sequence[str] = ()) -> ClusterView:
    """A dump of which these kinds are asked for, with `--set FLAG=VALUE`. Raises BadInput."""
    return ClusterView(
        settings_of(dump, assignments),
        dump.moment_ns,
        source={"kind": "snapshot", "context": None, "synced": True, "age": None},
        moment=dump.moment(),
        warnings=dump.warnings,
        unread={kind: "" for kind in kinds if not dump.has_read(kind)},
        objects=dump.objects,
        unreadable=dump.unreadable,
        profile_origin=dump.profile_origin,
        doubts={clock.node: clock.sentence for clock in dump.doubted},
        nodes_listed=dump.nodes_listed,
    )


def _of_cluster(where: Where, wanted: KindsToRead) -> ClusterView:
    import asyncio

    from kubectl_nodelife.commands.cluster.direct import target_of

    target = target_of(where.connection)
    config = load_config(config_file(os.environ))
    requested = RequestedSettings(where.profile or "", where.assignments, config)
    with progress_bar(f"reading {target.server}") as step:
        return asyncio.run(_read(target, requested, wanted, step))


async def _read(
    target: Target, requested: RequestedSettings, wanted: KindsToRead, step: Progress
) -> ClusterView:
    from kubectl_nodelife.commands.cluster.direct import (
        adding_up,
        bulk_client,
        direct_source,
        server_now_ns,
        skew_warnings,
    )
    from kubectl_nodelife.live.listwatch import list_once

    progress = adding_up(step)
    kinds = (*wanted.kinds, *wanted.optional)
    async with bulk_client(target) as client:
        found = await list_once(client, kinds, wanted.fields, wanted.namespace, progress)
        for kind in wanted.needed:
            if kind in found.unread:
                on, remedy = kind_named(kind).resource, "see 'kubectl nodelife rbac'"
                raise Failed(found.unread[kind], on=on, remedy=remedy)
        among = _control_plane(found.objects)
        running = await detect_settings(client, among, manager_role=wanted.manager_role)
        decided = resolve_settings(requested, running, among, target.server, target.context)
        if wanted.namespace and wanted.pods_everywhere(decided.settings):
            pods = await list_once(client, ["Pod"], progress=progress)
            if not pods.unread:
                others = [obj for obj in found.objects if not isinstance(obj, Pod)]
                found = found._replace(objects=[*others, *pods.objects])
    now_ns = server_now_ns(client)
    aside = unreadable_sentences(found.unreadable)
    return ClusterView(
        decided.settings,
        now_ns,
        source=direct_source(target, synced=not found.unread),
        moment={"time": format_micro_time(now_ns), "origin": _ORIGIN},
        warnings=[*aside, *decided.warnings, *skew_warnings(client)],
        unread=found.unread,
        objects=found.objects,
        unreadable=found.unreadable,
        first_look=True,
        profile_origin=decided.profile_origin,
    )


def _control_plane(objects: Iterable[KubeObject]) -> Cache:
    """The nodes, and the pods among which the control plane's are."""
    among = Cache()
    among.fill(
        (
            obj
            for obj in objects
            if isinstance(obj, Node)
            or (isinstance(obj, Pod) and obj.namespace == _NAMESPACE_OF_CONTROL_PLANE)
        ),
        0,
    )
    return among


def none_found(namespace: str | None) -> str:
    """kubectl's sentence where there is nothing to show."""
    return f"No resources found in {namespace} namespace." if namespace else "No resources found"


def namespace_of(where: Where, all_namespaces: bool) -> str | None:
    """The namespace to look in, None for all: of a dump all, unless one is named; of a cluster the
    context's own. Raises BadInput."""
    if all_namespaces:
        return None
    if where.filename or where.connection.namespace:
        return where.connection.namespace
    from kubectl_nodelife.commands.cluster.direct import target_of

    return target_of(where.connection).namespace
