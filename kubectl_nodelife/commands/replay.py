"""`kubectl nodelife replay`: the last hour as one timeline, each line saying who did it; made from
the daemon's journal, Events, and the traces that objects keep. That a source is missing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubectl_nodelife.commands import flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.commands.answering.replay import Traces
    from kubectl_nodelife.outlook.replay.timeline import ReplayFilter
    from kubectl_nodelife.report.replay import Replay


_AHEAD_NS = 5_000_000_000
"""Clocks of kubelets and of the server differ a little."""


@click.command()
@click.argument("subject", nargs=-1, metavar="[NODE | pod NAME]")
@click.option("--since", default="1h", metavar="DURATION", help="How far back, 1h if not given.")
@click.option("--drain", metavar="NODE", help="Look back on the drain of that node.")
@click.option("--plan", metavar="FILE", help="With --drain: what drain-plan -o json had promised.")
@click.option(
    "--all-events",
    "--all",
    "everything",
    is_flag=True,
    help="Also what happened to pods alone: scheduling, images, containers, statuses.",
)
@flags.output_flags("table", "wide", "json", "yaml", "html", "name", "markdown")
@flags.where_flags()
def replay(
    subject: tuple[str, ...],
    since: str,
    drain: str | None,
    plan: str | None,
    everything: bool,
    output: flags.Output,
    where: flags.Where,
) -> None:
    """What happened to nodes and their pods, when, by whom, and what led to it.

    Without a subject the page tells the story of nodes: what became of them, and which pods lost
    their place by it; --all-events has the rest, and documents have all of it.

    Told from the daemon's journal, the cluster's Events and what the objects keep; what several of
    them tell is one line. AFTER names the line that led to it, with a question mark where that is
    concluded and not known. Asked for one node or pod it shows what led to its lines, too.

    \b
    Examples:
      kubectl nodelife replay
      kubectl nodelife replay --all-events
      kubectl nodelife replay --since 20m node worker-1
      kubectl nodelife replay pod web-0 -n shop -o wide
      kubectl nodelife replay -o html > last-hour.html
      kubectl nodelife replay --drain worker-1 --since 2h
      kubectl nodelife replay -f must-gather.tar.gz
      kubectl nodelife replay --drain worker-1 --since 6h -f monday.json.gz
    """
    from kubectl_nodelife.commands import ask
    from kubectl_nodelife.commands.answering.replay import read_traces, review_page, traces_of_dump
    from kubectl_nodelife.outlook.replay.timeline import ReplayFilter

    since_ns = flags.look_back_ns(since)
    _check_drain(drain, plan, output)
    where.check()
    node, namespace, pod = ask.node_or_pod(subject, where)
    if where.filename:
        traces = traces_of_dump(where.filename, where.now, of_drain=drain is not None)
    else:
        traces = read_traces(where.connection, since_ns, of_drain=drain is not None)
    begin_ns = traces.now_ns - since_ns
    if drain is not None:
        output.show(review_page(traces, begin_ns, drain, plan))
        return
    wanted = ReplayFilter(
        begin_ns, traces.now_ns + _AHEAD_NS, node, (namespace, pod) if pod else None, everything
    )
    page = _replay(traces, wanted, begin_ns, whole=everything or bool(subject))
    _show(page, output, " ".join(subject))


def _check_drain(drain: str | None, plan: str | None, output: flags.Output) -> None:
    """Raises BadInput for what does not go with the review of a drain, or without it."""
    if plan is not None and drain is None:
        raise BadInput("is of a drain", on="--plan", remedy="give --drain NODE too")
    if drain is not None and output.format == "html":
        raise BadInput("there is no such page of one drain", on="-o html", remedy="use -o markdown")


def _replay(traces: Traces, wanted: ReplayFilter, begin_ns: int, *, whole: bool) -> Replay:
    from kubectl_nodelife.outlook.replay.timeline import timeline
    from kubectl_nodelife.report.replay import Replay

    lines = timeline(traces.sources, wanted)
    read = (traces.source, begin_ns, traces.now_ns, traces.warnings)
    return Replay(lines, *read, whole=whole, nodes=traces.sources.nodes)


def _show(replay: Replay, output: flags.Output, subject: str) -> None:
    from kubectl_nodelife.kube.times import format_time

    terminal.warn(*replay.warnings)
    if not replay.lines:
        begin, end = format_time(replay.since_ns), format_time(replay.until_ns)
        terminal.note(f"Nothing was found of nodes and pods from {begin} to {end}; see --since")
        if output.format in ("table", "wide", "name", "markdown"):
            return
    if output.format == "html":
        from kubectl_nodelife.report.replay import html_page

        terminal.write(html_page(replay, subject))
    else:
        output.show(replay.page())
