"""The shared part of `upgrade start`, `resume`, `abort` and `prove`: becoming the run's leader.

It leads in the foreground. `nohup`, which is respected, systemd-run or a Job put it elsewhere.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, gathered_flags
from kubectl_nodelife.commands.writing import environ, identity_of
from kubectl_nodelife.errors import (
    EXIT_FAILED,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.upgrade.running import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts
    from kubectl_nodelife.sim.upgrade_course import Course


NOT_PLANNED_ON: Final = ("VolumeAttachment", "CSINode")
"""Kinds that the leader follows beside those that a plan reads."""

WRITES_A_NODE: Final = 20
"""PATCHes, canary, Lease and Job of one node, with a new try and a new leader."""


class LeadFlags(NamedTuple):
    """The flags of all verbs that lead."""

    yes: bool
    insecure: bool
    lease_duration: str
    assignments: tuple[str, ...]


_LEAD_OPTIONS = (
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option(
        "--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting; repeatable."
    ),
    click.option(
        "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
    ),
    click.option(
        "--lease-duration",
        default="60s",
        show_default=True,
        metavar="DURATION",
        help="How long a leader that does not renew keeps the Lease.",
    ),
)

lead_flags = gathered_flags("lead", LeadFlags, _LEAD_OPTIONS)
"""Gives a command these flags; its callback gets one argument, `lead`."""


def lead_run(
    policy: UpgradePolicy,
    look: DrainLook,
    opening: Opening,
    connection: Connection,
    flags: LeadFlags,
) -> int:
    """Lead the run in the foreground; the exit code. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.running import LeadOrder
    from kubectl_nodelife.acts.upgrade.running import lead as lead_the_run
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.kube.times import parse_duration

    order = LeadOrder(
        policy,
        look.settings,
        _ports(policy, look),
        opening,
        target_of(connection),
        environ(),
        identity_of(connection),
        _most_writes(policy, look),
        flags.insecure,
        parse_duration(flags.lease_duration),
    )
    try:
        return asyncio.run(lead_the_run(order, _write_line, terminal.warn))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def show_course(course: Course) -> int:
    """Say what the leader of a played run decides, each line with its time; the exit code that
    the run would have.
    """
    from kubectl_nodelife.acts.upgrade.sentences import sentences_of
    from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
    from kubectl_nodelife.engine.actions import RecordEvent

    terminal.write("\n")  # after the plan
    for at_ns, action in course.decided:
        for line in sentences_of(action) if not isinstance(action, RecordEvent) else ():
            _write_line(f"(dry run) {line}", at_ns)
    if course.phase not in OVER and course.phase != RunPhase.PAUSED:
        for name, hold in sorted(course.held.items()):
            terminal.warn(f"node {name} is never claimed: {hold.because}")
    failed = any(turn.failed for turn in course.turns.values())
    return EXIT_FAILED if failed or course.phase not in OVER else 0


def _ports(policy: UpgradePolicy, look: DrainLook) -> UpgradePorts:
    from kubectl_nodelife.controllers.upgrade.ports import READS
    from kubectl_nodelife.controllers.upgrade.working import claims_of
    from kubectl_nodelife.upgrade.ports import make_ports

    snapshot = look.snapshot
    read = {kind for kind in READS if kind in NOT_PLANNED_ON or snapshot.was_read(kind)}
    claims = {node.uid: claims_of(node) for node in snapshot.nodes.values()}
    return make_ports(policy, look.settings, read)._replace(planned_claims=claims)


def selected_names(policy: UpgradePolicy, look: DrainLook) -> list[str]:
    """The nodes that the run is about."""
    from kubectl_nodelife.controllers.upgrade.selection import is_selected

    return [name for name, node in look.snapshot.nodes.items() if is_selected(node, policy)]


def _most_writes(policy: UpgradePolicy, look: DrainLook) -> int:
    """Twice what a run over the nodes with their pods writes at most."""
    nodes = selected_names(policy, look)
    pods = sum(len(look.snapshot.pods_by_node.get(name, ())) for name in nodes)
    return 2 * (WRITES_A_NODE * len(nodes) + pods) + 100


def _write_line(text: str, at_ns: int | None = None) -> None:
    """A line with its time, by default now; in a log, which may be days long, and on another day
    than today, with its date too.
    """
    from kubectl_nodelife.report.screen import this_screen

    now = time.localtime()
    at = now if at_ns is None else time.localtime(at_ns / SECOND_NS)
    is_short = this_screen().width and at[:3] == now[:3]
    stamp = "%H:%M:%S" if is_short else "%Y-%m-%dT%H:%M:%S%z"
    terminal.write(f"{time.strftime(stamp, at)} {terminal.printable(text)}\n")
    terminal.flush()
