"""`kubectl nodelife diverge`: our copy of the logic against what the cluster, or a dump, shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import click

from kubectl_nodelife.commands import ask, flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_NO, BadInput
from kubectl_nodelife.kube.names import shown_object
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page, Table, Widths, columns
from kubectl_nodelife.report.terminal import this_screen

_CODES: Final = {"differs": EXIT_NO, "not-evaluated": EXIT_FAILED}
_ONLY_A_DAEMON: Final = "and only one that watches can see it"


_KINDS: Final = ("Node", "Pod", "Lease", "Event")
_NOTED: Final = "noted in the snapshot"


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Go on: each finding as it comes.")
@click.option("--since", metavar="DURATION", help="Only what was seen since, such as 10m (1h).")
@click.option(
    "--exit-code", is_flag=True, help="Exit with 4 if something differs, 1 if nothing is judged."
)
@click.option("-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster.")
@flags.max_file_size
@flags.strict_files
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@click.option("--profile", metavar="v1.N", help="Of a dump: the release that is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="Of a dump.")
@flags.output_flags("table", "wide", "json", "yaml", "name", "markdown")
@flags.connection_flags
@several_clusters()
def diverge(
    watch: bool,
    since: str | None,
    exit_code: bool,
    filename: tuple[str, ...],
    now: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
    output: flags.Output,
    connection: flags.Connection,
) -> int:
    """Say where the cluster's controllers do not do what our copy of their logic would.

    Writes that are missing, late or of another client; a controller manager that does nothing, or
    one of its controllers; other settings than are assumed, and which are likely. Answered by the
    daemon, from what it saw in the last hour. With -f: what a dump shows undone, or done by others.

    \b
    Examples:
      kubectl nodelife diverge
      kubectl nodelife diverge -w
      kubectl nodelife diverge --since 10m -o json --exit-code
      kubectl nodelife diverge -f must-gather.tar.gz
    """
    query = {"since": None if since is None else flags.look_back_ns(since)}
    where = flags.Where(connection, filename, now, profile=profile, assignments=assignments)
    where.lead_here()
    judged = _of_dump(where, query["since"], watch=watch)
    if judged is None and watch:
        _watch(connection, query, output)
        return 0
    judged = judged or _of_daemon(connection, query)
    terminal.warn(*judged["notEvaluated"])
    output.show(divergence_page(judged))
    return _CODES.get(judged["verdict"], 0) if exit_code else 0


def _of_dump(where: flags.Where, since_ns: int | None, *, watch: bool) -> dict[str, Any] | None:
    """The document of a dump; None where none is named. Raises BadInput."""
    where.check()
    if not where.filename:
        if where.direct:
            flag = "--profile" if where.profile else "--set"
            raise BadInput("is for dumps", on=flag, remedy="name a dump with -f")
        return None
    if watch:
        raise BadInput("a dump does not change", on="--watch", remedy="leave -w away, or -f")

    judged, warnings = divergence_of_dump(where, since_ns)
    terminal.warn(*warnings)
    return judged


def _of_daemon(connection: flags.Connection, query: dict[str, Any]) -> dict[str, Any]:
    answer = ask.ask(connection, "diverge", **query)
    if answer is None:
        raise ask.no_daemon(_ONLY_A_DAEMON)
    judged: dict[str, Any] = answer["document"]
    return judged


def _watch(connection: flags.Connection, query: dict[str, Any], output: flags.Output) -> None:
    ask.refuse_whole_documents(output.format)
    answers = ask.follow(connection, "diverge", **query)
    if answers is None:
        raise ask.no_daemon(_ONLY_A_DAEMON)
    shown: set[object] = set()
    verdict, warned, widths = "", "", Widths(headers=output.headers)
    for answer in answers:
        judged = answer["document"]
        for sentence in judged["notEvaluated"]:
            if sentence not in warned:
                terminal.warn(sentence)
        warned = "\n".join(judged["notEvaluated"])
        news = [item for item in judged["items"] if same(item) not in shown]
        shown = {same(item) for item in judged["items"]}
        if output.format == "json":
            terminal.write(terminal.json_line(judged))
        elif output.format == "name":
            terminal.write("".join(f"{name}\n" for name in _names(news)))
        else:
            if judged["verdict"] != verdict:
                terminal.write(f"{judged['verdict']}: {judged['because']}\n")
                verdict = judged["verdict"]
            table, wide = Table(_COLUMNS, map(_row, news)), output.format == "wide"
            terminal.write("".join(table.lines(widths, wide=wide, screen=this_screen())))
        terminal.flush()


def divergence_of_dump(
    where: flags.Where, since_ns: int | None
) -> tuple[dict[str, Any], list[str]]:
    """The Divergence document, and what the reading warns of.

    `since_ns`: how far back others' writes are shown, None for all. Raises BadInput.
    """
    from msgspec.structs import replace

    from kubectl_nodelife.commands.cluster.look import view_of_dump
    from kubectl_nodelife.dumps.dump import OWN_CLOCK, load
    from kubectl_nodelife.kube.workload import Event
    from kubectl_nodelife.outlook.diverge.dump_observations import dump_observations
    from kubectl_nodelife.outlook.diverge.judgement import divergence_document, divergence_judgement
    from kubectl_nodelife.outlook.node import join_controllers

    dump = load(where.filename, where.now, where.profile)
    view = view_of_dump(dump, _KINDS, where.assignments)
    if "Node" in view.unread:
        remedy = "dump them as well: kubectl get nodes -o json --show-managed-fields"
        raise BadInput("no nodes were read, so that nothing can be judged", remedy=remedy)
    blind = "nothing in the dump says when it was taken"
    outlook, overdue = join_controllers(view.cache, view.settings, view.now_ns)
    record = dump_observations(
        outlook,
        overdue,
        [obj for obj in dump.objects if isinstance(obj, Event)],
        blind=blind if dump.moment_origin == OWN_CLOCK else "",
        noted=dump.moment_origin == _NOTED,
        unread=view.unread,
    )
    if since_ns is not None:
        record = replace(record, since_ns=max(record.since_ns, view.now_ns - since_ns))
    judgement = divergence_judgement(record, view.now_ns)
    source: dict[str, Any] = {"kind": "snapshot", "server": ", ".join(where.filename)}
    source |= {"context": None, "moment": view.moment}
    return divergence_document(judgement, record, view.now_ns, source), view.warnings


_COLUMNS = columns(
    "finding | object | expected | seen:2 | by:3 | sure:4 | controller* | action* | "
    "detail* | count* | message | expected because*"
)
_SETTINGS = columns("setting | assumed | likely | sure:4 | seen:2 | origin*")


def divergence_page(judged: dict[str, Any]) -> Page:
    """A Divergence document as an answer. Names: kind/name of each object with a finding, once."""
    return Page(partial(_blocks, judged), lambda: judged, lambda: _names(judged["items"]))


def _blocks(judged: dict[str, Any], *, wide: bool) -> Iterator[Block]:
    """The sentence, the findings, and what the settings look like; `wide` shows all guesses."""
    yield f"{judged['verdict']}: {judged['because']}"
    yield Table(_COLUMNS, [_row(item) for item in judged["items"]])
    shown = [s for s in judged["settings"] if wide or not s["agrees"]]
    yield Table(_SETTINGS, [_setting(s) for s in shown])


def _names(items: Iterable[dict[str, Any]]) -> Iterable[str]:
    return dict.fromkeys(shown_object(item["object"]).lower() for item in items)


def same(item: dict[str, Any]) -> tuple[object, ...]:
    """The identity of a finding a moment later."""
    by = item.get("by", {}).get("manager", "")
    words = (item.get(key) for key in ("action", "detail", "seenTime", "sure"))
    return (item["kind"], shown_object(item["object"]), by, item["count"], *words)


def _row(item: dict[str, Any]) -> list[object]:
    return [
        item["kind"],
        shown_object(item["object"]),
        _clock(item.get("expectedTime", "")),
        _clock(item.get("seenTime", "")),
        item.get("by", {}).get("manager", ""),
        item["sure"],
        item.get("controller", ""),
        item.get("action", ""),
        item.get("detail", ""),
        item["count"],
        item["message"],
        item.get("expectedBecause", ""),
    ]


def _setting(setting: dict[str, Any]) -> list[object]:
    assumed, likely = setting["assumed"], setting["likely"]
    words = ("sure", "seen", "origin")
    return [setting["flag"], assumed, likely, *(setting[word] for word in words)]


def _clock(time: str) -> str:
    """The time of day to the second: `14:43:50Z`; the document has the whole."""
    return f"{time[11:19]}Z" if time else ""
