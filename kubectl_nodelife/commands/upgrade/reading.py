"""Reads what `upgrade status` and the orders to a leader need: the nodes, and the run's Lease.

For `upgrade clean` also what runs have made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubectl_nodelife.acts.upgrade.lease import NAME
from kubectl_nodelife.commands.cluster.direct import (
    bulk_client,
    direct_source,
    or_refused,
    server_now_ns,
    skew_warnings,
    target_of,
)
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.controllers.upgrade.cleaning import LeftObject, left_objects
from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.decode import decode_json
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listing import read_all
from kubectl_nodelife.live.requests import Resource, get_url

_NOT_FOUND = 404
_MADE: Final = ("Pod", "Job", "Service")


class RunRead(NamedTuple):
    """The nodes, the run's Lease, and when and from where they were read."""

    nodes: list[Node]
    lease: Lease | None
    now_ns: int
    source: dict[str, Any]
    warnings: list[str]


async def read_run(connection: Connection, lease_namespace: str) -> RunRead:
    """Read them without a daemon. Raises NodelifeError."""
    target = target_of(connection)
    async with bulk_client(target) as client:
        nodes = await or_refused(read_all(client, Resource(kind_named("Node"))))
        if isinstance(nodes, ApiError):
            raise Failed(nodes.what, on="nodes", remedy="see 'kubectl nodelife rbac'")
        lease = await _read_lease(client, lease_namespace)
        return RunRead(
            [node for node in nodes if isinstance(node, Node)],
            lease,
            server_now_ns(client),
            direct_source(target, synced=True),
            skew_warnings(client),
        )


async def read_left_objects(
    connection: Connection, warn: Callable[[str], None]
) -> list[LeftObject]:
    """The canaries, Jobs and Services of runs, in all namespaces. Raises Unreachable, Failed.

    `warn` is told what must not be listed.
    """
    found: list[LeftObject] = []
    async with bulk_client(target_of(connection)) as client:
        for kind in _MADE:
            listed = await or_refused(
                read_all(client, Resource(kind_named(kind), labels=LABEL_RUN))
            )
            if isinstance(listed, ApiError):
                warn(f"{kind_named(kind).plural} of runs cannot be listed: {listed.what}")
            else:
                found += left_objects(listed)
    return found


async def _read_lease(client: Client, namespace: str) -> Lease | None:
    url = get_url(Resource(kind_named("Lease"), namespace), NAME)
    try:
        body = await client.read(url)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    return decode_json(Lease, body)
