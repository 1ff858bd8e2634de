"""`kubectl nodelife upgrade abort`: end a run in good order, as its leader where there is none."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.leading import LeadFlags, lead_flags


@click.command("abort")
@click.option("--now", is_flag=True, help="Cut the work off as well; its nodes are left Held.")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NS",
    help="Where the run's Lease is.",
)
@click.option("--canary-image", metavar="IMAGE", help="The canary's; else the run's.")
@lead_flags
@connection_flags
def abort(
    now: bool,
    because: str,
    lease_namespace: str,
    canary_image: str | None,
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """End a run: give back what is drained, wait for work, prove what was worked on.

    Nothing is rolled back on a machine. Nodes Failed or Held are left, and listed with kubectl's
    lines. --now cuts the work off; those nodes stay cordoned and Held.

    \b
    Examples:
      kubectl nodelife upgrade abort
      kubectl nodelife upgrade abort --now --because wrong-image
    """
    from kubectl_nodelife.commands.upgrade.resume import go_on
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    reason = f"aborted by {user_and_host()}" + (f": {because}" if because else "")
    request = UpgradeRequest(verb=Verb.ABORT, because=reason, by=user_and_host(), now=now)
    given = {"canaryImage": canary_image} if canary_image else {}
    return go_on(request, {**given, "leaseNamespace": lease_namespace}, connection, lead)
