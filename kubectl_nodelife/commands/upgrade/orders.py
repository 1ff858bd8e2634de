"""`kubectl nodelife upgrade status`: how a run stands, from annotations and the Lease alone;
`resume`, `abort` and `pause`: what a person asks of its leader; and `clean`: show what runs have
left behind, and take it off.

A request is only a request: nothing that stands on a Lease is obeyed as an order.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.commands import writing
from kubectl_nodelife.commands.flags import (
    Callback,
    Connection,
    Output,
    connection_flags,
    gathered_flags,
    output_flags,
)
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_NO, Failed, NotFound
from kubectl_nodelife.kube.names import parse_names
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.session import ActSession, LiveCarrier
    from kubectl_nodelife.controllers.upgrade.document import RunDocument, UpgradeRequest
    from kubectl_nodelife.controllers.upgrade.leaving import LeftObject, Leftover
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.kube.node import Lease, Node
    from kubectl_nodelife.report.upgrade import StatusFollower


_NOT_FOUND = 404
_MADE: Final = ("Pod", "Job")


class RunRead(NamedTuple):
    """The nodes, the run's Lease, and when and from where they were read."""

    nodes: list[Node]
    lease: Lease | None
    now_ns: int
    source: dict[str, Any]
    warnings: list[str]


async def read_run(connection: Connection, lease_namespace: str) -> RunRead:
    """Read them without a daemon. Raises NodelifeError."""
    from kubectl_nodelife.commands.cluster.direct import (
        bulk_client,
        direct_source,
        server_now_ns,
        skew_warnings,
        target_of,
    )
    from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME
    from kubectl_nodelife.kube.codec import decode_json
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease, Node
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listwatch import list_or_refusal
    from kubectl_nodelife.live.requests import Resource, get_url

    target = target_of(connection)
    async with bulk_client(target) as client:
        listed = await list_or_refusal(client, Resource(kind_named("Node")))
        if isinstance(listed, ApiError):
            raise Failed(listed.what, on="nodes", remedy="see 'kubectl nodelife rbac'")
        nodes = [node for node in listed.objects if isinstance(node, Node)]
        url = get_url(Resource(kind_named("Lease"), lease_namespace), LEASE_NAME)
        try:
            lease = decode_json(Lease, await client.read(url))
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
            lease = None
        source = direct_source(target, synced=True)
        return RunRead(nodes, lease, server_now_ns(client), source, skew_warnings(client))


async def _read_left_objects(connection: Connection) -> list[LeftObject]:
    """The canaries and Jobs of runs, in all namespaces; what must not be listed is warned of.
    Raises Unreachable, Failed.
    """
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of
    from kubectl_nodelife.controllers.upgrade.leaving import left_objects
    from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listwatch import list_or_refusal
    from kubectl_nodelife.live.requests import Resource

    objects: list[LeftObject] = []
    async with bulk_client(target_of(connection)) as client:
        for kind in _MADE:
            listed = await list_or_refusal(client, Resource(kind_named(kind), labels=LABEL_RUN))
            if isinstance(listed, ApiError):
                what = f"{kind_named(kind).plural} of runs cannot be listed: {listed.what}"
                terminal.warn(what)
            else:
                objects += left_objects(listed.objects)
    return objects


_LEASE_VERBS: Final = ("get", "patch")
LEADER_ANSWER_SECONDS: Final = 25.0
_ANSWER_LOOK_SECONDS: Final = 1.0

QPS: Final = 20.0
BURST: Final = 40


class OrderFlags(NamedTuple):
    """The flags of all orders: where the Lease is, and whether TLS need not be verified."""

    lease_namespace: str = "kube-system"
    insecure: bool = False


_order_flags = gathered_flags(
    "order",
    OrderFlags,
    f"""
--lease-namespace=NS  Where the run's Lease is.
{writing.INSECURE_FLAG}
""",
    lease_namespace={"show_default": True},
)


