"""`kubectl nodelife upgrade clean`: show what runs have left behind, and take it off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click

from kubectl_nodelife.acts.upgrade.clean import Cleaner, check_over
from kubectl_nodelife.acts.upgrade.lease import LEASE_DURATION_NS, RunLease
from kubectl_nodelife.acts.upgrade.rights import CANARIES, JOBS
from kubectl_nodelife.commands.acting import ActFlags, is_confirmed, run_interruptible
from kubectl_nodelife.commands.cluster.direct import target_of
from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.ordering import order_flags, order_session
from kubectl_nodelife.commands.upgrade.reading import read_run
from kubectl_nodelife.controllers.upgrade.cleaning import Leftover, leftovers
from kubectl_nodelife.daemon.cluster_checks import Right
from kubectl_nodelife.errors import EXIT_FAILED
from kubectl_nodelife.report import terminal

NAMESPACE: Final = "nodelife"


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
    """Take off what runs have left: marks, taints, cordons of ours, canaries, Jobs, the Lease.

    Shows the kubectl lines that do the same, and asks. Nodes that were taken and not proven stay
    out of service as Failed, but with --release-failed; what others cordoned stays cordoned.

    \b
    Examples:
      kubectl nodelife upgrade clean
      kubectl nodelife upgrade clean --release-failed --yes
    """
    read = asyncio.run(read_run(connection, lease_namespace))
    proof_only = check_over(read.lease)
    found = list(leftovers(read.nodes, proof_only=proof_only, release_failed=release_failed))
    terminal.write("".join(_shown(found)))
    if not found and read.lease is None:
        terminal.write("nothing is left of an upgrade\n")
        return 0
    target = target_of(connection)
    act = ActFlags(yes=yes, dry_run="none", max_writes=0, insecure=insecure)
    question = f"Clean up {target.context or target.server}?"
    if not is_confirmed(act, question, target.server):
        terminal.note("not confirmed: nothing was changed")
        return 0
    namespace = connection.namespace or NAMESPACE

    async def work() -> int:
        session = order_session(
            connection,
            lease_namespace,
            insecure=insecure,
            rights=_rights(lease_namespace, namespace),
            max_writes=2 * len(found) + 1000,
        )
        async with session as (opened, carrier):
            lease = RunLease(opened, lease_namespace, LEASE_DURATION_NS, lambda lease: None)
            cleaner = Cleaner(
                opened,
                carrier,
                namespace,
                lambda text: terminal.write(f"{text}\n"),
                terminal.warn,
                release_failed=release_failed,
            )
            return 0 if await cleaner.run(lease, found) else EXIT_FAILED

    return run_interruptible(work)


def _shown(found: Sequence[Leftover]) -> list[str]:
    """Each leftover, and kubectl's lines for it."""
    lines = []
    for leftover in found:
        state = f" ({leftover.state})" if leftover.state else ""
        stays = "" if leftover.patch is not None else "stays: "
        lines.append(f"node/{leftover.node.name}{state}: {stays}{leftover.because}\n")
        lines += [f"    {line}\n" for line in leftover.by_hand]
    return lines


def _rights(lease_namespace: str, namespace: str) -> tuple[Right, ...]:
    group, resource, subresource, verbs = CANARIES[0]
    wanted = [Right(group, resource, subresource, verb, namespace) for verb in verbs]
    wanted += [Right(JOBS[0], JOBS[1], JOBS[2], "delete", namespace)]
    wanted += [Right("", "nodes", "", "patch")]
    lease = ("create", "delete", "update")
    wanted += [Right("coordination.k8s.io", "leases", "", verb, lease_namespace) for verb in lease]
    return tuple(wanted)
