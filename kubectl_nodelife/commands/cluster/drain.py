"""The kinds that `drain-plan` and `budgets` read, and the cluster as the planner takes it.

Whether the user may evict pods is not checked: the API answers that only to a POST.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.commands.cluster.look import KindsToRead, look
from kubectl_nodelife.commands.flags import Where
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput, Failed, NotFound
from kubectl_nodelife.kube.kinds import DRAIN_KINDS, OPTIONAL_KINDS, find_resource
from kubectl_nodelife.kube.names import first_names, parse_names
from kubectl_nodelife.kube.selectors import label_selector, matches
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.workloads.force_advice import release_of

POLICIES_SINCE: Final = 28
"""The first release that may have ValidatingAdmissionPolicies without alpha features."""


class DrainLook(NamedTuple):
    """The objects, where they are from, what is to be said about that, and the settings."""

    snapshot: PlanSnapshot
    source: dict[str, Any]
    warnings: list[str]
    settings: Settings


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
    """The view's objects as the planner takes them. Raises BadInput for `read_all`.

    What a daemon holds comes in the order in which the API lists it, so that a plan through it is
    the plan of a first look.
    """
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
    """Raises BadInput where no pods were read: a plan without them would say that nothing stops
    a drain.
    """
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
    """The flags that lead kubectl to the cluster that was looked at; none for a dump.

    `given`: as of `Connection.for_kubectl`.
    """
    if source.get("kind") == "snapshot":
        return []
    values = {**given, "context": given.get("context") or source.get("context")}
    return [f"--{flag}={values[flag]}" for flag in ("kubeconfig", "context", "as") if values[flag]]


def choose_nodes(
    snapshot: PlanSnapshot, nodes: tuple[str, ...], selector: str | None, all_nodes: bool
) -> list[str]:
    """The nodes to drain: those named, in that order, or those selected, by name.

    Raises BadInput and Failed.
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
