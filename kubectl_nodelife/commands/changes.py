"""`kubectl nodelife changes`: what the daemon would have changed, with reasons, and how it ended;
of a dump, what was changed and by whom.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering.query import ChangesQuestion
from kubectl_nodelife.commands.flags import Connection, Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.subjects import NODE, POD, parse_subject
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.changes import changes_page, lines
from kubectl_nodelife.report.table import Widths
from kubectl_nodelife.report.terminal import ENDLESS, this_screen

OUTCOMES = (
    *("would", "applied", "confirmed", "decided", "superseded", "failed", "held", "sent"),
    "attempted",
)


_AHEAD_NS: Final = 5 * 10**9
"""Clocks of kubelets and of the server differ a little."""


@click.command()
@click.argument("subject", nargs=-1, metavar="[NODE | pod NAME]")
@click.option("-w", "--watch", is_flag=True, help="Go on: each change as it comes and ends.")
@click.option("--since", metavar="DURATION", help="Only what was decided since, such as 10m.")
@click.option(
    "--outcome", type=click.Choice(OUTCOMES), metavar="WORD", help=f"One of {', '.join(OUTCOMES)}."
)
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
@where_flags()
@several_clusters()
def changes(
    subject: tuple[str, ...],
    watch: bool,
    since: str | None,
    outcome: str | None,
    output: Output,
    where: Where,
) -> None:
    """Say what the controllers would change, or have changed, when, why, and how it ended.

    `would`: planned, and the cluster does not show it; `confirmed`: the cluster shows it, done by
    another; `decided`: a timer was set, a node queued, and what follows is confirmed;
    `superseded`: overtaken by something else; `applied`, `failed`, `held`: of what was written, by
    an enforcing daemon or by `repair`, `daemonset undo` and `drain`. With -f: what the dump's
    Events, managedFields and conditions tell was done to nodes and pods, and by whom.

    \b
    Examples:
      kubectl nodelife changes --since 10m
      kubectl nodelife changes -w
      kubectl nodelife changes node worker-1 --outcome would
      kubectl nodelife changes pod web-0 -n shop -o json
      kubectl nodelife changes node worker-1 -f must-gather.tar.gz
    """
    where.check()
    connection = where.connection
    question = _question(subject, since, outcome, connection, of_dump=bool(where.filename))
    if where.filename:
        _of_dump(where, question, watch, output)
        return
    if watch:
        _watch(connection, question, output)
        return
    acts = _of_acts(connection, question)
    answer = ask.ask(connection, "changes", **question._asdict())
    source: dict[str, Any] = {"kind": "daemon"}
    if answer is None:
        answer, source = _from_file(connection, question, acts), {"kind": "journal"}
    for warning in answer.get("warnings", ()):
        terminal.warn(warning)
    source |= {key: answer[key] for key in ("server", "identity") if key in answer}
    items = sorted([*answer["items"], *acts], key=lambda item: str(item["time"]))
    _show(items, source, output)


def _show(items: list[dict[str, Any]], source: dict[str, Any], output: Output) -> None:
    if not items:
        terminal.note("No changes found")
        if output.format in ("table", "wide", "name", "markdown"):
            return
    cut = output.format == "table" and not terminal.is_verbose()
    output.show(changes_page(items, source, screen=this_screen() if cut else ENDLESS))


def _of_dump(where: Where, question: ChangesQuestion, watch: bool, output: Output) -> None:
    """Show the changes in a dump. Raises BadInput."""
    if watch:
        raise BadInput("a dump does not change", on="--watch", remedy="leave -w away, or -f")
    answer = changes_of_dump(where.filename, where.now, question)
    for warning in answer["warnings"]:
        terminal.warn(warning)
    _show(answer["items"], answer["source"], output)


def _question(
    subject: tuple[str, ...],
    since: str | None,
    outcome: str | None,
    connection: Connection,
    *,
    of_dump: bool,
) -> ChangesQuestion:
    question = ChangesQuestion(outcome or "")
    if subject:
        kind, namespace, name = parse_subject(subject, (NODE, POD), NODE)
        namespace = namespace or connection.namespace or ""
        if kind == NODE:
            question = question._replace(node=name)
        else:
            line = None if namespace or of_dump else ask.find(connection)
            namespace = namespace or (line.known.namespace if line else "default")
            question = question._replace(namespace=namespace, pod=name)
    if since:
        from kubectl_nodelife.commands.flags import duration_ns

        question = question._replace(since=duration_ns(since, "--since"))
    return question


def _watch(connection: Connection, question: ChangesQuestion, output: Output) -> None:
    ask.refuse_whole_documents(output.format)
    if output.format in ("table", "wide") and this_screen().width:
        ask.draw_each_second(lambda: _drawn(connection, question, output), newest_last=True)
    headers = output.headers
    answers = ask.follow(connection, "changes", **question._asdict())
    if answers is None:
        raise ask.no_daemon()
    widths = Widths()
    for answer in ask.for_ever(answers):
        for warning in answer.get("warnings", ()):
            terminal.warn(warning)
        items = answer["items"]
        if output.format == "json":
            terminal.write(_one_a_line(items))
        elif output.format == "name":
            terminal.write("".join(f"{name}\n" for name in changes_page(items, {}).names()))
        else:
            new = lines(items, widths, wide=output.format == "wide", headers=headers)
            headers = headers and not new
            terminal.write("".join(new))
        terminal.flush()


def _drawn(
    connection: Connection, question: ChangesQuestion, output: Output
) -> dict[str, Any] | None:
    """The changes as they stand now, each on one line."""
    answer = ask.ask(connection, "changes", **question._asdict())
    if answer is None:
        return None
    items = sorted(answer["items"], key=lambda item: str(item["time"]))
    text = output.render(changes_page(items, {}, briefly=True)) if items else "No changes yet"
    return {"text": text, "warnings": answer.get("warnings", ())}


def _one_a_line(items: list[dict[str, Any]]) -> str:
    import json

    made = (json.dumps(document("Change", **item), ensure_ascii=False) for item in items)
    return "".join(f"{terminal.escape_json(text)}\n" for text in made)


def _of_acts(connection: Connection, question: ChangesQuestion) -> list[dict[str, Any]]:
    """The writes that `repair`, `daemonset undo` and `drain` have made from this machine."""
    if connection.via:
        return []
    import time

    from kubectl_nodelife.daemon.changes import changes_of_acts
    from kubectl_nodelife.daemon.paths import journal_path

    line = ask.find(connection)
    known = line.known if line is not None else ask.resolve(connection)
    folder = os.path.dirname(journal_path(dict(os.environ), known.identity))
    if not folder:
        return []
    return changes_of_acts(folder, question.chosen(time.time_ns()))


def _from_file(
    connection: Connection, question: ChangesQuestion, acts: list[dict[str, Any]]
) -> dict[str, Any]:
    """The journal that a daemon has left at its end. Raises Unreachable where there is none."""
    import sqlite3
    import time

    from kubectl_nodelife.daemon.changes import document, read_only
    from kubectl_nodelife.daemon.paths import journal_path

    known = ask.resolve(connection)
    wanted = question.chosen(time.time_ns())
    try:
        found = read_only(journal_path(dict(os.environ), known.identity), wanted)
    except (OSError, sqlite3.Error):
        if acts:
            return {"items": [], "server": known.server, "identity": known.identity}
        raise ask.no_daemon() from None
    return {
        "items": [document(change) for change in found],
        "server": known.server,
        "identity": known.identity,
        "warnings": ["no daemon watches this cluster: this is what the last one has left"],
    }


def changes_of_dump(
    filename: Sequence[str], now: str | None, question: ChangesQuestion
) -> dict[str, Any]:
    """The answer that a daemon would give: items, source, warnings.

    `since` is counted back from the dump's moment. Raises BadInput.
    """
    from kubectl_nodelife.commands.replay_sources import traces_of_dump
    from kubectl_nodelife.outlook.replay.lines import changes_seen
    from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, timeline

    found = traces_of_dump(filename, now)
    since_ns = 0 if question.since is None else found.now_ns - question.since
    until_ns = found.now_ns + _AHEAD_NS
    wanted = ReplayFilter(since_ns, until_ns, question.node, question.one_pod)
    items = changes_seen(timeline(found.sources, wanted))
    chosen = [item for item in items if question.outcome in ("", item["outcome"])]
    return {"items": chosen, "source": found.source, "warnings": found.warnings}
