"""`kubectl nodelife drain-plan`: will this drain finish, how long, and what stops it; and the flags
that `drain` has as well: kubectl drain's, and those of our own waves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import (
    Output,
    Where,
    gathered_flags,
    output_flags,
    waiting_ns,
    where_flags,
)
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.drain import CORDON_BY_WAVE, CORDON_FIRST
from kubectl_nodelife.errors import BadInput

if TYPE_CHECKING:  # `--help` needs neither selectors nor msgspec
    from kubectl_nodelife.drain.results import WaveOptions
    from kubectl_nodelife.sim.kubectl.options import DrainOptions

FORMATS = ("table", "wide", "json", "yaml", "name", "commands", "html", "markdown")
_QUESTION = "drain_plan"
_OF_WAVES = ("max_per_zone", "low_water", "cordon")


class DrainFlags(NamedTuple):
    """The flags as given; a question to the daemon holds them so."""

    force: bool = False
    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    grace_period: int = -1
    timeout: str = "0s"
    disable_eviction: bool = False
    pod_selector: str = ""
    skip_wait_for_delete_timeout: int = 0
    max_parallel: int | None = None
    max_per_zone: int | None = None
    low_water: float | None = None
    cordon: str | None = None
    maintenance: str = "0s"

    def options(self) -> DrainOptions:
        """kubectl drain's flags. Raises BadInput."""
        from kubectl_nodelife.kube.selectors import parse_selector
        from kubectl_nodelife.sim.kubectl.options import DrainOptions

        try:
            parse_selector(self.pod_selector)
        except ValueError as error:
            raise BadInput(
                f"--pod-selector=<pod_selector> must be a valid label selector: {error}",
                on="--pod-selector",
            ) from None
        return DrainOptions(
            force=self.force,
            ignore_daemonsets=self.ignore_daemonsets,
            delete_emptydir_data=self.delete_emptydir_data,
            grace_period_seconds=self.grace_period,
            timeout_ns=waiting_ns(self.timeout, "--timeout"),
            disable_eviction=self.disable_eviction,
            pod_selector=self.pod_selector,
            skip_wait_seconds=self.skip_wait_for_delete_timeout,
        )

    def waves(self) -> WaveOptions | None:
        """The options of our own waves, None without --max-parallel. Raises BadInput."""
        maintenance_ns = waiting_ns(self.maintenance, "--maintenance")
        if self.max_parallel is None:
            given = [field for field in _OF_WAVES if getattr(self, field) is not None]
            if maintenance_ns:
                given.append("maintenance")
            if given:
                remedy = "give --max-parallel N too"
                raise BadInput("is about waves", on=_spelled(given[0]), remedy=remedy)
            return None
        for field in ("max_parallel", "max_per_zone"):
            if (nodes := getattr(self, field)) is not None and nodes < 1:
                raise BadInput("must be at least 1", on=_spelled(field))
        if self.low_water is not None and not 0 <= self.low_water < 100:
            raise BadInput("is a percentage from 0 to 100", on="--low-water")
        from kubectl_nodelife.drain.results import WaveOptions

        return WaveOptions(
            self.max_parallel, self.max_per_zone, self.low_water, maintenance_ns, self.cordon
        )


def _spelled(field: str) -> str:
    return "--" + field.replace("_", "-")


drain_flags = gathered_flags(
    "flags",
    DrainFlags,
    (
        click.option(
            "--force", is_flag=True, help="As kubectl drain: pods without a controller too."
        ),
        click.option("--ignore-daemonsets", is_flag=True, help="As kubectl drain."),
        click.option("--delete-emptydir-data", is_flag=True, help="As kubectl drain."),
        click.option(
            "--grace-period", type=int, default=-1, metavar="SECONDS", help="As kubectl drain."
        ),
        click.option(
            "--timeout", default="0s", metavar="DURATION", help="As kubectl drain: per node."
        ),
        click.option(
            "--disable-eviction", is_flag=True, help="As kubectl drain: delete, no budgets."
        ),
        click.option("--pod-selector", default="", metavar="SELECTOR", help="As kubectl drain."),
        click.option(
            "--skip-wait-for-delete-timeout",
            type=int,
            default=0,
            metavar="SECONDS",
            help="As kubectl drain.",
        ),
        click.option(
            "--max-parallel", type=int, metavar="N", help="Waves of our own, of up to N nodes."
        ),
        click.option(
            "--max-per-zone", type=int, metavar="N", help="With waves: up to N nodes of a zone."
        ),
        click.option(
            "--low-water", type=float, metavar="PERCENT", help="With waves: free capacity to keep."
        ),
        click.option(
            "--cordon",
            type=click.Choice((CORDON_FIRST, CORDON_BY_WAVE)),
            help="With waves: all nodes first, or those of a wave when it begins; else the better.",
        ),
        click.option(
            "--maintenance", default="0s", metavar="DURATION", help="With waves: a node's time out."
        ),
    ),
)


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
