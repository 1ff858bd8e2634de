"""`daemonset` and `rollout`: sets' counts, a set's truth table, its update and its revisions.

Each as a document of its own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.outlook.daemonset.rollout import RevisionRow, RolloutOutlook, UndoOutlook
from kubectl_nodelife.outlook.daemonset.summary import SetSummary
from kubectl_nodelife.outlook.daemonset.table import NodeRow

Source = dict[str, Any]


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


def rollback_document(outlook: UndoOutlook, source: Source) -> dict[str, Any]:
    """The DaemonSetRollback: the patch that `rollout undo` would send, and its effects."""
    daemon_set = outlook.view.daemon_set
    return document(
        "DaemonSetRollback",
        source=source,
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        toRevision=outlook.plan.revision.revision,
        result=outlook.plan.message,
        dryRun=True,
        patchType="application/strategic-merge-patch+json",
        patch=None if outlook.plan.skipped else outlook.plan.patch,
        changes=outlook.changes,
        effects=outlook.effects,
    )
