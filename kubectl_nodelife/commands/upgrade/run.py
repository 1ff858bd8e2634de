"""The run as it stands in the cluster: read for `upgrade status` and the rest, changed by orders.

Read are the nodes and the run's Lease, and for `upgrade clean` what runs have made. An order
changes the Lease, and waits until the leader has taken it up.

Becoming the run's leader, in the foreground, is here as well. `nohup`, which is respected,
systemd-run or a Job put it elsewhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, gathered_flags
from kubectl_nodelife.commands.writing import environ, identity_of
from kubectl_nodelife.errors import EXIT_FAILED, Failed
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.session import ActSession, LiveCarrier
    from kubectl_nodelife.acts.upgrade.leader import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest
    from kubectl_nodelife.controllers.upgrade.leaving import LeftObject
    from kubectl_nodelife.controllers.upgrade.memory import UpgradePorts
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.kube.node import Lease, Node
    from kubectl_nodelife.live.client import Client
    from kubectl_nodelife.sim.upgrade_course import PlayedRun


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
        or_refused,
        server_now_ns,
        skew_warnings,
        target_of,
    )
    from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Node
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listwatch import read_all
    from kubectl_nodelife.live.requests import Resource

    target = target_of(connection)
    async with bulk_client(target) as client:
        listed = await or_refused(read_all(client, Resource(kind_named("Node"))))
        if isinstance(listed, ApiError):
            raise Failed(listed.what, on="nodes", remedy="see 'kubectl nodelife rbac'")
        nodes = [node for node in listed if isinstance(node, Node)]
        lease = await read_lease_named(client, lease_namespace, LEASE_NAME)
        return RunRead(
            nodes,
            lease,
            server_now_ns(client),
            direct_source(target, synced=True),
            skew_warnings(client),
        )


async def read_left_objects(
    connection: Connection, warn: Callable[[str], None]
) -> list[LeftObject]:
    """The canaries and Jobs of runs, in all namespaces. Raises Unreachable, Failed.

    `warn` receives what must not be listed.
    """
    from kubectl_nodelife.commands.cluster.direct import bulk_client, or_refused, target_of
    from kubectl_nodelife.controllers.upgrade.leaving import left_objects
    from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listwatch import read_all
    from kubectl_nodelife.live.requests import Resource

    objects: list[LeftObject] = []
    async with bulk_client(target_of(connection)) as client:
        for kind in _MADE:
            listed = await or_refused(
                read_all(client, Resource(kind_named(kind), labels=LABEL_RUN))
            )
            if isinstance(listed, ApiError):
                warn(f"{kind_named(kind).plural} of runs cannot be listed: {listed.what}")
            else:
                objects += left_objects(listed)
    return objects


async def read_lease_named(
    client: Client, namespace: str, name: str, absent: Collection[int] = (_NOT_FOUND,)
) -> Lease | None:
    """The Lease; None where the API server answers `absent`. Raises NodelifeError."""
    from kubectl_nodelife.kube.codec import decode_json
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.requests import Resource, get_url

    url = get_url(Resource(kind_named("Lease"), namespace), name)
    try:
        return decode_json(Lease, await client.read(url))
    except ApiError as error:
        if error.code in absent:
            return None
        raise


LEASE_RIGHTS: Final = ("get", "patch")
LEADER_ANSWER_SECONDS: Final = 25.0
_LOOK_SECONDS: Final = 1.0

QPS: Final = 20.0
BURST: Final = 40


lease_namespace_flag = click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NS",
    help="Where the run's Lease is.",
)


def order_flags(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of all orders: where the Lease is, and `--insecure-enforce`."""
    insecure = click.option(
        "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
    )
    return lease_namespace_flag(insecure(callback))


@contextlib.asynccontextmanager
async def order_session(
    connection: Connection,
    namespace: str,
    *,
    insecure: bool,
    rights: tuple[Right, ...] = (),
    max_writes: int = 500,
) -> AsyncIterator[tuple[ActSession, LiveCarrier]]:
    """A session that may change the run's Lease, and do what `rights` are for."""
    import asyncio

    from kubectl_nodelife.acts.session import ActOrder, LiveCarrier, act_session
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.controllers.upgrade.marks import CONTROLLER
    from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.engine.workqueue import TokenBucket

    leases = tuple(
        Right("coordination.k8s.io", "leases", "", verb, namespace, LEASE_NAME)
        for verb in LEASE_RIGHTS
    )
    order = ActOrder(CONTROLLER, (*leases, *rights), max_writes=max_writes, insecure=insecure)
    target = target_of(connection)
    opened = act_session(order, target, environ(), identity_of(connection), terminal.warn)
    async with opened as session:
        carrier = LiveCarrier(session, TokenBucket(QPS, BURST), _note_held)
        try:
            yield session, carrier
        finally:
            await asyncio.shield(carrier.stop())


