"""`kubectl nodelife rollout`: status, history and undo of a DaemonSet, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering.query import HISTORY, QUESTION, STATUS, UNDO
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Connection, Output, connection_flags, output_flags
from kubectl_nodelife.commands.groups import SpellingGroup
from kubectl_nodelife.commands.writing import CLIENT, ActFlags, act_flags, not_for_dumps
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.engine.actions import RollBackDaemonSet
    from kubectl_nodelife.outlook.daemonset.undo import UndoOutlook


_KINDS = frozenset({"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"})
_SECOND_NS = 1_000_000_000


_subject = click.argument("subject", nargs=-1, metavar="daemonset NAME")


@click.group(cls=SpellingGroup)
@connection_flags
def rollout(connection: Connection) -> None:
    """What an update of a DaemonSet does next, what it changed, and what going back would do.

    Answered by the daemon where one watches the cluster, else by a first look at it.
    """


@rollout.command("status")
@_subject
@click.option("-w", "--watch", is_flag=True, help="Go on until the update is over.")
@click.option("--timeout", metavar="DURATION", help="How long to go on at most, such as 10m.")
@output_flags("table", "json", "yaml", "name", "markdown")
@where_flags("no_daemon", "profile")
def status(
    subject: tuple[str, ...],
    watch: bool,
    timeout: str | None,
    output: Output,
    where: Where,
) -> int:
    """How far an update is, what it does next, what it waits for, and how long still.

    With -w it waits for the end, as kubectl's own does by default: a word each time that there is
    something else to say.

    \b
    Examples:
      kubectl nodelife rollout status daemonset kube-proxy -n kube-system
      kubectl nodelife rollout status ds kube-proxy -n kube-system -w --timeout 10m
      kubectl nodelife rollout status ds/kube-proxy -n kube-system -f dump/ -o json
    """
    name = parse_subject(subject)
    if timeout and not watch:
        raise BadInput("is for --watch", on="--timeout")
    query = _query(STATUS, where, name, output)
    if not watch:
        return ask.answer(where, QUESTION, query)
    for response in ask.watch(where, QUESTION, {**query, "timeout": _seconds(timeout) or None}):
        ask.show(response)
        terminal.flush()
    return 0


@rollout.command("history")
@_subject
@click.option("--revision", type=int, default=0, metavar="N", help="One revision, whole.")
@output_flags()
@where_flags("no_daemon", "profile")
def history(
    subject: tuple[str, ...],
    revision: int,
    output: Output,
    where: Where,
) -> int:
    """The revisions of a set, and what changed from one to the next.

    \b
    Examples:
      kubectl nodelife rollout history daemonset kube-proxy -n kube-system
      kubectl nodelife rollout history ds/kube-proxy --revision 3 -n kube-system -f dump/
    """
    name = parse_subject(subject)
    if revision < 0:
        raise BadInput("must be a positive number", on="--revision")
    query = _query(HISTORY, where, name, output)
    return ask.answer(where, QUESTION, {**query, "revision": revision or None})


@rollout.command("undo")
@_subject
@click.option("--to-revision", type=int, default=0, metavar="N", help="0: the one before.")
@act_flags
@output_flags("table", "json", "yaml", "name", "markdown")
@where_flags("no_daemon", "profile")
def undo(
    subject: tuple[str, ...],
    to_revision: int,
    act: ActFlags,
    output: Output,
    where: Where,
) -> int:
    """Go back to a revision of a DaemonSet: show the patch and what follows, ask, and send it.

    The patch is kubectl's own. With --dry-run=client, or for a dump, nothing is sent.

    \b
    Examples:
      kubectl nodelife rollout undo daemonset kube-proxy -n kube-system --dry-run=client
      kubectl nodelife rollout undo daemonset kube-proxy -n kube-system --yes
      kubectl nodelife rollout undo ds/kube-proxy --to-revision 2 -n kube-system -f dump/ -o json
    """
    name = parse_subject(subject)
    not_for_dumps(where.filename, act)
    if where.filename or act.dry_run == CLIENT:
        query = _query(UNDO, where, name, output)
        return ask.answer(where, QUESTION, {**query, "revision": to_revision or None})

    return roll_back(where, name, to_revision, act, output)


def _query(about: str, where: Where, name: str, output: Output) -> dict[str, Any]:
    return {
        "about": about,
        "namespace": ask.namespace_for(where),
        "name": name,
        **output.query(),
    }


def parse_subject(words: tuple[str, ...]) -> str:
    """The name in `daemonset NAME`, `daemonset/NAME` or `ds/NAME`. Raises BadInput."""
    parts = [part for word in words for part in word.split("/")]
    if len(parts) == 2 and parts[0].lower() in _KINDS and parts[1]:
        return parts[1]
    given = " ".join(words) or "nothing"
    raise BadInput(f"which set is meant is unclear from {given!r}", remedy="write 'daemonset NAME'")


def _seconds(timeout: str | None) -> float:
    """A duration in seconds, 0 for none. Raises BadInput."""
    if not timeout:
        return 0.0
    from kubectl_nodelife.commands.flags import duration_ns

    return duration_ns(timeout, "--timeout") / _SECOND_NS


def roll_back(where: Where, name: str, to_revision: int, act: ActFlags, output: Output) -> int:
    """Show, ask, and send. The exit code. Raises NodelifeError."""
    from kubectl_nodelife.commands.answering import daemonset as answering
    from kubectl_nodelife.commands.answering.query import as_sent
    from kubectl_nodelife.commands.cluster.look import look
    from kubectl_nodelife.commands.writing import send_rollback
    from kubectl_nodelife.outlook.daemonset.document import daemon_sets
    from kubectl_nodelife.report.daemonset import UndoPage

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
    from kubectl_nodelife.commands.writing import ROLLOUT
    from kubectl_nodelife.engine.actions import RollBackDaemonSet

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
