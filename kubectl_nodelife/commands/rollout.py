"""`kubectl nodelife rollout`: status, history and undo of a DaemonSet, explained."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.daemonset import find, missing, sets_of, view_of
from kubectl_nodelife.commands.dumps import load, source_of
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot
from kubectl_nodelife.commands.pflag import SpellingGroup
from kubectl_nodelife.controllers.daemonset.rollout import (
    NO_HISTORY,
    RolloutError,
    revision_of_number,
)
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.outlook.daemonset.rollout import (
    history_rows,
    rollout_outlook,
    undo_outlook,
)
from kubectl_nodelife.outlook.daemonset.view import SetView
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.daemonset import HistoryPage, RolloutPage, UndoPage
from kubectl_nodelife.report.formats import render

_KINDS = frozenset({"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"})


@click.group(cls=SpellingGroup)
@connection_flags
def rollout(connection: Connection) -> None:
    """What an update of a DaemonSet does next, what it changed, and what going back would do."""


_SUBJECT = click.argument("subject", nargs=-1, metavar="daemonset NAME")
_FILENAME = click.option(
    "-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster."
)
_PROFILE = click.option(
    "--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed."
)
_NOW = click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")


@rollout.command("status")
@_SUBJECT
@_FILENAME
@_PROFILE
@_NOW
@output_flags("table", "json", "yaml", "name")
@connection_flags
def status(
    subject: tuple[str, ...],
    filename: tuple[str, ...],
    profile: str | None,
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """How far an update is, what it does next, what it waits for, and how long still.

    \b
    Examples:
      kubectl nodelife rollout status daemonset kube-proxy -n kube-system -f dump/
      kubectl nodelife rollout status ds/kube-proxy -n kube-system -f dump/ -o json
    """
    snapshot, view = _subject(subject, filename, now, profile, connection)
    try:
        outlook = rollout_outlook(view)
    except RolloutError as error:
        raise Failed(str(error), on=_name(view)) from None
    page = RolloutPage(outlook, source_of(snapshot))
    terminal.write(render(page, output, headers=not no_headers))
    return 0


@rollout.command("history")
@_SUBJECT
@click.option("--revision", type=int, default=0, metavar="N", help="One revision, whole.")
@_FILENAME
@_PROFILE
@_NOW
@output_flags()
@connection_flags
def history(
    subject: tuple[str, ...],
    revision: int,
    filename: tuple[str, ...],
    profile: str | None,
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """The revisions of a set, and what changed from one to the next.

    \b
    Examples:
      kubectl nodelife rollout history daemonset kube-proxy -n kube-system -f dump/
      kubectl nodelife rollout history ds/kube-proxy --revision 3 -n kube-system -f dump/
    """
    snapshot, view = _subject(subject, filename, now, profile, connection)
    if revision < 0:
        raise BadInput("must be a positive number", on="--revision")
    if revision:
        try:
            revision_of_number(view.revisions, revision)
        except RolloutError as error:
            raise Failed(str(error), on=_name(view)) from None
    rows = history_rows(view)
    if not rows and output in ("table", "wide"):
        terminal.write(f"{NO_HISTORY}\n")
        return 0
    namespace, name = view.daemon_set.key
    source = source_of(snapshot)
    page = HistoryPage(namespace, name, rows, source, snapshot.moment_ns, revision)
    terminal.write(render(page, output, headers=not no_headers))
    return 0


@rollout.command("undo")
@_SUBJECT
@click.option("--to-revision", type=int, default=0, metavar="N", help="0: the one before.")
@_FILENAME
@_PROFILE
@_NOW
@output_flags("table", "json", "yaml", "name")
@connection_flags
def undo(
    subject: tuple[str, ...],
    to_revision: int,
    filename: tuple[str, ...],
    profile: str | None,
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """What going back to a revision would patch, and what follows. Nothing is written.

    \b
    Examples:
      kubectl nodelife rollout undo daemonset kube-proxy -n kube-system -f dump/
      kubectl nodelife rollout undo ds/kube-proxy --to-revision 2 -n kube-system -f dump/ -o json
    """
    snapshot, view = _subject(subject, filename, now, profile, connection)
    try:
        outlook = undo_outlook(view, to_revision)
    except RolloutError as error:
        raise Failed(str(error), on=_name(view)) from None
    page = UndoPage(outlook, source_of(snapshot))
    terminal.write(render(page, output, headers=not no_headers))
    return 0


def _subject(
    subject: tuple[str, ...],
    filename: tuple[str, ...],
    now: str | None,
    profile: str | None,
    connection: Connection,
) -> tuple[Snapshot, SetView]:
    """The dump and the set that is asked for. Raises BadInput and Failed."""
    name = parse_subject(subject)
    if not filename:
        raise BadInput("no input", remedy="name a dump with -f")
    snapshot = load(filename, now, profile)
    for warning in (*snapshot.warnings, *missing(snapshot)):
        terminal.warn(warning)
    sets = sets_of(snapshot, ())
    return snapshot, view_of(sets, find(sets, name, connection.namespace))


def parse_subject(words: tuple[str, ...]) -> str:
    """The name in `daemonset NAME`, `daemonset/NAME` or `ds/NAME`. Raises BadInput."""
    parts = [part for word in words for part in word.split("/")]
    if len(parts) == 2 and parts[0].lower() in _KINDS and parts[1]:
        return parts[1]
    given = " ".join(words) or "nothing"
    raise BadInput(f"cannot tell which set is meant by {given!r}", remedy="write 'daemonset NAME'")


def _name(view: SetView) -> str:
    return f"daemonset {view.daemon_set.namespace}/{view.daemon_set.name}"
