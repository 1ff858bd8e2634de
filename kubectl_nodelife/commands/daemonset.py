"""`kubectl nodelife daemonset`: why sets have the pods they have; status, history, undo of updates.

`daemonset NAME` is short for `daemonset show NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubectl_nodelife.commands import ask, flags, writing
from kubectl_nodelife.commands.answering import (
    HISTORY,
    NODES,
    QUESTION,
    STATUS,
    SUMMARY,
    UNDO,
    SetQuestion,
    as_sent,
    asked,
)
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import DAEMON_SET, Subject, parse_subject
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.engine.actions import RollBackDaemonSet
    from kubectl_nodelife.outlook.daemonset.rollout_outlook import UndoOutlook


_SECOND_NS = 1_000_000_000


_subject = click.argument("subject", nargs=-1, metavar="DAEMONSET")


@click.group(cls=flags.DefaultGroup, default="show")
@flags.connection_flags
def daemonset(connection: flags.Connection) -> None:
    """Why a DaemonSet has the pods that it has, how its update goes on, and going back.

    Without a command it is `show`. Answered by the daemon where one watches the cluster, else by a
    first look at it.

    \b
    Examples:
      kubectl nodelife daemonset -A
      kubectl nodelife daemonset kube-proxy --nodes -n kube-system
      kubectl nodelife daemonset status kube-proxy -n kube-system
    """


@daemonset.command("show", short_help="Its counts, what is odd, and each node's rule.")
@click.argument("subject", nargs=-1, metavar="[DAEMONSET]")
@click.option("--nodes", "per_node", is_flag=True, help="Each node with the rule that decides.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The sets of all namespaces.")
@click.option("-l", "--selector", help="Only sets with these labels, as in kubectl.")
@flags.output_flags()
@flags.where_flags("no_daemon", "profile", "assignments")
def show(
    subject: tuple[str, ...],
    per_node: bool,
    all_namespaces: bool,
    selector: str | None,
    output: flags.Output,
    where: flags.Where,
) -> int:
    """Why does a DaemonSet have the pods that it has? Its counts, and what is odd about them.

    With --nodes each node is shown with the rule that decides: which taint, selector or affinity
    term keeps a pod away, which pod is there, and what the controller does next. Answered by the
    daemon where one watches the cluster, else by a first look at it.

    \b
    Examples:
      kubectl nodelife daemonset show -A
      kubectl nodelife daemonset show kube-proxy -n kube-system
      kubectl nodelife daemonset show kube-proxy --nodes -n kube-system -o wide
      kubectl nodelife daemonset show -A --nodes
      kubectl nodelife daemonset show -A -f dump/
    """
    from kubectl_nodelife.kube.selectors import label_selector

    named = parse_subject(subject, (DAEMON_SET,), DAEMON_SET) if subject else None
    label_selector(selector, subject)
    if per_node and not named and output.format not in ("table", "wide"):
        raise BadInput(
            f"is about one set with -o {output.format}", on="--nodes", remedy="name the set"
        )
    question = SetQuestion(
        NODES if per_node else SUMMARY,
        "" if all_namespaces else _namespace(where, named),
        named.name if named else "",
        selector,
    )
    return ask.answer(where, QUESTION, asked(question, output))


@daemonset.command("status", short_help="How far its update is, and what it waits for.")
@_subject
@click.option(
    "-w",
    "--watch/--no-watch",
    "watch",
    default=None,
    help="Go on until the update is over; the default where a daemon watches.",
)
@click.option("--timeout", metavar="DURATION", help="How long to go on at most, such as 10m.")
@flags.output_flags("table", "json", "yaml", "name", "markdown")
@flags.where_flags("no_daemon", "profile")
def status(
    subject: tuple[str, ...],
    watch: bool | None,
    timeout: str | None,
    output: flags.Output,
    where: flags.Where,
) -> int:
    """How far an update is, what it does next, what it waits for, and how long still.

    As kubectl's own it waits for the end, and says a word each time that there is something else
    to say: where a daemon watches the cluster, and not for a document or with --watch=false.

    \b
    Examples:
      kubectl nodelife daemonset status kube-proxy -n kube-system
      kubectl nodelife daemonset status kube-proxy -n kube-system --timeout 10m
      kubectl nodelife daemonset status ds/kube-proxy -n kube-system -f dump/ -o json
    """
    named = parse_subject(subject, (DAEMON_SET,), DAEMON_SET)
    if timeout and watch is False:
        raise BadInput("is for --watch", on="--timeout")
    question = SetQuestion(STATUS, _namespace(where, named), named.name)
    waiting = asked(question._replace(timeout=_seconds(timeout)), output)
    answers = None
    if watch or timeout:
        answers = ask.watch(where, QUESTION, waiting)
    elif watch is None and output.format == "table" and not (where.filename or where.direct):
        answers = ask.follow(where.connection, QUESTION, **waiting, **ask.on_this_screen())
    if answers is None:
        return ask.answer(where, QUESTION, asked(question, output))
    for response in answers:
        ask.show(response)
        terminal.flush()
    return 0


@daemonset.command("history", short_help="Its revisions, and what changed in each.")
@_subject
@click.option("--revision", type=int, default=0, metavar="N", help="One revision, whole.")
@flags.output_flags()
@flags.where_flags("no_daemon", "profile")
def history(
    subject: tuple[str, ...],
    revision: int,
    output: flags.Output,
    where: flags.Where,
) -> int:
    """The revisions of a set, and what changed from one to the next.

    \b
    Examples:
      kubectl nodelife daemonset history kube-proxy -n kube-system
      kubectl nodelife daemonset history ds/kube-proxy --revision 3 -n kube-system -f dump/
    """
    named = parse_subject(subject, (DAEMON_SET,), DAEMON_SET)
    if revision < 0:
        raise BadInput("must be a positive number", on="--revision")
    question = SetQuestion(HISTORY, _namespace(where, named), named.name, revision=revision)
    return ask.answer(where, QUESTION, asked(question, output))


@daemonset.command("undo", short_help="Go back to a revision: show, ask, and send.")
@_subject
@click.option("--to-revision", type=int, default=0, metavar="N", help="0: the one before.")
@writing.act_flags
@flags.output_flags("table", "json", "yaml", "name", "markdown")
@flags.where_flags("no_daemon", "profile")
def undo(
    subject: tuple[str, ...],
    to_revision: int,
    act: writing.ActFlags,
    output: flags.Output,
    where: flags.Where,
) -> int:
    """Go back to a revision of a DaemonSet: show the patch and what follows, ask, and send it.

    The patch is kubectl's own. With --dry-run=client, or for a dump, nothing is sent.

    \b
    Examples:
      kubectl nodelife daemonset undo kube-proxy -n kube-system --dry-run=client
      kubectl nodelife daemonset undo kube-proxy -n kube-system --yes
      kubectl nodelife daemonset undo ds/kube-proxy --to-revision 2 -n kube-system -f dump/ -o json
    """
    named = parse_subject(subject, (DAEMON_SET,), DAEMON_SET)
    writing.not_for_dumps(where.filename, act)
    question = SetQuestion(UNDO, _namespace(where, named), named.name, revision=to_revision)
    if where.filename or act.dry_run == writing.CLIENT:
        return ask.answer(where, QUESTION, asked(question, output))
    return roll_back(where, question, act, output)


def _namespace(where: flags.Where, named: Subject | None) -> str:
    return (named.namespace if named else "") or ask.namespace_for(where)


def _seconds(timeout: str | None) -> float:
    """A duration in seconds, 0 for none. Raises BadInput."""
    if not timeout:
        return 0.0
    return flags.duration_ns(timeout, "--timeout") / _SECOND_NS


def roll_back(
    where: flags.Where, question: SetQuestion, act: writing.ActFlags, output: flags.Output
) -> int:
    """Show, ask, and send. The exit code. Raises NodelifeError."""
    from kubectl_nodelife.commands.answering import daemonset as answering
    from kubectl_nodelife.commands.cluster.look import look
    from kubectl_nodelife.outlook.daemonset.summary import daemon_sets
    from kubectl_nodelife.report.daemonset import undo_page

    view = look(where, answering.reading(as_sent(question._asdict())))
    terminal.warn(*view.warnings)
    sets = daemon_sets(view, question.namespace, question.name)()
    names = answering.set_names(view)
    set_view = answering.DaemonSetsView(sets, view.source, [], names)
    outlook = answering.undo_of(set_view, question)
    output.show(undo_page(outlook, view.source, dry_run=False))
    if outlook.plan.skipped:
        return 0
    return writing.send_rollback(outlook.view.daemon_set, _action(outlook), where.connection, act)


def _action(outlook: UndoOutlook) -> RollBackDaemonSet:
    from kubectl_nodelife.engine.actions import RollBackDaemonSet, of_object

    daemon_set, revision = outlook.view.daemon_set, outlook.plan.revision
    return RollBackDaemonSet(
        controller=writing.ROLLOUT,
        because=f"rollout undo to revision {revision.revision}",
        **of_object(daemon_set),
        revision=revision.revision,
        patch=outlook.plan.patch,
    )
