"""`kubectl nodelife upgrade resume`, `abort` and `pause`: what a person asks of a run's leader.

`resume` and `abort` lead the run where no process does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Callback, Connection, connection_flags
from kubectl_nodelife.commands.upgrade.flags import given_mapping, policy_flags
from kubectl_nodelife.commands.upgrade.run import (
    LeadFlags,
    ask_leader,
    has_holder,
    lead_flags,
    lead_run,
    lease_namespace_flag,
    order_flags,
    order_session,
    read_run,
)
from kubectl_nodelife.commands.writing import run_interruptible
from kubectl_nodelife.errors import BadInput, NotFound, Refused
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.acts.upgrade.running import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.document import RunDocument, UpgradeRequest
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.kube.node import Node


def _node_option(name: str, **more: Any) -> Callable[[Callback], Callback]:
    """An option of names of nodes, with commas between them or given again, as in kubectl."""
    return click.option(name, metavar="NODES", multiple=True, **more)


@click.command("resume")
@policy_flags
@click.option("--rebase", is_flag=True, help="Count from the nodes that are there now.")
@_node_option("--retry", help="Take these Failed or Held nodes again, or `all`.")
@_node_option("--assume-done", help="Their work is done: go on with the checks.")
@_node_option("--skip", help="Leave these out, and take our marks off them.")
@lead_flags
@connection_flags
def resume(
    given: dict[str, Any],
    rebase: bool,
    retry: tuple[str, ...],
    assume_done: tuple[str, ...],
    skip: tuple[str, ...],
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """End a pause and forgive the failures so far; become the leader where there is none.

    Commands and Jobs do not stand in the cluster: without the work given again nodes in work are
    proven and released, and no work is begun. Policy flags that are given change the run's.

    \b
    Examples:
      kubectl nodelife upgrade resume --run ./upgrade-node
      kubectl nodelife upgrade resume --retry b7,b8 --run ./upgrade-node
      kubectl nodelife upgrade resume --skip b7 --canary-image registry.k8s.io/pause:3.10
    """
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    if given["nodes"] or given["selector"]:
        raise BadInput("a run keeps its nodes", remedy="abort it, and start another")
    request = UpgradeRequest(
        verb=Verb.RESUME,
        by=user_and_host(),
        retry=_names(retry),
        assume_done=_names(assume_done),
        skip=_names(skip),
        rebase=rebase,
    )
    return go_on(request, given_mapping(given, connection), connection, lead)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for text in given for name in text.split(",") if name)


def go_on(
    request: UpgradeRequest, order: Mapping[str, Any], connection: Connection, lead: LeadFlags
) -> int:
    """Have the leader do it, or lead the run and do it; the exit code. Raises NodelifeError.

    `order`: work and policy that change, as a file of kind Upgrade has them. A running leader
    keeps those that it was begun with, and is not asked where others are given.
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.lease import check_image, open_document, order_text
    from kubectl_nodelife.controllers.upgrade.document import Verb
    from kubectl_nodelife.controllers.upgrade.policy import policy_of_spec, spec_digest, spec_with

    given = {name: value for name, value in order.items() if name != "leaseNamespace"}
    namespace = str(order.get("leaseNamespace", "kube-system"))
    read = asyncio.run(read_run(connection, namespace))
    run = open_document(read.lease)
    _check_names(request, run, read.nodes)
    policy = policy_of_spec(run.spec, given)
    if not (aborts := request.verb is Verb.ABORT):
        _check_given(run, given)
    changes = spec_digest(spec_with(run.spec, policy, given)) != run.policy
    holder = read.lease.spec.holder_identity if read.lease is not None else ""
    if (
        holder
        and (aborts or not changes)
        and run_interruptible(lambda: _asked(request, namespace, connection, lead))
    ):
        terminal.write(f"{holder} leads the run, and has been asked to {request.verb}\n")
        return 0
    check_image(policy, given, run.run)
    terminal.note(f"run {run.run} goes on as its Lease says: {order_text(policy)}")
    look = _looked(policy, connection, lead)

    opening = _opening(request, policy, given if changes else None, namespace)
    return lead_run(policy, look, opening, connection, lead)