def _carry_out(
    work: Callable[[ActSession, LiveCarrier], Awaitable[int]],
    connection: Connection,
    flags: OrderFlags,
    rights: tuple[Right, ...] = (),
    max_writes: int = 500,
) -> int:
    """Do the work in a session that may change the run's Lease, and do what `rights` are for; its
    exit code. Raises NodelifeError.
    """
    import asyncio

    from kubectl_nodelife.acts.session import ActOrder, LiveCarrier
    from kubectl_nodelife.controllers.upgrade.marks import CONTROLLER
    from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.engine.workqueue import TokenBucket

    leases = (
        Right("coordination.k8s.io", "leases", "", verb, flags.lease_namespace, LEASE_NAME)
        for verb in _LEASE_VERBS
    )
    order = ActOrder(CONTROLLER, (*leases, *rights), max_writes=max_writes, insecure=flags.insecure)

    async def in_session() -> int:
        async with writing.session_of(connection, order, terminal.warn) as session:
            carrier = LiveCarrier(session, TokenBucket(QPS, BURST), writing.note_held)
            try:
                return await work(session, carrier)
            finally:
                await asyncio.shield(carrier.stop())

    return writing.run_interruptible(in_session)


def _node_option(name: str, **more: Any) -> Callable[[Callback], Callback]:
    """An option of names of nodes, with commas between them or given again, as in kubectl."""
    return click.option(name, metavar="NODES", multiple=True, **more)


@click.command("resume")
@click.option("--rebase", is_flag=True, help="Count from the nodes that are there now.")
@_node_option("--retry", help="Take these Failed or Held nodes again, or `all`.")
@_node_option("--assume-done", help="Their work is done: go on with the checks.")
@_node_option("--skip", help="Leave these out, and take our marks off them.")
@_order_flags
@connection_flags
def resume(
    rebase: bool,
    retry: tuple[str, ...],
    assume_done: tuple[str, ...],
    skip: tuple[str, ...],
    order: OrderFlags,
    connection: Connection,
) -> int:
    """End a pause and forgive the failures so far.

    The run's leader does it, or the next one: where no process leads the run, `upgrade start` with
    the line that began it goes on. `start --resume` does both, also with another work or policy.

    \b
    Examples:
      kubectl nodelife upgrade resume
      kubectl nodelife upgrade resume --retry b7,b8
      kubectl nodelife upgrade resume --skip b7 --rebase
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.lease import open_document
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
    from kubectl_nodelife.daemon.enforce.recorder import user_and_host

    request = UpgradeRequest(
        verb=Verb.RESUME,
        by=user_and_host(),
        retry=_names(retry),
        assume_done=_names(assume_done),
        skip=_names(skip),
        rebase=rebase,
    )
    read = asyncio.run(read_run(connection, order.lease_namespace))
    _check_names(request, open_document(read.lease), read.nodes)
    return _ask(request, connection, order)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(parse_names([name for text in given for name in text.split(",") if name]))


def _check_names(request: UpgradeRequest, run: RunDocument, nodes: Iterable[Node]) -> None:
    """Raises NotFound for a node that neither the cluster nor the run knows."""
    from kubectl_nodelife.controllers.upgrade.document import ALL

    names = {node.name for node in nodes} | {*run.step.nodes, *run.given_back, *run.failed, ALL}
    for name in (*request.retry, *request.assume_done, *request.skip):
        if name not in names:
            raise NotFound("nodes", name, among=names)


_DONE: Final = {
    "pause": "paused; what is in work is proven and released",
    "resume": "the run goes on",
    "abort": "the run ends once what is in work is over",
}
_NO_LEADER: Final = "no process leads the run: `upgrade start` with the line that began it"
_UNDONE: Final = {
    "pause": "the leader has not answered: the next leader of the run will pause it",
    "resume": f"{_NO_LEADER} goes on",
    "abort": f"{_NO_LEADER} gives back and proves what was taken; `upgrade clean` ends it at once",
}


def _ask(request: UpgradeRequest, connection: Connection, flags: OrderFlags) -> int:
    """Leave the request on the run's Lease, where a leader strikes it off as it takes it up; 1
    where none does. A run that no process leads is paused by its document. Raises NodelifeError.
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.lease import ask, edit_run, read_lease
    from kubectl_nodelife.controllers.upgrade.document import ANNOTATION_REQUEST

    namespace = flags.lease_namespace

    def asked(lease: Lease | None) -> str | None:
        notes = lease.metadata.annotations if lease is not None else None
        return (notes or {}).get(ANNOTATION_REQUEST)

    async def work(session: ActSession, carrier: LiveCarrier) -> int:
        because = f"{request.verb} is asked for"
        lease = await edit_run(session, carrier, namespace, partial(ask, request), because)
        waiting = text = asked(lease)
        if text is not None and lease.spec.holder_identity:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEADER_ANSWER_SECONDS):
                    while (waiting := asked(await read_lease(session, namespace))) == text:
                        await asyncio.sleep(_ANSWER_LOOK_SECONDS)
        if text is None or waiting != text:
            terminal.write(f"{_DONE[request.verb]}\n")
            return 0
        terminal.warn(_UNDONE[request.verb])
        return 0 if request.verb == "pause" else EXIT_FAILED

    return _carry_out(work, connection, flags)


