"""`rollout undo` on a cluster: one direct look, the patch, the question, the write."""

from __future__ import annotations

from kubectl_nodelife.answers.daemonset import daemon_sets
from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering import daemonset as answering
from kubectl_nodelife.commands.answering.query import as_sent
from kubectl_nodelife.commands.answering.set_words import UNDO
from kubectl_nodelife.commands.cluster.look import look
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Output
from kubectl_nodelife.commands.write_flags import ActFlags
from kubectl_nodelife.commands.write_sending import ROLLOUT, send_rollback
from kubectl_nodelife.engine.actions import RollBackDaemonSet
from kubectl_nodelife.outlook.daemonset.rollout_outlook import UndoOutlook
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.daemonset import UndoPage


def roll_back(where: Where, name: str, to_revision: int, act: ActFlags, output: Output) -> int:
    """Show, ask, and send. The exit code. Raises NodelifeError."""
    namespace = ask.namespace_for(where)
    query = as_sent({"about": UNDO, "namespace": namespace, "name": name})
    view = look(where, answering.reading(query))
    for warning in view.warnings:
        terminal.warn(warning)
    question = answering.SetQuestion(UNDO, namespace, name, to_revision, output)
    sets, names = daemon_sets(view, namespace, name)(), answering.set_names(view)
    found = answering.DaemonSetsView(sets, view.source, [], names)
    outlook = answering.undo_of(found, question)
    output.show(UndoPage(outlook, view.source, dry_run=False))
    if outlook.plan.skipped:
        return 0
    return send_rollback(outlook.view.daemon_set, _action(outlook), where.connection, act)


def _action(outlook: UndoOutlook) -> RollBackDaemonSet:
    daemon_set, revision = outlook.view.daemon_set, outlook.plan.revision
    return RollBackDaemonSet(
        controller=ROLLOUT,
        because=f"rollout undo to revision {revision.revision}",
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        object_uid=daemon_set.uid,
        revision=revision.revision,
        patch=outlook.plan.patch,
    )
