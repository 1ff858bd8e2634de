"""`kubectl nodelife drain-plan`: will this drain finish, how long, and what stops it."""

from __future__ import annotations

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.drain_flags import DrainFlags, drain_flags
from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import BadInput

FORMATS = ("table", "wide", "json", "yaml", "name", "commands", "html", "markdown")

_QUESTION = "drain_plan"


@click.command("drain-plan")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--read", metavar="KINDS", default="", help="Kinds of which a dump has all.")
@click.option("-l", "--selector", help="Nodes with these labels, as in kubectl.")
@click.option("--all", "all_nodes", is_flag=True, help="All nodes.")
@drain_flags
@click.option("--exit-code", is_flag=True, help="Exit with 4 if the drain cannot finish.")
@output_flags(*FORMATS)
@where_flags("no_daemon", "profile")
@several_clusters("nodes that this drain does not empty")
def drain_plan(
    nodes: tuple[str, ...],
    read: str,
    selector: str | None,
    all_nodes: bool,
    exit_code: bool,
    output: Output,
    where: Where,
    flags: DrainFlags,
) -> int:
    """Will `kubectl drain` of these nodes finish, when, and if never, what exactly stops it?

    Nothing is written. The flags of kubectl drain mean what they mean there. Answered by the daemon
    where one watches the cluster, else by a first look at it, and it says which.

    \b
    Examples:
      kubectl nodelife drain-plan a1 --ignore-daemonsets
      kubectl nodelife drain-plan -l pool=blue --max-parallel 3 --max-per-zone 1 -f dump.json
      kubectl nodelife drain-plan a1 -o html -f dump/ > plan.html
    """
    flags.options(), flags.waves()  # refused here rather than where they are used
    if read and not where.filename:
        raise BadInput("is for dumps", on="--read", remedy="name a dump with -f")
    query = {
        "node": nodes,
        "selector": selector,
        "all": all_nodes,
        **flags._asdict(),
        "read": read,
        **(where.connection.for_kubectl() if output.format == "commands" else {}),
        **output.query(),
    }
    return ask.forked_answer(where, _QUESTION, query, exit_code=exit_code)
