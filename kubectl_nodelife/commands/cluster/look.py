"""What a verb reads of a cluster: a `ClusterView` of a dump (`-f`) or of a live one's lists; for
`drain-plan`, `budgets` and upgrades as the drain planner takes it.

`where` says which. A kind that may not be listed is left out, and the verb says what it cannot
answer without it; one that the server does not serve has no objects. Nothing is written. Whether
the user may evict pods is not checked: the API answers that only to a POST.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from kubectl_nodelife.errors import BadInput, Failed, NotFound
from kubectl_nodelife.kube.kinds import DRAIN_KINDS, OPTIONAL_KINDS, find_resource, kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import first_names, parse_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import label_selector, matches
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.kube.unreadable import unreadable_sentences
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.drain.snapshot import PlanSnapshot
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
        warnings=list(dump.warnings),
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

    config = load_config(config_file(os.environ))
    requested = RequestedSettings(where.profile or "", where.assignments, config)
    requested.check()
    target = target_of(where.connection)
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


POLICIES_SINCE: Final = 28
"""The first release that may have ValidatingAdmissionPolicies without alpha features."""


class DrainLook(NamedTuple):
    """The objects, where they are from, what is to be said about that, and the settings."""

    snapshot: PlanSnapshot
    source: dict[str, Any]
    warnings: list[str]
    settings: Settings

    @property
    def server(self) -> str:
        """The cluster's address, "" for a dump."""
        return str(self.source.get("server", ""))


def look_for_drain(where: Where, read_all: str = "", needed: Sequence[str] = ()) -> DrainLook:
    """The dump that `-f` names, or else the cluster. Raises NodelifeError.

    `read_all`: kinds of which the dump holds all objects, as --read names them. `needed`: kinds
    without which a cluster gives no answer, beside nodes and pods.
    """
    if read_all and not where.filename:
        raise BadInput("is for dumps", on="--read", remedy="name a dump with -f")
    view = look(where, KINDS_TO_READ._replace(needed=(*KINDS_TO_READ.needed, *needed)))
    snapshot = snapshot_of(view, read_all)
    return DrainLook(snapshot, source_of(view), view.warnings, view.settings)


def snapshot_of(view: ClusterView, read_all: str = "") -> PlanSnapshot:
    """The view's objects as the planner takes them. What a daemon holds comes in the order in which
    the API lists it, so that its plan is that of a first look. Raises BadInput for `read_all`.
    """
    from kubectl_nodelife.drain.snapshot import PlanSnapshot
    from kubectl_nodelife.workloads.force_advice import release_of

    cache = view.cache
    if view.watched:
        cache = cache.as_listed((*DRAIN_KINDS, *OPTIONAL_KINDS), view.now_ns)
    read = {kind for kind in DRAIN_KINDS if kind not in view.unread}
    if not view.nodes_listed:
        read.remove("Node")
    read |= _kinds_named(read_all)
    if view.settings.profile.minor < POLICIES_SINCE:
        read |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    release = release_of(view.settings)
    return PlanSnapshot(cache, view.now_ns, read, view.unreadable, release, view.settings)


def check_pods_read(snapshot: PlanSnapshot) -> None:
    """Raises BadInput where no pods were read: a plan would say that nothing stops a drain."""
    if not snapshot.was_read("Pod"):
        remedy = "dump them as well: kubectl get pods -A -o json"
        raise BadInput("no pods were read, so that no drain can be planned", remedy=remedy)


def source_of(view: ClusterView) -> dict[str, Any]:
    """Where a plan is from, of which moment, and which release it follows."""
    keep = ("kind", "context", "server")
    return {
        **{key: view.source[key] for key in keep if key in view.source},
        "moment": view.moment,
        "profile": view.settings.profile.name,
        "profileOrigin": view.profile_origin,
    }


def _kinds_named(text: str) -> set[str]:
    """The kinds of a list such as `pdb,pods`, or `all`. Raises BadInput."""
    if text == "all":
        return set(DRAIN_KINDS)
    names = set()
    for word in filter(None, map(str.strip, text.split(","))):
        kind = find_resource(word)
        if kind is None:
            raise BadInput(f"{word!r} is no kind that is read here", on="--read")
        names.add(kind.name)
    return names


def _unread_warnings(view: ClusterView) -> Iterator[str]:
    """Kinds that may not be read, in one sentence; the plan itself says what a dump lacks."""
    refused = [kind for kind, error in view.unread.items() if error]
    if refused:
        yield f"{first_names(refused, 3)} cannot be read ({view.unread[refused[0]]})"


KINDS_TO_READ: Final = KindsToRead(
    DRAIN_KINDS, ("Node", "Pod"), missing_parts=_unread_warnings, optional=OPTIONAL_KINDS
)


def kubectl_flags(given: Mapping[str, str | None], source: Mapping[str, Any]) -> list[str]:
    """The flags that lead kubectl to the cluster that was looked at; none for a dump. `given`: as
    of `Connection.for_kubectl`.
    """
    if source.get("kind") == "snapshot":
        return []
    values = {**given, "context": given.get("context") or source.get("context")}
    return [f"--{flag}={values[flag]}" for flag in ("kubeconfig", "context", "as") if values[flag]]


def choose_nodes(
    snapshot: PlanSnapshot, nodes: tuple[str, ...], selector: str | None, all_nodes: bool
) -> list[str]:
    """The nodes to drain: those named, in that order, or those selected, by name. Raises BadInput,
    Failed.
    """
    if nodes and selector:  # as kubectl's drain.go, Complete
        both = "cannot specify both a node name and a --selector option"
        raise BadInput(both, remedy="give one of them")
    if bool(nodes) + (selector is not None) + all_nodes != 1:
        remedy = "give node names, or --selector, or --all, and only one of them"
        raise BadInput("USAGE: drain NODE [flags]: which nodes?", remedy=remedy)
    if nodes:
        names = parse_names(nodes)
        for name in names:
            if name not in snapshot.nodes:
                for unread in snapshot.unreadable:
                    if unread.kind == "Node" and unread.key == ("", name):
                        raise Failed(f"{unread} cannot be read: {unread.why}")
                raise NotFound("nodes", name, among=snapshot.nodes)
        return names
    wanted = label_selector(selector or "")
    found = sorted(n.name for n in snapshot.nodes.values() if matches(wanted, n.metadata.labels))
    if not found:
        raise no_node(selector)
    return found


def no_node(selector: str | None) -> Failed:
    """The error where there is no node to plan for."""
    if not selector:
        return Failed("there are no nodes")
    return Failed("no node matches", on=f"--selector {selector}", remedy="check the labels")