@click.command("abort")
@click.option("--now", is_flag=True, help="Cut the work off as well; its nodes are left Held.")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@_order_flags
@connection_flags
def abort(now: bool, because: str, order: OrderFlags, connection: Connection) -> int:
    """End a run: its leader gives back what is drained, waits for work, proves what was worked on.

    Nothing is rolled back on a machine. Nodes Failed or Held are left, and listed with kubectl's
    lines. --now cuts the work off; those nodes stay cordoned and Held. Where no process leads the
    run, `upgrade start` with the line that began it does this; `upgrade clean` ends it at once.

    \b
    Examples:
      kubectl nodelife upgrade abort
      kubectl nodelife upgrade abort --now --because wrong-image
    """
    request = _request("abort", "aborted", because, now=now)
    return _ask(request, connection, order)


def _request(verb: str, done: str, because: str, *, now: bool = False) -> UpgradeRequest:
    """A request of this user, with his name and his words as the reason."""
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
    from kubectl_nodelife.daemon.enforce.recorder import user_and_host

    by = user_and_host()
    reason = f"{done} by {by}" + (f": {because}" if because else "")
    return UpgradeRequest(verb=Verb(verb), because=reason, by=by, now=now)


@click.command("pause")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@_order_flags
@connection_flags
def pause(because: str, order: OrderFlags, connection: Connection) -> int:
    """Pause a run: nothing more is claimed, evicted or begun until `upgrade resume`.

    What is in work is waited for, proven and released. Nobody need lead the run for it.

    \b
    Examples:
      kubectl nodelife upgrade pause --because storage-rebuilds
    """
    request = _request("pause", "paused", because)
    return _ask(request, connection, order)


