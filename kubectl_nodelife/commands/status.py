"""`kubectl nodelife status`: a clock for each node, a block for each zone.

Through the daemon this is the quick path: the daemon makes the text, and nothing is imported here
but click, a socket and json. Everything else is imported where it is needed.
"""

from __future__ import annotations

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.report import terminal

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


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-l", "--selector", help="Only nodes with these labels, as in kubectl.")
@click.option("--trouble", is_flag=True, help="Only nodes that are in trouble.")
@click.option(
    "--sort-by",
    type=click.Choice(SORT_KEYS),
    help="Which nodes come first; else by name, trouble first where there are more than 50.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on: a line for each node that changes.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a node is in trouble.")
@output_flags()
@where_flags("no_daemon", "profile", "assignments")
def status(
    nodes: tuple[str, ...],
    selector: str | None,
    trouble: bool,
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
      kubectl nodelife status --trouble --sort-by unknown-in
      kubectl nodelife status -f dump/ -o wide
      kubectl nodelife status -l topology.kubernetes.io/zone=a -o json
    """
    query: dict[str, object] = {
        "node": nodes,
        "selector": selector,
        "sort": sort_by,
        "trouble": trouble or None,
        **output.query(),
    }
    if not watch:
        return ask.answer(where, "status", query, exit_code=exit_code)
    for told in ask.for_ever(ask.watch(where, "status", query)):
        ask.show(told)
        terminal.flush()
    return 0
