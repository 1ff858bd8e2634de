"""`kubectl nodelife upgrade resume`, `abort` and `pause`: what a person asks of a run's leader; and
`clean`: show what runs have left behind, and take it off.

`resume` and `abort` lead the run where no process does.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

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
    read_left_objects,
    read_run,
)
from kubectl_nodelife.commands.writing import ActFlags, is_confirmed, run_interruptible
from kubectl_nodelife.errors import EXIT_FAILED, BadInput, NotFound, Refused
from kubectl_nodelife.kube.subjects import parse_names
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.acts.upgrade.running import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.document import RunDocument, UpgradeRequest
    from kubectl_nodelife.controllers.upgrade.leaving import LeftObject, Leftover
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.daemon.cluster_checks import Right
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
    return tuple(parse_names([name for text in given for name in text.split(",") if name]))


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
    """Take off what runs have left: marks, cordons of ours, canaries, Jobs, the Lease.

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
    from kubectl_nodelife.controllers.upgrade.leaving import leftovers

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
