"""`daemonset`: sets' counts, a set's truth table, its update and its revisions.

Each as a document of its own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour, behaviour_of
from kubectl_nodelife.document import document
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.outlook.daemonset.rollout_outlook import (
    RevisionRow,
    RolloutOutlook,
    UndoOutlook,
)
from kubectl_nodelife.outlook.daemonset.summary import SetSummary
from kubectl_nodelife.outlook.daemonset.truth_table import NodeRow
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, KindsRead, cache_for
from kubectl_nodelife.outlook.view import ClusterView

Source = dict[str, Any]


KINDS = ("Node", "Pod", "ControllerRevision", "DaemonSet")
"""The kinds that an answer about DaemonSets is made from."""

_UNKNOWN_WITHOUT = {
    "Node": "which nodes should run a pod is unknown",
    "Pod": "which nodes have a pod is unknown",
    "ControllerRevision": "revisions and rollbacks are unknown",
}


def daemon_sets(
    view: ClusterView, namespace: str | None = None, name: str = ""
) -> Callable[[], DaemonSets]:
    """The sets of a namespace (None: of all), or the one of that name, as their controller sees
    them.

    Only immutable objects are taken from the view here; what is returned does the work,
    in a thread if that is better.
    """
    objects = [obj for kind in KINDS for obj in view.cache.all(kind)]
    settings, now_ns, unread = view.settings, view.now_ns, view.unread
    read = KindsRead(
        pods="Pod" not in unread,
        nodes="Node" not in unread,
        revisions="ControllerRevision" not in unread,
        sets="DaemonSet" not in unread,
    )

    pods = tuple(view.cache.pods.values())
    annotations = {n.name: n.metadata.annotations or {} for n in view.cache.all("Namespace")}

    def made() -> DaemonSets:
        cache = cache_for(objects, namespace, _behaviour(settings), name)
        return DaemonSets(cache, settings, now_ns, read, pods, annotations)

    return made


def pods_take_room(settings: Settings) -> bool:
    """True if this release's controller looks at the room that all pods of a node take."""
    return _behaviour(settings).suspends


def _behaviour(settings: Settings) -> Behaviour:
    return behaviour_of((1, settings.profile.minor), settings.gates)


def missing_parts(view: ClusterView) -> Iterator[str]:
    """Sentences on what stays unknown of DaemonSets because a kind was not read."""
    for kind, what in _UNKNOWN_WITHOUT.items():
        if kind in view.unread:
            error = view.unread[kind]
            lacks = f"{kind} cannot be read ({error})" if error else f"no {kind}s were read"
            yield f"{lacks}: {what}"
    if "DaemonSet" in view.unread:
        yield "no DaemonSets were read"


def summaries_document(
    summaries: Sequence[SetSummary], source: Source, warnings: Sequence[str]
) -> dict[str, Any]:
    """The DaemonSetSummaryList: each set's counts, reported and counted, and what is odd."""
    items = [summary.document() for summary in summaries]
    return document("DaemonSetSummaryList", source=source, items=items, warnings=list(warnings))


def truth_table_document(
    summary: SetSummary, rows: Sequence[NodeRow], source: Source
) -> dict[str, Any]:
    """The DaemonSetTruthTable: a row a node, with the rule that decides."""
    return document(
        "DaemonSetTruthTable", source=source, daemonSet=summary.document(), nodes=list(rows)
    )


def rollout_document(outlook: RolloutOutlook, source: Source) -> dict[str, Any]:
    """The DaemonSetRollout: how far an update is, and what it waits for."""
    daemon_set = outlook.view.daemon_set
    return document(
        "DaemonSetRollout",
        source=source,
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        **outlook.document(),
    )


def history_document(
    namespace: str, name: str, rows: Sequence[RevisionRow], source: Source
) -> dict[str, Any]:
    """The DaemonSetHistory: revisions, and what changed from one to the next."""
    return document(
        "DaemonSetHistory",
        source=source,
        namespace=namespace,
        name=name,
        revisions=[row.document() for row in rows],
    )


def rollback_document(
    outlook: UndoOutlook, source: Source, *, dry_run: bool = True
) -> dict[str, Any]:
    """The DaemonSetRollback: the patch that `daemonset undo` sends, and its effects."""
    daemon_set = outlook.view.daemon_set
    return document(
        "DaemonSetRollback",
        source=source,
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        toRevision=outlook.plan.revision.revision,
        result=outlook.plan.message,
        dryRun=dry_run,
        patchType="application/strategic-merge-patch+json",
        patch=None if outlook.plan.skipped else outlook.plan.patch,
        changes=outlook.changes,
        follows=outlook.follows,
        effects=outlook.effects,
    )
