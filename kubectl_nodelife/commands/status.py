"""`kubectl nodelife status`: a clock for each node, a block for each zone.

Through the daemon this is the quick path: the daemon makes the text, and nothing is imported here
but click, a socket and json. Everything else is imported where it is needed.
"""

from __future__ import annotations

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering import StatusQuestion, asked
from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.terminal import is_terminal, this_screen

SORT_KEYS = [
    "name",
    "zone",
    "ready",
    "lease-age",
    "status-age",
    "unknown-in",
    "pods",
    "next-eviction",
    "trouble",
]
"""Those of answers.status, which is not imported for them: a test holds the two together."""

MOST_ON_A_TERMINAL = 50
"""So many nodes a table shows there, so that its first lines do not scroll away."""


def _most_shown(all_nodes: bool) -> int:
    return 0 if all_nodes or not is_terminal() else MOST_ON_A_TERMINAL


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-l", "--selector", help="Only nodes with these labels, as in kubectl.")
@click.option(
    "--field-selector",
    default="",
    metavar="FIELD=VALUE[,...]",
    help="Only nodes of that metadata.name or spec.unschedulable; != leaves them out.",
)
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="KEY[,...]",
    help="Columns with the values of these labels.",
)
@click.option("--show-labels", is_flag=True, help="A last column with all labels.")
@click.option("--trouble", is_flag=True, help="Only nodes that are in trouble.")
@click.option(
    "--all",
    "all_nodes",
    is_flag=True,
    help="All nodes, also on a terminal: there a table has the 50 first, and says how many more.",
)
@click.option(
    "--sort-by",
    type=click.Choice(SORT_KEYS),
    metavar="KEY",
    help=f"Which nodes come first, by one of {', '.join(SORT_KEYS)}; else by name, trouble first "
    "where there are more than 50.",
)
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Go on: drawn anew each second; not on a terminal a line for each node that changes.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a node is in trouble.")
@output_flags()
@where_flags("no_daemon", "profile", "assignments")
@several_clusters("nodes in trouble", well_by=("all_nodes", "nodes"))
def status(
    nodes: tuple[str, ...],
    selector: str | None,
    field_selector: str,
    label_columns: tuple[str, ...],
    show_labels: bool,
    trouble: bool,
    all_nodes: bool,
    sort_by: str | None,
    watch: bool,
    exit_code: bool,
    output: Output,
    where: Where,
) -> int:
    """How long until each node is called Unknown, tainted, its pods deleted; each zone's brake.

    Answered by the daemon where one watches the cluster, else by a first look at it, and it says
    which. --profile and --set need a first look: the daemon has its own.

    \b
    Examples:
      kubectl nodelife status
      kubectl nodelife status -w
      kubectl nodelife status --sort-by unknown-in
      kubectl nodelife status -f dump/ -o wide
      kubectl nodelife status --field-selector spec.unschedulable=true --show-labels
      kubectl nodelife status -l topology.kubernetes.io/zone=a -o json
    """
    question = StatusQuestion(
        node=nodes,
        selector=selector or "",
        fields=field_selector,
        label=tuple(key for keys in label_columns for key in keys.split(",")),
        labels=show_labels,
        sort=sort_by or "",
        trouble=trouble,
        most=_most_shown(all_nodes or bool(nodes)),
    )
    query = asked(question, output)
    if not watch:
        return ask.answer(where, "status", query, exit_code=exit_code)
    if output.format in ("table", "wide") and this_screen().width:
        ask.check_watch(where, query)
        ask.draw_each_second(
            lambda: ask.ask(where.connection, "status", **query, **ask.on_this_screen())
        )
    for response in ask.for_ever(ask.watch(where, "status", query)):
        ask.show(response)
        terminal.flush()
    return 0