@click.command("clean")
@click.option(
    "--release-failed",
    is_flag=True,
    help="Also take Failed and Held nodes' marks off, and a cordon that was ours.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_order_flags
@connection_flags
def clean(release_failed: bool, yes: bool, order: OrderFlags, connection: Connection) -> int:
    """Take off what runs have left: marks, cordons of ours, canaries, Jobs, the Lease.

    Shows the kubectl lines that do the same, and asks. Nodes that were taken and not proven stay
    out of service as Failed, but with --release-failed; what others cordoned stays cordoned.

    \b
    Examples:
      kubectl nodelife upgrade clean
      kubectl nodelife upgrade clean --release-failed --yes
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.clean import Cleaner, check_over
    from kubectl_nodelife.acts.upgrade.lease import LEASE_DURATION_NS, RunLease
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.controllers.upgrade.leaving import leftovers

    namespace = order.lease_namespace
    read = asyncio.run(read_run(connection, namespace))
    proof_only = check_over(read.lease)
    marks = [*leftovers(read.nodes, proof_only=proof_only, release_failed=release_failed)]
    objects = asyncio.run(_read_left_objects(connection))
    if not (marks or objects or read.lease):
        terminal.write("nothing is left of an upgrade\n")
        return 0
    for line in _shown(marks, objects, read.lease):
        terminal.write(terminal.printable(line))
    target = target_of(connection)
    question = f"Clean up {target.context or target.server}?"
    if not writing.is_confirmed(yes, question, target.server, "give --yes to send it"):
        terminal.note("not confirmed: nothing was changed")
        return 0

    async def work(session: ActSession, carrier: LiveCarrier) -> int:
        lease = RunLease(session, namespace, LEASE_DURATION_NS, lambda lease: None)

        def show(text: str) -> None:
            terminal.write(f"{text}\n")

        cleaner = Cleaner(session, carrier, show, terminal.warn, release_failed)
        return 0 if await cleaner.run(lease, marks, objects) else EXIT_FAILED

    most = 3 * (len(marks) + len(objects) + 1)
    return _carry_out(work, connection, order, _rights(namespace, marks, objects), most)


def _shown(marks: list[Leftover], objects: list[LeftObject], lease: Lease | None) -> list[str]:
    """Each leftover, and kubectl's lines for it."""
    lines = []
    for leftover in marks:
        state = f" ({leftover.state})" if leftover.state else ""
        stays = "" if leftover.patch is not None else "stays: "
        lines.append(f"node/{leftover.node.name}{state}: {stays}{leftover.because}")
        lines += [f"    {line}" for line in leftover.by_hand]
    for obj in objects:
        lines += [f"{obj.name}: left by a run", f"    {obj.by_hand}"]
    if lease is not None and not any(leftover.stays for leftover in marks):
        lines.append(f"lease/{lease.namespace}/{lease.name}: the last run's result")
        lines.append(f"    kubectl delete lease {lease.name} -n {shlex.quote(lease.namespace)}")
    return lines


def _rights(
    lease_namespace: str, marks: list[Leftover], objects: list[LeftObject]
) -> tuple[Right, ...]:
    from kubectl_nodelife.daemon.permissions import LEASE_ROWS, Right
    from kubectl_nodelife.kube.kinds import kind_named

    wanted = {Right("", "nodes", "", "patch")} if marks else set()
    for obj in objects:
        kind = kind_named(obj.deletion.target[0])
        group = kind.api_version.rpartition("/")[0]
        wanted.add(Right(group, kind.plural, "", "delete", obj.obj.metadata.namespace))
    held = [right for row in LEASE_ROWS for right in row.rights(lease_namespace)]
    return (*sorted(wanted), *held)


_LOOK_SECONDS = 2.0


@click.command("status")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-l", "--selector", help="Only nodes with these labels, as in kubectl.")
@click.option("-w", "--watch", is_flag=True, help="Go on: what is new, until the run is over.")
@click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NS",
    help="Where the run's Lease is.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 4 where a person has to look.")
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
@connection_flags
def status(
    nodes: tuple[str, ...],
    selector: str | None,
    watch: bool,
    lease_namespace: str,
    exit_code: bool,
    output: Output,
    connection: Connection,
) -> int:
    """Show a run: its leader, what holds it, each node's state and why, slots left in each scope.

    Anybody who may read nodes and the run's Lease can ask, on any machine, without a daemon. With
    NODE, or -o wide, each check of a node in Settling, Proving or Soaking is shown as well, as the
    leader reported it last.
    --exit-code exits with 4 where the run is paused, a node is Failed or Held, or a proof is held.

    \b
    Examples:
      kubectl nodelife upgrade status
      kubectl nodelife upgrade status worker-7 -o json
      kubectl nodelife upgrade status -w
    """
    import asyncio

    from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
    from kubectl_nodelife.kube.selectors import label_selector
    from kubectl_nodelife.outlook.upgrade_status import has_trouble, upgrade_status
    from kubectl_nodelife.report.upgrade import StatusFollower, upgrade_status_page

    follower: StatusFollower | None = None
    names, labels = parse_names(nodes), label_selector(selector, nodes)
    while True:
        read = asyncio.run(read_run(connection, lease_namespace))
        answer = upgrade_status(read.nodes, read.lease, read.now_ns, read.source, names, labels)
        if follower is None:
            follower = StatusFollower(answer, wide=output.format == "wide")
            terminal.warn(*read.warnings, *answer["warnings"])
            terminal.write(output.render(upgrade_status_page(answer, named=bool(nodes))))
        elif (news := follower.news(answer)) and output.format in ("table", "wide"):
            terminal.write(news)
        elif news:
            terminal.write("\n" + output.render(upgrade_status_page(answer, named=bool(nodes))))
        terminal.flush()
        over = answer["phase"] in {*map(str, OVER), "None"}
        if not watch or over or (answer["phase"] == RunPhase.PAUSED and not answer["nodes"]):
            return EXIT_NO if exit_code and has_trouble(answer) else 0
        asyncio.run(asyncio.sleep(_LOOK_SECONDS))
