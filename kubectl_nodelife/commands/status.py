"""`kubectl nodelife status`: a clock for each node, a block for each zone."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot, read_snapshot, settings_from
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import EXIT_NO, BadInput, Failed
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.outlook.join import joined
from kubectl_nodelife.outlook.status import Status, make_status
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.progress import progress_bar
from kubectl_nodelife.report.status import StatusPage


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster.")
@click.option("-l", "--selector", help="Only nodes with these labels, as in kubectl.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a node is in trouble.")
@output_flags()
@connection_flags
def status(
    nodes: tuple[str, ...],
    filename: tuple[str, ...],
    selector: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    exit_code: bool,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """How long until each node is called Unknown, tainted, its pods deleted; each zone's brake.

    \b
    Examples:
      kubectl nodelife status
      kubectl nodelife status -f dump/ -o wide
      kubectl nodelife status -l topology.kubernetes.io/zone=a -o json
    """
    if not filename:
        raise BadInput("no input", remedy="name a dump with -f")
    snapshot = load(filename, now, profile)
    answer = of_snapshot(snapshot, nodes, selector, assignments)
    for warning in answer.warnings:
        terminal.warn(warning)
    if not answer.nodes:
        terminal.note("No resources found")
        if output in ("table", "wide", "name"):
            return 0
    terminal.write(render(StatusPage(answer), output, headers=not no_headers))
    return EXIT_NO if exit_code and answer.in_trouble() else 0


def load(filename: tuple[str, ...], now: str | None, profile: str | None) -> Snapshot:
    """Read `-f` with a progress bar on a terminal."""
    with progress_bar("reading objects") as step:
        return read_snapshot(filename, now=now, profile=profile, progress=step)


def of_snapshot(
    snapshot: Snapshot,
    nodes: tuple[str, ...],
    selector: str | None,
    assignments: tuple[str, ...],
) -> Status:
    """The status of a dump. Raises BadInput for a node that is not in it."""
    settings = settings_from(snapshot.profile, assignments)
    cache = snapshot.cache()
    outlook, _ = joined(cache, settings, snapshot.moment_ns)
    return make_status(
        outlook,
        names=choose_nodes(cache, nodes, selector),
        source=source_of(snapshot),
        mode="dry-run",
        moment=snapshot.moment(),
        warnings=[*snapshot.warnings, *missing(snapshot, cache)],
    )


def source_of(snapshot: Snapshot) -> dict[str, Any]:
    """The contract's `source` of a dump."""
    return {"kind": "snapshot", "context": None, "synced": True, "age": None}


def missing(snapshot: Snapshot, cache: Cache) -> list[str]:
    """What was not read, and what cannot be said for that reason."""
    warnings = []
    if (stand_in := snapshot.profile.stands_in()) is not None:
        warnings.append(stand_in)
    without = [name for name in cache.nodes if name not in cache.heartbeats]
    if without and len(without) == len(cache.nodes):
        warnings.append("no node Lease was read: how long until a node is Unknown is not evaluated")
    elif without:
        names = ", ".join(sorted(without)[:3]) + (", ..." if len(without) > 3 else "")
        warnings.append(f"no Lease of {names} was read: their age is not evaluated")
    if not snapshot.has_read("Pod"):
        warnings.append("no pods were read: evictions are not evaluated")
    return warnings


def choose_nodes(cache: Cache, names: tuple[str, ...], selector: str | None) -> list[str]:
    """The nodes asked for, in order of their names. Raises BadInput."""
    if names and selector:
        raise BadInput("give names or a selector, not both", on="--selector")
    wanted = [name.removeprefix("node/").removeprefix("nodes/") for name in names]
    for name in wanted:
        if name not in cache.nodes:
            raise Failed("not found", on=f"node {name}", remedy="check the name")
    if selector is None:
        return sorted(wanted or cache.nodes)
    try:
        parsed = parse_selector(selector)
    except ValueError as error:
        raise BadInput(str(error), on="--selector") from None
    return sorted(n.name for n in cache.nodes.values() if matches(parsed, n.metadata.labels))
