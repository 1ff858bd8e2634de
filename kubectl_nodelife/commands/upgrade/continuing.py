"""What `upgrade resume` and `abort` share: asking the leader, or becoming it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kubectl_nodelife.acts.carrier import LiveCarrier
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.run_edits import (
    asking,
    edit_run,
    open_document,
    read_lease,
    with_policy,
)
from kubectl_nodelife.commands.cluster.drain import look_for_drain
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.upgrade.leading import LeadFlags, lead_run
from kubectl_nodelife.commands.upgrade.ordering import ask_leader, order_session
from kubectl_nodelife.commands.upgrade.reading import read_run
from kubectl_nodelife.commands.write_flags import run_interruptible
from kubectl_nodelife.controllers.upgrade.document import RunDocument, Wish
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_from
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.report import terminal


def go_on(
    wish: Wish,
    given: Mapping[str, Any],
    namespace: str,
    connection: Connection,
    lead: LeadFlags,
) -> int:
    """Have the leader do it, or lead the run and do it; the exit code. Raises NodelifeError.

    `given`: work and policy that change, as a file of kind Upgrade has them.
    """
    read = asyncio.run(read_run(connection, namespace))
    run = open_document(read.lease)
    holder = read.lease.spec.holder_identity if read.lease is not None else ""
    if holder and run_interruptible(lambda: _asked(wish, given, namespace, connection, lead)):
        terminal.write(f"{holder} leads the run, and has been told: {wish.verb}\n")
        return 0
    policy = policy_of_run(run, given)
    look = look_for_drain(Where(connection, assignments=lead.assignments))

    async def opening(session: ActSession, carrier: LiveCarrier) -> RunDocument:
        if given:
            await edit_run(session, carrier, namespace, with_policy(policy), "other flags")
        await edit_run(session, carrier, namespace, asking(wish), str(wish.verb))
        return open_document(await read_lease(session, namespace))

    return lead_run(policy, look, opening, connection, lead)


def policy_of_run(run: RunDocument, given: Mapping[str, Any]) -> UpgradePolicy:
    """The run's policy with what is given. Without its work nothing is begun. Raises BadInput."""
    return policy_from({**run.spec, **given})


async def _asked(
    wish: Wish,
    given: Mapping[str, Any],
    namespace: str,
    connection: Connection,
    lead: LeadFlags,
) -> bool:
    """Whether a leader is there and has taken it up. Raises Refused where flags would be lost."""
    async with order_session(connection, namespace, insecure=lead.insecure) as (session, carrier):
        heard = await ask_leader(session, carrier, namespace, wish)
    if heard and given:
        raise Refused(
            "a leader is at work, which keeps the work and the policy that it was begun with",
            remedy="end it with Ctrl-C, then resume with other flags",
        )
    return heard
