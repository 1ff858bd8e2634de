"""The kinds that `drain-plan` and `budgets` read, and the cluster as the planner takes it.

Whether the user may evict pods is not checked: the API answers that only to a POST.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.cluster.look import KindsToRead, look
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import find_resource
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.outlook.terminating import release_of

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


POLICIES_SINCE: Final = 28
"""The first release that may have ValidatingAdmissionPolicies without alpha features."""


class DrainLook(NamedTuple):
    """The objects, where they are from, what is to be said about that, and the settings."""

    snapshot: PlanSnapshot
    source: dict[str, Any]
    warnings: list[str]
    settings: Settings


def look_for_drain(where: Where, read_all: str = "") -> DrainLook:
    """The dump that `-f` names, or else the cluster. Raises NodelifeError.

    `read_all`: kinds of which the dump holds all objects, as --read names them.
    """
    if read_all and not where.filename:
        raise BadInput("is for dumps", on="--read", remedy="name a dump with -f")
    view = look(where, KindsToRead(KINDS, needed=("Node", "Pod"), not_told=_not_told))
    snapshot = snapshot_of(view, view.objects, read_all)
    return DrainLook(snapshot, source_of(view), view.warnings, view.settings)


def snapshot_of(
    view: ClusterView, objects: Iterable[KubeObject], read_all: str = ""
) -> PlanSnapshot:
    """The view's objects as the planner takes them. Raises BadInput for `read_all`."""
    read = {kind for kind in KINDS if kind not in view.unread} | _kinds_named(read_all)
    if view.settings.profile.minor < POLICIES_SINCE:
        read |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    release = release_of(view.settings)
    return PlanSnapshot(objects, view.now_ns, read, view.unreadable, release, view.settings)


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
        return set(KINDS)
    found = set()
    for word in filter(None, map(str.strip, text.split(","))):
        kind = find_resource(word)
        if kind is None:
            raise BadInput(f"{word!r} is no kind that is read here", on="--read")
        found.add(kind.name)
    return found


def _not_told(view: ClusterView) -> Iterator[str]:
    """Kinds that may not be read; the plan itself says what a dump lacks."""
    for kind, error in view.unread.items():
        if error:
            yield f"{kind} cannot be read ({error})"
