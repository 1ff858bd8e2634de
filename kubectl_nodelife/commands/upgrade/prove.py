"""`kubectl nodelife upgrade prove`: only the proof, on nodes as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.leading import (
    LeadFlags,
    lead_flags,
    lead_run,
)
from kubectl_nodelife.commands.upgrade.plan import check_named
from kubectl_nodelife.commands.writing import ActFlags
from kubectl_nodelife.commands.writing import is_confirmed as is_confirmed_act
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.controllers.upgrade.document import RunDocument
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy


@click.command("prove")
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--prove-timeout", metavar="DURATION", help="For the proof [5m].")
@click.option("--ready-for", metavar="DURATION", help="Ready without a break for [1m].")
@click.option("--canary-image", metavar="IMAGE", help="The canary's; else a pause image.")
@click.option("--lease-namespace", metavar="NS", help="Of the run's Lease [kube-system].")
@lead_flags
@connection_flags
def prove(
    nodes: tuple[str, ...],
    prove_timeout: str | None,
    ready_for: str | None,
    canary_image: str | None,
    lease_namespace: str | None,
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """Prove that nodes are usable: a canary pod is scheduled there, runs, and is stopped.

    For new or repaired nodes, those too that a run has left Failed and cordoned: these stay
    cordoned. Nobody is evicted; the node has a taint for minutes, and no mark of the proof stays.
    Exits with 1 where a node is not proven. For one of a run under way: `resume --assume-done`.

    \b
    Examples:
      kubectl nodelife upgrade prove worker-7
      kubectl nodelife upgrade prove worker-7 worker-8 --canary-image registry.k8s.io/pause:3.10
    """
    from kubectl_nodelife.acts.upgrade.opening import open_run
    from kubectl_nodelife.commands.cluster.drain import look_for_drain

    if not nodes:
        raise BadInput("no node is named", remedy="give NODE...")
    flags: dict[str, Any] = {
        "proveTimeout": prove_timeout,
        "readyFor": ready_for,
        "canaryImage": canary_image,
        "leaseNamespace": lease_namespace,
        "namespace": connection.namespace,
    }
    policy = proof_policy(nodes, flags)
    look = look_for_drain(Where(connection, assignments=lead.assignments))
    check_named(policy, look.snapshot.nodes)
    if not _is_confirmed(nodes, str(look.source.get("server", "")), lead):
        terminal.note("not confirmed: nothing was changed")
        return 0
    there = list(look.snapshot.nodes.values())

    async def opening(session: ActSession, carrier: LiveCarrier) -> RunDocument:
        return await open_run(session, carrier, there, policy, proof_only=True)

    return lead_run(policy, look, opening, connection, lead)


def proof_policy(nodes: Sequence[str], flags: Mapping[str, Any]) -> UpgradePolicy:
    """The policy of a run that does nothing but prove these nodes, all at once. Raises BadInput."""
    from kubectl_nodelife.controllers.upgrade.policy import policy_from

    given = {name: value for name, value in flags.items() if value is not None}
    mode = {"work": {"mode": "nothing"}, "includeControlPlane": True, "maxParallel": len(nodes)}
    return policy_from({"nodes": list(nodes), "maxUnavailable": len(nodes), **mode, **given})


def _is_confirmed(nodes: tuple[str, ...], server: str, lead: LeadFlags) -> bool:
    act = ActFlags(yes=lead.yes, dry_run="none", max_writes=0, insecure=lead.insecure)
    many = f"{len(nodes)} nodes" if len(nodes) > 1 else f"node {nodes[0]}"
    return is_confirmed_act(act, f"Taint {many} of {server} and run a canary there?", server)
