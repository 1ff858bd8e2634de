"""The cluster as `upgrade plan` and `start` look at it: what drains need, and the Leases by which
the controller manager and the scheduler show that they live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection

if TYPE_CHECKING:
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.kube.node import Lease


def look_for_upgrade(where: Where, read_all: str = "") -> DrainLook:
    """As `look_for_drain`. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.commands.cluster.drain import look_for_drain

    look = look_for_drain(where, read_all)
    if where.filename:
        return look
    leases = asyncio.run(_read_leases(where.connection))
    return look._replace(snapshot=look.snapshot.changed(leases))


async def _read_leases(connection: Connection) -> list[Lease]:
    """Those of the Leases that are there and may be read; a plan says of the others that it does
    not know.
    """
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of
    from kubectl_nodelife.kube.decode import decode_json
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.requests import Resource, get_url
    from kubectl_nodelife.upgrade.findings import LEASES

    found = []
    async with bulk_client(target_of(connection)) as client:
        for name in LEASES:
            url = get_url(Resource(kind_named("Lease"), "kube-system"), name)
            try:
                found.append(decode_json(Lease, await client.read(url)))
            except ApiError as error:
                if error.code not in (403, 404):
                    raise
    return found
