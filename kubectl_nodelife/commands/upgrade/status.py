"""`kubectl nodelife upgrade status`: how a run stands, from annotations and the Lease alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.flags import Connection, Output, connection_flags, output_flags
from kubectl_nodelife.commands.upgrade.run import lease_namespace_flag, read_run
from kubectl_nodelife.errors import EXIT_NO
from kubectl_nodelife.kube.subjects import parse_names
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.report.upgrade_status import StatusFollower

_LOOK_SECONDS = 2.0
_CHANGING = (
    "renewedSecondsAgo",
    "toldSecondsAgo",
    "sinceSeconds",
    "deadlineSeconds",
    "epoch",
    "estimate",
    "notEvaluated",
)


@click.command("status")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-w", "--watch", is_flag=True, help="Go on: what is new, until the run is over.")
@lease_namespace_flag
@click.option("--exit-code", is_flag=True, help="Exit with 4 where a person has to look.")
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
@connection_flags
def status(
    nodes: tuple[str, ...],
    watch: bool,
    lease_namespace: str,
    exit_code: bool,
    output: Output,
    connection: Connection,
) -> int:
    """Show a run: its leader, what holds it, each node's state and why, slots left in each scope.

    Anybody who may read nodes and the run's Lease can ask, on any machine, without a daemon. With
    NODE, or -o wide, each check of a node in Settling, Proving or Soaking is shown as well, as the
    leader reported it last.
    --exit-code exits with 4 where the run is paused, a node is Failed or Held, or a proof is held.

    \b
    Examples:
      kubectl nodelife upgrade status
      kubectl nodelife upgrade status worker-7 -o json
      kubectl nodelife upgrade status -w
    """
    import asyncio

    from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
    from kubectl_nodelife.outlook.upgrade_status import has_trouble, upgrade_status
    from kubectl_nodelife.report.upgrade_status import StatusFollower, UpgradeStatusPage

    follower: StatusFollower | None = None
    before: object = None
    names = parse_names(nodes)
    while True:
        found = asyncio.run(read_run(connection, lease_namespace))
        answer = upgrade_status(found.nodes, found.lease, found.now_ns, found.source, names)
        if follower is None:
            follower = StatusFollower(answer, wide=output.format == "wide")
            for warning in (*found.warnings, *answer["warnings"]):
                terminal.warn(warning)
            terminal.write(output.render(UpgradeStatusPage(answer, named=bool(nodes))))
            before = _lasting(answer)
        elif output.format in ("table", "wide"):
            terminal.write(follower.news(answer))
        elif (now := _lasting(answer)) != before:
            terminal.write("\n" + output.render(UpgradeStatusPage(answer, named=bool(nodes))))
            before = now
        terminal.flush()
        over = answer["phase"] in {*map(str, OVER), "None"}
        if not watch or over or (answer["phase"] == RunPhase.PAUSED and not answer["nodes"]):
            return EXIT_NO if exit_code and has_trouble(answer) else 0
        asyncio.run(asyncio.sleep(_LOOK_SECONDS))


def _lasting(value: Any) -> Any:
    """The document without what changes by time alone."""
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in _CHANGING}
    return [_lasting(each) for each in value] if isinstance(value, list) else value
