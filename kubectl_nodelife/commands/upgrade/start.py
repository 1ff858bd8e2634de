"""`kubectl nodelife upgrade start`: show the plan, ask, and lead the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection, Output, connection_flags
from kubectl_nodelife.commands.upgrade.flags import policy_flags, policy_of
from kubectl_nodelife.commands.upgrade.leading import (
    LeadFlags,
    lead_flags,
    lead_run,
    show_course,
)
from kubectl_nodelife.commands.upgrade.plan import check_named, look_for_upgrade, planned, rendered
from kubectl_nodelife.commands.upgrade.run import read_run
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.document import RunDocument
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.kube.node import Node
    from kubectl_nodelife.sim.upgrade_course import Course
    from kubectl_nodelife.upgrade.plan_values import UpgradePlan


@click.command("start")
@policy_flags
@click.option("--dry-run", is_flag=True, help="Say what is done when; send nothing but reads.")
@lead_flags
@connection_flags
def start(
    given: dict[str, Any],
    dry_run: bool,
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """Upgrade nodes: show the plan, ask for the number of nodes, and lead the run to its end.

    The state of the run stands on the nodes and on its Lease: typed again after a crash, on any
    machine, with the same nodes, work and policy, it goes on. The first Ctrl-C pauses and waits for
    what is in work, the second leaves at once. Exits with 1 where the run pauses after failures or
    ends with nodes Failed or Held, with 5 where it is refused or another leader has taken over.
    --dry-run plays the run on a copy of the cluster as it is, and prints what the leader would do,
    and when; --expect-work is how long the work then takes.

    \b
    Examples:
      kubectl nodelife upgrade start -l pool=blue --run ./upgrade-node --target bootID=changed
      kubectl nodelife upgrade start -f upgrade.yaml --yes
      kubectl nodelife upgrade start -f upgrade.yaml --dry-run
    """
    policy = policy_of(given, connection)
    prepared = _prepare(policy, connection, lead, dry_run=dry_run)
    if dry_run:
        return show_course(prepared.course)
    if not is_confirmed(lead.yes, prepared.todo, prepared.server):
        terminal.note("not confirmed: nothing was changed")
        return 0
    return _lead(policy, prepared, connection, lead)


class _Prepared(NamedTuple):
    """The parts that were read and shown before the question. `todo`: how many nodes are asked
    for; `course`: that of the run as it was planned.
    """

    look: DrainLook
    nodes: list[Node]
    todo: int
    course: Course

    @property
    def server(self) -> str:
        """The cluster's address."""
        return str(self.look.source.get("server", ""))


def _prepare(
    policy: UpgradePolicy, connection: Connection, lead: LeadFlags, *, dry_run: bool
) -> _Prepared:
    """Show the plan, or the run that is gone on with. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.opening import check_start, strangers
    from kubectl_nodelife.acts.upgrade.run_edits import document_or_refused
    from kubectl_nodelife.controllers.upgrade.selection import is_selected
    from kubectl_nodelife.outlook.upgrade_status import upgrade_status
    from kubectl_nodelife.report.formats import render
    from kubectl_nodelife.report.upgrade_status import UpgradeStatusPage
    from kubectl_nodelife.sim.upgrade_course import Course

    read = asyncio.run(read_run(connection, policy.lease_namespace))
    goes_on = "" if dry_run else check_start(read.lease, read.nodes, policy, read.now_ns)
    look = look_for_upgrade(Where(connection, assignments=lead.assignments))
    foreign = strangers(read.nodes, document_or_refused(read.lease))
    for warning in (*look.warnings, *filter(None, [foreign])):
        terminal.warn(warning)
    if goes_on:
        status = upgrade_status(read.nodes, read.lease, read.now_ns, read.source)
        terminal.write(render(UpgradeStatusPage(status), "table"))
        todo, course = sum(is_selected(node, policy) for node in read.nodes), Course()
    else:
        made = _show_plan(policy, look)
        todo, course = len(made.done), made.course
    return _Prepared(look, read.nodes, todo, course)


def _lead(
    policy: UpgradePolicy, prepared: _Prepared, connection: Connection, lead: LeadFlags
) -> int:
    from kubectl_nodelife.acts.upgrade.opening import open_run

    async def opening(session: ActSession, carrier: LiveCarrier) -> RunDocument:
        return await open_run(session, carrier, prepared.nodes, policy)

    return lead_run(policy, prepared.look, opening, connection, lead)


def _show_plan(policy: UpgradePolicy, look: DrainLook) -> UpgradePlan:
    """Make the plan and show it. Raises Failed, Refused, NotFound."""
    check_named(policy, look.snapshot.nodes)
    made = planned(policy, look)
    if not made.nodes:
        raise Failed("no node matches", on="--selector", remedy="check the labels")
    terminal.write(rendered(made, look.source, Output("table")))
    if made.refusals:
        raise Refused("; ".join(made.refusals), on=str(look.source.get("server", "")))
    return made


def is_confirmed(yes: bool, nodes: int, server: str) -> bool:
    """True if the number of nodes was typed. Raises Refused without a terminal."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Refused(
            "nothing is changed: there is no terminal to ask on",
            on=server,
            remedy="give --yes to begin",
        )
    terminal.flush()
    typed = click.prompt(
        f"Type the number of nodes to be upgraded ({nodes}) to begin", default="", err=True
    )
    return str(typed).strip() == str(nodes)
