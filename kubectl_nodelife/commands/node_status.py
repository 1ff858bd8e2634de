"""The status of nodes from a dump, a first look or the daemon: choosing, making, telling."""

from __future__ import annotations

from collections.abc import Sequence

from kubectl_nodelife.answers.status import NodeLifeStatus, make_status, node_statuses
from kubectl_nodelife.commands.dumps import missing, source_of
from kubectl_nodelife.commands.inputs import Snapshot, settings_of
from kubectl_nodelife.daemon.sight import Sight
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import EXIT_NO, BadInput, Failed
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.outlook.join import joined
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.status import StatusPage

NOTHING_TO_SHOW = ("table", "wide", "name")
"""The formats that show nothing at all where no node is left."""


def of_snapshot(
    snapshot: Snapshot,
    nodes: tuple[str, ...],
    selector: str | None,
    assignments: tuple[str, ...],
) -> NodeLifeStatus:
    """The status of a dump. Raises Failed for a node that is not in it."""
    settings = settings_of(snapshot, assignments)
    cache = snapshot.cache()
    outlook, _ = joined(cache, settings, snapshot.moment_ns)
    return make_status(
        outlook,
        nodes=list(node_statuses(outlook, choose_nodes(cache, nodes, selector))),
        source=source_of(snapshot),
        mode="dry-run",
        moment=snapshot.moment(),
        warnings=[*snapshot.warnings, *missing(snapshot, cache)],
    )


def tell(status: NodeLifeStatus, output: str, *, headers: bool, exit_code: bool) -> int:
    """Print it, and return the exit code."""
    for warning in status.warnings:
        terminal.warn(warning)
    if not status.nodes:
        terminal.note("No resources found")
        if output in NOTHING_TO_SHOW:
            return 0
    terminal.write(render(StatusPage(status), output, headers=headers))
    return EXIT_NO if exit_code and status.in_trouble() else 0


def choose_nodes(cache: Cache, names: Sequence[str], selector: str | None) -> list[str]:
    """The nodes asked for, in order of their names. Raises BadInput, Failed."""
    if names and selector:
        raise BadInput("give names or a selector, not both", on="--selector")
    wanted = [name.removeprefix("node/").removeprefix("nodes/") for name in names]
    for name in wanted:
        if name not in cache.nodes:
            raise Failed("not found", on=f"node {name}", remedy="check the name")
    if not selector:
        return sorted(wanted or cache.nodes)
    try:
        parsed = parse_selector(selector)
    except ValueError as error:
        raise BadInput(str(error), on="--selector") from None
    return sorted(n.name for n in cache.nodes.values() if matches(parsed, n.metadata.labels))


def of_sight(sight: Sight, nodes: Sequence[str], selector: str | None) -> NodeLifeStatus:
    """The status of a live cluster. Raises Failed for a node that it does not have."""
    outlook = sight.outlook
    return make_status(
        outlook,
        nodes=list(node_statuses(outlook, choose_nodes(outlook.cache, nodes, selector))),
        source=sight.source,
        mode=sight.mode,
        moment=sight.moment,
        warnings=sight.warnings,
    )
