"""What `upgrade resume` and `abort` share: asking the leader, or becoming it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins

from kubectl_nodelife.acts.carrier import LiveCarrier
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.canary_images import check_image
from kubectl_nodelife.acts.upgrade.opening import order_told
from kubectl_nodelife.acts.upgrade.run_edits import (
    asking,
    edit_run,
    open_document,
    read_lease,
    with_policy,
)
from kubectl_nodelife.commands.cluster.drain import DrainLook, look_for_drain
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.upgrade.detaching import (
    NOT_DETACHED,
    DetachFlags,
    StartingTerminal,
    detach,
)
from kubectl_nodelife.commands.upgrade.leading import LeadFlags, checked_images, lead_run
from kubectl_nodelife.commands.upgrade.ordering import ask_leader, order_session
from kubectl_nodelife.commands.upgrade.reading import read_run
from kubectl_nodelife.commands.write_flags import run_interruptible
from kubectl_nodelife.controllers.upgrade.document import ALL, RunDocument, Verb, Wish
from kubectl_nodelife.controllers.upgrade.policy import (
    UpgradePolicy,
    not_given_again,
    policy_of_spec,
    spec_digest,
    spec_with,
)
from kubectl_nodelife.errors import BadInput, NotFound, Refused
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.report import terminal
from kubectl_nodelife.upgrade.findings import version_skew
from kubectl_nodelife.upgrade.plan_values import REFUSED_BY


def go_on(
    wish: Wish,
    order: Mapping[str, Any],
    connection: Connection,
    lead: LeadFlags,
    detached: DetachFlags = NOT_DETACHED,
    begun_by: StartingTerminal | None = None,
) -> int:
    """Have the leader do it, or lead the run and do it; the exit code. Raises NodelifeError.

    `order`: work and policy that change, as a file of kind Upgrade has them. A leader that is alive
    keeps those that it was begun with, and is not asked where others are given.
    """
    given = {name: value for name, value in order.items() if name != "leaseNamespace"}
    namespace = str(order.get("leaseNamespace", "kube-system"))
    read = asyncio.run(read_run(connection, namespace))
    run = open_document(read.lease)
    _check_names(wish, run, read.nodes)
    policy = policy_of_spec(run.spec, given)
    if not (aborts := wish.verb is Verb.ABORT):
        _check_given(run, given)
    changes = spec_digest(spec_with(run.spec, policy, given)) != run.policy
    holder = read.lease.spec.holder_identity if read.lease is not None else ""
    if (
        holder
        and (aborts or not changes)
        and run_interruptible(lambda: _asked(wish, namespace, connection, lead))
    ):
        terminal.write(f"{holder} leads the run, and has been asked to {wish.verb}\n")
        return 0
    if detached.detach:
        handed_over = {"wish": to_builtins(wish), "given": dict(order)}
        return detach(str(wish.verb), handed_over, connection, lead)
    check_image(policy, given, run.run)
    terminal.note(f"run {run.run} goes on as its Lease says: {order_told(policy)}")
    look = _looked(policy, connection, lead)
    images = checked_images(connection, policy, look, claims=not aborts)

    async def opening(session: ActSession, carrier: LiveCarrier) -> RunDocument:
        if changes:
            await edit_run(session, carrier, namespace, with_policy(policy, given), "other flags")
        await edit_run(session, carrier, namespace, asking(wish), str(wish.verb))
        opened = open_document(await read_lease(session, namespace))
        if begun_by is not None:
            begun_by.tell_leading(opened.run)
        return opened

    return lead_run(policy, look, images, opening, connection, lead)


def _looked(policy: UpgradePolicy, connection: Connection, lead: LeadFlags) -> DrainLook:
    """The cluster. Raises Refused where its versions do not allow the target."""
    look = look_for_drain(Where(connection, assignments=lead.assignments))
    for finding in version_skew(look.settings, policy):
        if finding.severity == REFUSED_BY:
            raise Refused(finding.text, on="--target")
    return look


def _check_given(run: RunDocument, given: Mapping[str, Any]) -> None:
    """Raises BadInput where the run would go on with less caution than it was begun with."""
    if missing := not_given_again(run.spec, given):
        raise BadInput(
            f"run {run.run} was begun with {' and '.join(missing)}, which no Lease keeps",
            remedy="give it again, or --gate '' to go on without",
        )
    check_digest(run)


def check_digest(run: RunDocument) -> None:
    """Raises Refused where somebody has edited the policy on the Lease: who may write a Lease shall
    not have pods evicted that the order spared."""
    if spec_digest(run.spec) != run.policy:
        raise Refused(
            f"the policy of run {run.run} on its Lease is not the one that it was begun with",
            remedy="`upgrade start` with the line that began it goes on; `upgrade abort` ends it",
        )


def _check_names(wish: Wish, run: RunDocument, nodes: Iterable[Node]) -> None:
    """Raises NotFound for a node that neither the cluster nor the run knows."""
    known = {node.name for node in nodes} | {*run.step.nodes, *run.given_back, *run.failed, ALL}
    for name in (*wish.retry, *wish.assume_done, *wish.skip):
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else "check the name"
            raise NotFound("nodes", name, remedy=meant)


async def _asked(wish: Wish, namespace: str, connection: Connection, lead: LeadFlags) -> bool:
    """True if a leader is there and has taken it up."""
    async with order_session(connection, namespace, insecure=lead.insecure) as (session, carrier):
        return await ask_leader(session, carrier, namespace, wish)
