"""`kubectl nodelife replay`: the last hour as one timeline, each line saying who did it.

Made from the daemon's journal, Events, and the traces that objects keep. Each source may be
missing, and that is said.
"""

from __future__ import annotations

import click

from kubectl_nodelife.commands.cluster.direct import target_of
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.drain_review import drain_traces, review_page
from kubectl_nodelife.commands.explain import parse_subject
from kubectl_nodelife.commands.flags import Connection, Output, output_flags
from kubectl_nodelife.commands.replay_sources import read_traces
from kubectl_nodelife.commands.replay_sources_of_dump import drain_traces_of, traces_of_dump
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, timeline
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.replay import ReplayPage


@click.command()
@click.argument("subject", nargs=-1, metavar="[node NAME | pod NAME]")
@click.option("--since", default="1h", metavar="DURATION", help="How far back, 1h if not given.")
@click.option("--drain", metavar="NODE", help="Look back on the drain of that node.")
@click.option("--plan", metavar="FILE", help="With --drain: what drain-plan -o json had promised.")
@click.option(
    "--all", "everything", is_flag=True, help="Also images, containers started, DaemonSet statuses."
)
@output_flags("table", "wide", "json", "yaml", "html", "name", "markdown")
@where_flags()
def replay(
    subject: tuple[str, ...],
    since: str,
    drain: str | None,
    plan: str | None,
    everything: bool,
    output: Output,
    where: Where,
) -> None:
    """What happened to nodes and their pods, when, by whom, and what led to it.

    Told from the daemon's journal, the cluster's Events and what the objects keep; what several of
    them tell is one line. AFTER names the line that led to it, with a question mark where that is
    concluded and not known. Asked for one node or pod it shows what led to its lines, too.

    \b
    Examples:
      kubectl nodelife replay
      kubectl nodelife replay --since 20m node worker-1
      kubectl nodelife replay pod web-0 -n shop -o wide
      kubectl nodelife replay -o html > last-hour.html
      kubectl nodelife replay --drain worker-1 --since 2h
      kubectl nodelife replay -f must-gather.tar.gz
      kubectl nodelife replay --drain worker-1 --since 6h -f monday.json.gz
    """
    since_ns = _since_ns(since)
    if plan is not None and drain is None:
        raise BadInput("is of a drain", on="--plan", remedy="give --drain NODE too")
    where.check()
    connection = where.connection
    node, pod = _subject(subject, connection, of_dump=bool(where.filename))
    of_dump = traces_of_dump(where.filename, where.now) if where.filename else None
    found = of_dump.traces if of_dump is not None else read_traces(connection, since_ns)
    begin_ns = found.now_ns - since_ns
    if drain is not None:
        more = drain_traces_of(of_dump.dump) if of_dump else drain_traces(connection)
        output.show(review_page(found, more, begin_ns, drain, plan))
        return
    wanted = ReplayFilter(begin_ns, found.now_ns + _AHEAD_NS, node, pod, everything)
    lines = timeline(found.sources, wanted)
    page = ReplayPage(lines, found.source, begin_ns, found.now_ns, found.warnings)
    _show(page, output, " ".join(subject))


def _show(page: ReplayPage, output: Output, subject: str) -> None:
    for warning in page.warnings:
        terminal.warn(warning)
    if not page.lines:
        terminal.note("Nothing was found")
        if output.format in ("table", "wide", "name", "markdown"):
            return
    if output.format == "html":
        from kubectl_nodelife.report.replay_html import page as html

        terminal.write(html(page, subject))
    else:
        output.show(page)


_AHEAD_NS = 5_000_000_000
"""Clocks of kubelets and of the server differ a little."""


def _since_ns(since: str) -> int:
    from kubectl_nodelife.commands.durations import duration_ns

    since_ns = duration_ns(since, "--since")
    if since_ns <= 0:
        raise BadInput("must be longer than nothing", on="--since", remedy="write for example 1h")
    return since_ns


def _subject(
    subject: tuple[str, ...], connection: Connection, *, of_dump: bool
) -> tuple[str, tuple[str, str] | None]:
    """(node, (namespace, pod)); "" and None where not asked for."""
    if not subject:
        return "", None
    kind, namespace, name = parse_subject(subject, connection.namespace)
    if kind == "Node":
        return name, None
    if not namespace:
        namespace = "default" if of_dump else target_of(connection).namespace
    return "", (namespace, name)
