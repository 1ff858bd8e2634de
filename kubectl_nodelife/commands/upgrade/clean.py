"""`kubectl nodelife upgrade clean`: show what runs have left behind, and take it off."""

from __future__ import annotations

import shlex
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.run import (
    order_flags,
    order_session,
    read_left_objects,
    read_run,
)
from kubectl_nodelife.commands.writing import ActFlags, is_confirmed, run_interruptible
from kubectl_nodelife.errors import EXIT_FAILED
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.controllers.upgrade.cleaning import LeftObject, Leftover
    from kubectl_nodelife.daemon.cluster_checks import Right


class _Remains(NamedTuple):
    """All that runs have left."""

    marks: list[Leftover]
    objects: list[LeftObject]
    has_lease: bool

    @property
    def writes(self) -> int:
        """So many at least."""
        return len(self.marks) + len(self.objects) + 1


@click.command("clean")
@click.option(
    "--release-failed",
    is_flag=True,
    help="Also take Failed and Held nodes' marks off, and a cordon that was ours.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@order_flags
@connection_flags
def clean(
    release_failed: bool, yes: bool, lease_namespace: str, insecure: bool, connection: Connection
) -> int:
    """Take off what runs have left: marks, cordons of ours, canaries, Jobs, Services, the Lease.

    Shows the kubectl lines that do the same, and asks. Nodes that were taken and not proven stay
    out of service as Failed, but with --release-failed; what others cordoned stays cordoned.

    \b
    Examples:
      kubectl nodelife upgrade clean
      kubectl nodelife upgrade clean --release-failed --yes
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.clean import check_over
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.controllers.upgrade.cleaning import leftovers

    read = asyncio.run(read_run(connection, lease_namespace))
    marks = leftovers(read.nodes, proof_only=check_over(read.lease), release_failed=release_failed)
    objects = asyncio.run(read_left_objects(connection, terminal.warn))
    found = _Remains(list(marks), objects, read.lease is not None)
    if not any(found):
        terminal.write("nothing is left of an upgrade\n")
        return 0
    for line in _shown(found, lease_namespace):
        terminal.write(terminal.printable(line))
    target = target_of(connection)
    act = ActFlags(yes=yes, dry_run="none", max_writes=0, insecure=insecure)
    question = f"Clean up {target.context or target.server}?"
    if not is_confirmed(act, question, target.server):
        terminal.note("not confirmed: nothing was changed")
        return 0

    session = order_session(
        connection,
        lease_namespace,
        insecure=insecure,
        rights=_rights(lease_namespace, found),
        max_writes=3 * found.writes,
    )
    return run_interruptible(
        lambda: _clean(session, lease_namespace, found, release_failed=release_failed)
    )


async def _clean(
    session: AbstractAsyncContextManager[tuple[ActSession, LiveCarrier]],
    lease_namespace: str,
    found: _Remains,
    *,
    release_failed: bool,
) -> int:
    from kubectl_nodelife.acts.upgrade.clean import Cleaner
    from kubectl_nodelife.acts.upgrade.lease import LEASE_DURATION_NS, RunLease

    async with session as (opened, carrier):
        lease = RunLease(opened, lease_namespace, LEASE_DURATION_NS, lambda lease: None)
        cleaner = Cleaner(
            opened,
            carrier,
            lambda text: terminal.write(f"{text}\n"),
            terminal.warn,
            release_failed=release_failed,
        )
        done = await cleaner.run(lease, found.marks, found.objects)
        return 0 if done else EXIT_FAILED


def _shown(found: _Remains, lease_namespace: str) -> list[str]:
    """Each leftover, and kubectl's lines for it."""
    from kubectl_nodelife.acts.upgrade.lease import NAME

    lines = []
    for leftover in found.marks:
        state = f" ({leftover.state})" if leftover.state else ""
        stays = "" if leftover.patch is not None else "stays: "
        lines.append(f"node/{leftover.node.name}{state}: {stays}{leftover.because}")
        lines += [f"    {line}" for line in leftover.by_hand]
    for left in found.objects:
        lines += [f"{left.name}: left by a run", f"    {left.by_hand}"]
    if found.has_lease and not any(leftover.stays for leftover in found.marks):
        lines.append(f"lease/{lease_namespace}/{NAME}: the last run's result")
        lines.append(f"    kubectl delete lease {NAME} -n {shlex.quote(lease_namespace)}")
    return lines


def _rights(lease_namespace: str, found: _Remains) -> tuple[Right, ...]:
    from kubectl_nodelife.daemon.cluster_checks import Right
    from kubectl_nodelife.daemon.permissions import LEASE_ROWS
    from kubectl_nodelife.kube.kinds import kind_named

    wanted = {Right("", "nodes", "", "patch")} if found.marks else set()
    for left in found.objects:
        kind = kind_named(left.deletion.target[0])
        group = kind.api_version.rpartition("/")[0]
        wanted.add(Right(group, kind.plural, "", "delete", left.obj.metadata.namespace))
    held = [right for row in LEASE_ROWS for right in row.rights(lease_namespace)]
    return (*sorted(wanted), *held)
