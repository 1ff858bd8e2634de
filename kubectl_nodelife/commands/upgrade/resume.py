"""`kubectl nodelife upgrade resume`: end a pause, and lead the run where nobody does."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.detaching import (
    DetachFlags,
    StartingTerminal,
    detach_flags,
)
from kubectl_nodelife.commands.upgrade.flags import given_mapping, policy_flags
from kubectl_nodelife.commands.upgrade.leading import LeadFlags, lead_flags
from kubectl_nodelife.errors import BadInput


@click.command("resume")
@policy_flags
@click.option("--rebase", is_flag=True, help="Count from the nodes that are there now.")
@click.option("--retry", metavar="NODES", help="Take these Failed or Held nodes again, or `all`.")
@click.option("--assume-done", metavar="NODES", help="Their work is done: go on with the checks.")
@click.option("--skip", metavar="NODES", help="Leave these out, and take our marks off them.")
@detach_flags
@lead_flags
@connection_flags
def resume(
    given: dict[str, Any],
    rebase: bool,
    retry: str | None,
    assume_done: str | None,
    skip: str | None,
    detached: DetachFlags,
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """End a pause and forgive the failures so far; become the leader where there is none.

    Commands and Jobs do not stand in the cluster: without the work given again nodes in work are
    proven and released, and no work is begun. Policy flags that are given change the run's.
    --detach leads in the background, where this becomes the leader.

    \b
    Examples:
      kubectl nodelife upgrade resume --run ./upgrade-node
      kubectl nodelife upgrade resume --retry b7,b8 --run ./upgrade-node
      kubectl nodelife upgrade resume --skip b7 --canary-image registry.k8s.io/pause:3.10
    """
    from msgspec import convert

    from kubectl_nodelife.commands.upgrade.continuing import go_on
    from kubectl_nodelife.controllers.upgrade.document import Verb, Wish
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    if given["nodes"] or given["selector"]:
        raise BadInput("a run keeps its nodes", remedy="abort it, and start another")
    begun_by = StartingTerminal(detached)
    with begun_by.told():
        if begun_by.order is not None:
            wish = convert(begun_by.order["wish"], Wish)
            mapping = begun_by.order["given"]
        else:
            mapping = given_mapping(given, connection)
            wish = Wish(
                verb=Verb.RESUME,
                by=user_and_host(),
                retry=_names(retry),
                assume_done=_names(assume_done),
                skip=_names(skip),
                rebase=rebase,
            )
        return go_on(wish, mapping, begun_by.with_token(connection), lead, detached, begun_by)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)
