"""`kubectl nodelife drain-plan`: will this drain finish, how long, and what stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.drain_flags import drain_flags, drain_options, wave_options
from kubectl_nodelife.commands.flags import Connection, Output, output_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_NO, BadInput, Failed, NotFound
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.drain.results import DrainPlan
    from kubectl_nodelife.drain.snapshot import PlanSnapshot

FORMATS = ("table", "wide", "json", "yaml", "name", "commands", "html", "markdown")


@click.command("drain-plan")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--read", metavar="KINDS", default="", help="Kinds of which a dump has all.")
@click.option("-l", "--selector", help="Nodes with these labels, as in kubectl.")
@click.option("--all", "all_nodes", is_flag=True, help="All nodes.")
@drain_flags
@click.option("--exit-code", is_flag=True, help="Exit with 4 if the drain cannot finish.")
@output_flags(*FORMATS)
@where_flags("profile")
@several_clusters(timeout_flag="--cluster-timeout")
def drain_plan(
    nodes: tuple[str, ...],
    read: str,
    selector: str | None,
    all_nodes: bool,
    exit_code: bool,
    output: Output,
    where: Where,
    **flags: Any,
) -> int:
    """Will `kubectl drain` of these nodes finish, when, and if never, what exactly stops it?

    Nothing is written. The flags of kubectl drain mean what they mean there.

    \b
    Examples:
      kubectl nodelife drain-plan a1 --ignore-daemonsets
      kubectl nodelife drain-plan -l pool=blue --max-parallel 3 --max-per-zone 1 -f dump.json
      kubectl nodelife drain-plan a1 -o html -f dump/ > plan.html
    """
    from kubectl_nodelife.commands.cluster.drain import look_for_drain
    from kubectl_nodelife.drain.plan import make_plan, make_wave_plan
    from kubectl_nodelife.drain.results import NEVER, REFUSED
    from kubectl_nodelife.report.drain_script import script

    options, waves = drain_options(flags), wave_options(flags)
    found = look_for_drain(where, read)
    if not found.snapshot.was_read("Pod"):
        remedy = "dump them as well: kubectl get pods -A -o json"
        raise BadInput("no pods were read, so that no drain can be planned", remedy=remedy)
    names = choose_nodes(found.snapshot, nodes, selector, all_nodes)
    if waves is None:
        plan = make_plan(found.snapshot, names, options)
    else:
        plan = make_wave_plan(found.snapshot, names, options, waves)
    plan.warnings = [*found.warnings, *plan.warnings]
    for warning in plan.warnings:
        terminal.warn(warning)
    if output.format == "commands":
        terminal.write(script(plan, kubectl_flags(where.connection, found.source)))
    else:
        terminal.write(rendered(plan, found.source, output))
    return EXIT_NO if exit_code and plan.verdict in (NEVER, REFUSED) else 0


def kubectl_flags(connection: Connection, source: dict[str, Any]) -> list[str]:
    """What leads kubectl to the cluster that was looked at; nothing for a dump."""
    flags = {
        "--kubeconfig": connection.kubeconfig,
        "--context": connection.context or source.get("context"),
        "--as": connection.impersonate,
    }
    if source.get("kind") != "direct":
        return []
    return [f"{flag}={value}" for flag, value in flags.items() if value]


def rendered(plan: DrainPlan, source: dict[str, Any], output: Output) -> str:
    """The plan's text in one of FORMATS."""
    from kubectl_nodelife.report.drain import DrainPage

    if output.format == "html":
        from kubectl_nodelife.report.drain_html import page

        return page(plan, source)
    return output.render(DrainPage(plan, source))


def choose_nodes(
    snapshot: PlanSnapshot, nodes: tuple[str, ...], selector: str | None, all_nodes: bool
) -> list[str]:
    """The nodes to drain: those named, in that order, or those selected, by name.

    Raises BadInput and Failed.
    """
    from kubectl_nodelife.kube.selectors import matches, parse_selector

    if nodes and selector:  # as kubectl's drain.go, Complete
        both = "cannot specify both a node name and a --selector option"
        raise BadInput(both, remedy="give one of them")
    if bool(nodes) + (selector is not None) + all_nodes != 1:
        remedy = "give node names, or --selector, or --all, and only one of them"
        raise BadInput("USAGE: drain NODE [flags]: which nodes?", remedy=remedy)
    if nodes:
        names = [name.removeprefix("node/").removeprefix("nodes/") for name in nodes]
        for name in names:
            if name not in snapshot.nodes:
                raise NotFound("nodes", name, among=snapshot.nodes)
        return list(dict.fromkeys(names))
    try:
        wanted = parse_selector(selector or "")
    except ValueError as error:
        raise BadInput(str(error), on="--selector") from None
    found = sorted(n.name for n in snapshot.nodes.values() if matches(wanted, n.metadata.labels))
    if not found:
        raise Failed("no node matches", on=f"--selector {selector}", remedy="check the labels")
    return found
