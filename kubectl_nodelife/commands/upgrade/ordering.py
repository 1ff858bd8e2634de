"""What `upgrade pause`, `resume`, `abort` and `clean` share: changing the run's Lease."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.write_flags import environ, identity_of
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActSession
    from kubectl_nodelife.controllers.upgrade.document import Wish
    from kubectl_nodelife.daemon.cluster_checks import Right
    from kubectl_nodelife.kube.node import Lease

LEASE_RIGHTS: Final = ("get", "patch")
HEARD_SECONDS: Final = 25.0
_LOOK_SECONDS: Final = 1.0

QPS: Final = 20.0
BURST: Final = 40


def order_flags(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of all orders: where the Lease is, and `--insecure-enforce`."""
    for decorate in (
        click.option(
            "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
        ),
        click.option(
            "--lease-namespace",
            default="kube-system",
            show_default=True,
            metavar="NS",
            help="Where the run's Lease is.",
        ),
    ):
        callback = decorate(callback)
    return callback


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

    from kubectl_nodelife.acts.carrier import LiveCarrier
    from kubectl_nodelife.acts.session import ActOrder, act_session
    from kubectl_nodelife.acts.upgrade.run_edits import UPGRADE
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.daemon.cluster_checks import Right
    from kubectl_nodelife.engine.token_bucket import TokenBucket

    leases = tuple(
        Right("coordination.k8s.io", "leases", "", verb, namespace) for verb in LEASE_RIGHTS
    )
    order = ActOrder(UPGRADE, (*leases, *rights), max_writes=max_writes, insecure=insecure)
    target = target_of(connection)
    opened = act_session(order, target, environ(), identity_of(connection), terminal.warn)
    async with opened as session:
        carrier = LiveCarrier(session, TokenBucket(QPS, BURST), _tell_held)
        try:
            yield session, carrier
        finally:
            await asyncio.shield(carrier.stop())


async def ask_leader(session: ActSession, carrier: LiveCarrier, namespace: str, wish: Wish) -> bool:
    """Leave it on the Lease, and wait until the leader has taken it up; whether it has.

    Raises Refused where no run is open.
    """
    from kubectl_nodelife.acts.upgrade.run_edits import asking, edit_run

    because = f"{wish.verb} is asked for"
    lease = await edit_run(session, carrier, namespace, asking(wish), because)
    return await heard(session, namespace, lease)


async def heard(session: ActSession, namespace: str, asked: Lease) -> bool:
    """True if what was asked is struck off within the time in which a leader answers."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.run_edits import read_lease
    from kubectl_nodelife.controllers.upgrade.document import ANNOTATION_WISH

    text = (asked.metadata.annotations or {}).get(ANNOTATION_WISH)
    try:
        async with asyncio.timeout(HEARD_SECONDS):
            while True:
                lease = await read_lease(session, namespace)
                notes = lease.metadata.annotations if lease is not None else None
                if (notes or {}).get(ANNOTATION_WISH) != text:
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False


def has_holder(lease: Lease | None) -> bool:
    """True if the Lease names a holder, alive or not. Raises Refused where no run is open."""
    from kubectl_nodelife.acts.upgrade.run_edits import open_document

    open_document(lease)
    return bool(lease is not None and lease.spec.holder_identity)


def _tell_held(action: object, because: str) -> None:
    terminal.note(f"held: {because}")