async def ask_leader(
    session: ActSession, carrier: LiveCarrier, namespace: str, request: UpgradeRequest
) -> bool:
    """Leave it on the Lease; whether it is struck off within the time in which a leader answers.

    A run that no process leads is paused by its document. Raises Refused where no run is open.
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.lease import asking, edit_run, read_lease
    from kubectl_nodelife.controllers.upgrade.document import ANNOTATION_REQUEST

    def asked(lease: Lease | None) -> str | None:
        notes = lease.metadata.annotations if lease is not None else None
        return (notes or {}).get(ANNOTATION_REQUEST)

    because = f"{request.verb} is asked for"
    lease = await edit_run(session, carrier, namespace, asking(request), because)
    text = asked(lease)
    if text is None or not lease.spec.holder_identity:
        return text is None
    try:
        async with asyncio.timeout(LEADER_ANSWER_SECONDS):
            while asked(await read_lease(session, namespace)) == text:
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
    return True


def _note_held(action: object, because: str) -> None:
    terminal.note(f"held: {because}")


NOT_PLANNED_ON: Final = ("VolumeAttachment", "CSINode")
"""Kinds that the leader follows beside those that a plan reads."""

WRITES_A_NODE: Final = 20
"""PATCHes, canary, Lease and Job of one node, with a new try and a new leader."""


class LeadFlags(NamedTuple):
    """The flags of all verbs that lead."""

    yes: bool
    insecure: bool
    lease_duration: str
    assignments: tuple[str, ...]


_LEAD_OPTIONS = (
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option(
        "--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting; repeatable."
    ),
    click.option(
        "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
    ),
    click.option(
        "--lease-duration",
        default="60s",
        show_default=True,
        metavar="DURATION",
        help="How long a leader that does not renew keeps the Lease.",
    ),
)

lead_flags = gathered_flags("lead", LeadFlags, _LEAD_OPTIONS)
"""Gives a command these flags; its callback gets one argument, `lead`."""


def lead_run(
    policy: UpgradePolicy,
    look: DrainLook,
    opening: Opening,
    connection: Connection,
    flags: LeadFlags,
) -> int:
    """Lead the run in the foreground; the exit code. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.leader import LeadOrder
    from kubectl_nodelife.acts.upgrade.running import lead as lead_the_run
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.kube.times import parse_duration

    order = LeadOrder(
        policy,
        look.settings,
        _ports(policy, look),
        opening,
        target_of(connection),
        environ(),
        identity_of(connection),
        _most_writes(policy, look),
        flags.insecure,
        parse_duration(flags.lease_duration),
    )
    try:
        return asyncio.run(lead_the_run(order, _write_line, terminal.warn))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def show_course(course: PlayedRun) -> int:
    """Say what the leader of a played run decides, each line with its time; the exit code that
    the run would have.
    """
    from kubectl_nodelife.acts.upgrade.leader import sentences_of
    from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
    from kubectl_nodelife.engine.actions import RecordEvent

    terminal.write("\n")  # after the plan
    for at_ns, action in course.decided:
        for line in sentences_of(action) if not isinstance(action, RecordEvent) else ():
            _write_line(f"(dry run) {line}", at_ns)
    if course.phase not in OVER and course.phase != RunPhase.PAUSED:
        for name, hold in sorted(course.held.items()):
            terminal.warn(f"node {name} is never claimed: {hold.because}")
    failed = any(turn.failed for turn in course.turns.values())
    return EXIT_FAILED if failed or course.phase not in OVER else 0


def _ports(policy: UpgradePolicy, look: DrainLook) -> UpgradePorts:
    from kubectl_nodelife.controllers.upgrade.controller import READS
    from kubectl_nodelife.controllers.upgrade.fleet import reported_addresses
    from kubectl_nodelife.upgrade.ports import make_ports

    snapshot = look.snapshot
    read = {kind for kind in READS if kind in NOT_PLANNED_ON or snapshot.was_read(kind)}
    addresses = {node.uid: reported_addresses(node) for node in snapshot.nodes.values()}
    return make_ports(policy, look.settings, read)._replace(planned_addresses=addresses)


def selected_names(policy: UpgradePolicy, look: DrainLook) -> list[str]:
    """The nodes that the run is about."""
    from kubectl_nodelife.controllers.upgrade.claims import is_selected

    return [name for name, node in look.snapshot.nodes.items() if is_selected(node, policy)]


def _most_writes(policy: UpgradePolicy, look: DrainLook) -> int:
    """Twice what a run over the nodes with their pods writes at most."""
    nodes = selected_names(policy, look)
    pods = sum(len(look.snapshot.cache.pods_on(name)) for name in nodes)
    return 2 * (WRITES_A_NODE * len(nodes) + pods) + 100


def _write_line(text: str, at_ns: int | None = None) -> None:
    """A line with its time, by default now; in a log, which may be days long, and on another day
    than today, with its date too.
    """
    from kubectl_nodelife.report.screen import this_screen

    now = time.localtime()
    at = now if at_ns is None else time.localtime(at_ns / SECOND_NS)
    is_short = this_screen().width and at[:3] == now[:3]
    stamp = "%H:%M:%S" if is_short else "%Y-%m-%dT%H:%M:%S%z"
    terminal.write(f"{time.strftime(stamp, at)} {terminal.printable(text)}\n")
    terminal.flush()