def _opening(
    request: UpgradeRequest,
    policy: UpgradePolicy,
    changed: Mapping[str, Any] | None,
    namespace: str,
) -> Opening:
    """Leaves the request on the Lease that is ours, and the flags that differ from the run's."""
    from kubectl_nodelife.acts.upgrade.lease import (
        asking,
        edit_run,
        open_document,
        read_lease,
        with_policy,
    )

    async def opening(session: ActSession, carrier: LiveCarrier) -> RunDocument:
        if changed is not None:
            await edit_run(session, carrier, namespace, with_policy(policy, changed), "other flags")
        await edit_run(session, carrier, namespace, asking(request), str(request.verb))
        return open_document(await read_lease(session, namespace))

    return opening


def _looked(policy: UpgradePolicy, connection: Connection, lead: LeadFlags) -> DrainLook:
    """The cluster. Raises Refused where its versions do not allow the target."""
    from kubectl_nodelife.commands.cluster.drain import look_for_drain
    from kubectl_nodelife.upgrade.findings import version_skew
    from kubectl_nodelife.upgrade.forecast import REFUSED_BY

    look = look_for_drain(Where(connection, assignments=lead.assignments))
    for finding in version_skew(look.settings, policy):
        if finding.severity == REFUSED_BY:
            raise Refused(finding.text, on="--target")
    return look


def _check_given(run: RunDocument, given: Mapping[str, Any]) -> None:
    """Raises BadInput where the run would go on with less caution than it was begun with."""
    from kubectl_nodelife.controllers.upgrade.policy import not_given_again

    if missing := not_given_again(run.spec, given):
        raise BadInput(
            f"run {run.run} was begun with {' and '.join(missing)}, which no Lease keeps",
            remedy="give it again, or --gate '' to go on without",
        )
    check_digest(run)


def check_digest(run: RunDocument) -> None:
    """Raises Refused where the policy on the Lease was edited: the right to write a Lease shall not
    be enough to have pods evicted that the order spared."""
    from kubectl_nodelife.controllers.upgrade.policy import spec_digest

    if spec_digest(run.spec) != run.policy:
        raise Refused(
            f"the policy of run {run.run} on its Lease is not the one that it was begun with",
            remedy="`upgrade start` with the line that began it goes on; `upgrade abort` ends it",
        )


def _check_names(request: UpgradeRequest, run: RunDocument, nodes: Iterable[Node]) -> None:
    """Raises NotFound for a node that neither the cluster nor the run knows."""
    from kubectl_nodelife.controllers.upgrade.document import ALL

    known = {node.name for node in nodes} | {*run.step.nodes, *run.given_back, *run.failed, ALL}
    for name in (*request.retry, *request.assume_done, *request.skip):
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else "check the name"
            raise NotFound("nodes", name, remedy=meant)


async def _asked(
    request: UpgradeRequest, namespace: str, connection: Connection, lead: LeadFlags
) -> bool:
    """True if a leader is there and has taken it up."""
    async with order_session(connection, namespace, insecure=lead.insecure) as (session, carrier):
        return await ask_leader(session, carrier, namespace, request)


@click.command("abort")
@click.option("--now", is_flag=True, help="Cut the work off as well; its nodes are left Held.")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@lease_namespace_flag
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
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    reason = f"aborted by {user_and_host()}" + (f": {because}" if because else "")
    request = UpgradeRequest(verb=Verb.ABORT, because=reason, by=user_and_host(), now=now)
    given = {"canaryImage": canary_image} if canary_image else {}
    return go_on(request, {**given, "leaseNamespace": lease_namespace}, connection, lead)


@click.command("pause")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@order_flags
@connection_flags
def pause(because: str, lease_namespace: str, insecure: bool, connection: Connection) -> int:
    """Pause a run: nothing more is claimed, evicted or begun until `upgrade resume`.

    What is in work is waited for, proven and released. Nobody need lead the run for it.

    \b
    Examples:
      kubectl nodelife upgrade pause --because storage-rebuilds
    """
    from kubectl_nodelife.acts.upgrade.lease import edit_run, pause_request, pausing, read_lease
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    reason = f"paused by {user_and_host()}" + (f": {because}" if because else "")

    async def work() -> int:
        session = order_session(connection, lease_namespace, insecure=insecure)
        async with session as (opened, carrier):
            lease = await read_lease(opened, lease_namespace)
            if not has_holder(lease):
                await edit_run(opened, carrier, lease_namespace, pausing(reason), reason)
                terminal.write("paused; the run has no leader\n")
                return 0
            request = pause_request(reason, user_and_host())
            if await ask_leader(opened, carrier, lease_namespace, request):
                terminal.write("paused; what is in work is proven and released\n")
                return 0
            terminal.warn("the leader has not answered: the next leader of the run will pause it")
            return 0

    return run_interruptible(work)
