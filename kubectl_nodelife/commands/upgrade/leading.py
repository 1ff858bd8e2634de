"""What `upgrade start`, `resume`, `abort` and `prove` share: becoming the run's leader."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, gathered_flags
from kubectl_nodelife.commands.write_flags import environ, identity_of, run_interruptible
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.upgrade.canary_images import PauseImages
    from kubectl_nodelife.acts.upgrade.running import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts

NOT_PLANNED_ON: Final = ("VolumeAttachment", "CSINode")
"""Kinds that the leader follows beside those that a plan reads."""

ASSUMED_WORK_NS: Final = 10 * MINUTE_NS
WRITES_A_NODE: Final = 20
"""PATCHes, canary, Lease and Job of one node, with a new try and a new leader."""


class LeadFlags(NamedTuple):
    """The flags of all verbs that lead."""

    yes: bool
    insecure: bool
    lease_duration: str
    assignments: tuple[str, ...]


_OPTIONS = (
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
        help="So long a silent leader keeps the Lease.",
    ),
)

lead_flags = gathered_flags("lead", LeadFlags, _OPTIONS)
"""Gives a command these flags; its callback gets one argument, `lead`."""


def lead_run(
    policy: UpgradePolicy,
    look: DrainLook,
    images: PauseImages,
    opening: Opening,
    connection: Connection,
    flags: LeadFlags,
) -> int:
    """Lead the run in the foreground; the exit code. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.running import LeadOrder
    from kubectl_nodelife.acts.upgrade.running import lead as lead_the_run
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.kube.duration import parse_duration

    order = LeadOrder(
        policy,
        look.settings,
        _ports(policy, look, images),
        opening,
        target_of(connection),
        environ(),
        identity_of(connection),
        _most_writes(policy, look),
        flags.insecure,
        parse_duration(flags.lease_duration),
    )
    try:
        return asyncio.run(lead_the_run(order, _tell, terminal.warn))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def rehearse_run(
    policy: UpgradePolicy, look: DrainLook, images: PauseImages, connection: Connection
) -> int:
    """Tell what a run would do on live data, as time goes by. Raises NodelifeError."""
    from kubectl_nodelife.acts.upgrade.dry_run import DryRun
    from kubectl_nodelife.acts.upgrade.leader import KINDS
    from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
    from kubectl_nodelife.acts.upgrade.opening import new_run_id
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.controllers.upgrade.document import RunDocument
    from kubectl_nodelife.controllers.upgrade.policy import policy_digest
    from kubectl_nodelife.live.auth import Session
    from kubectl_nodelife.live.client import Client

    target = target_of(connection)
    now_ns = look.snapshot.now_ns
    run = RunDocument(run=new_run_id(now_ns), policy=policy_digest(policy))

    async def work() -> int:
        client = Client(Session(target, environ()))
        try:
            cache = LiveCache(client, KINDS, look.settings)
            ports = _ports(policy, look, images)
            work_ns = policy.expect_work_ns or ASSUMED_WORK_NS
            return await DryRun(cache, policy, ports, run, work_ns, _tell).run()
        finally:
            await client.close()

    return run_interruptible(work)


def _ports(policy: UpgradePolicy, look: DrainLook, images: PauseImages) -> UpgradePorts:
    from kubectl_nodelife.acts.upgrade.leader import KINDS
    from kubectl_nodelife.controllers.upgrade.job_manifest import claims_of
    from kubectl_nodelife.upgrade.ports import make_ports

    snapshot = look.snapshot
    read = {kind for kind in KINDS if kind in NOT_PLANNED_ON or snapshot.was_read(kind)}
    claims = {node.uid: claims_of(node) for node in snapshot.nodes.values()}
    return make_ports(policy, look.settings, images, read)._replace(planned_claims=claims)


def images_of(connection: Connection, policy: UpgradePolicy) -> PauseImages:
    """The pause images that nodes have, where the policy names no image. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.canary_images import PauseImages, read_pause_images
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of

    if policy.canary_image or policy.canary_template:
        return PauseImages({})

    async def read() -> PauseImages:
        async with bulk_client(target_of(connection)) as client:
            return await read_pause_images(client, policy.pause_repository)

    return asyncio.run(read())


def checked_images(
    connection: Connection, policy: UpgradePolicy, look: DrainLook, *, claims: bool = True
) -> PauseImages:
    """As `images_of`. Raises BadInput where nodes may be taken and one would have no canary."""
    images = images_of(connection, policy)
    if claims:
        images.check(policy, selected_names(policy, look))
    return images


def selected_names(policy: UpgradePolicy, look: DrainLook) -> list[str]:
    """The nodes that the run is about."""
    from kubectl_nodelife.controllers.upgrade.selection import is_selected

    return [name for name, node in look.snapshot.nodes.items() if is_selected(node, policy)]


def _most_writes(policy: UpgradePolicy, look: DrainLook) -> int:
    """Twice what a run over the nodes with their pods writes at most."""
    nodes = selected_names(policy, look)
    pods = sum(len(look.snapshot.pods_by_node.get(name, ())) for name in nodes)
    return 2 * (WRITES_A_NODE * len(nodes) + pods) + 100


def _tell(text: str) -> None:
    """A line with its time; in a log, which may be days long, with its date too."""
    from kubectl_nodelife.report.screen import this_screen

    stamp = "%H:%M:%S" if this_screen().width else "%Y-%m-%dT%H:%M:%S%z"
    terminal.write(f"{time.strftime(stamp)} {terminal.printable(text)}\n")
    terminal.flush()
