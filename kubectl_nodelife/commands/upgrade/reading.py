"""Reads what `upgrade status` and the orders to a leader need: the nodes, and the run's Lease.

For the checks of nodes, also their pods, the DaemonSets, and their CSINodes; each of these only if
some node is in a state that has checks. For `upgrade clean` also what runs have made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.errors import Failed

if TYPE_CHECKING:
    from kubectl_nodelife.answers.upgrade_nodes import CheckEvidence
    from kubectl_nodelife.controllers.upgrade.cleaning import LeftObject
    from kubectl_nodelife.kube.node import Lease, Node
    from kubectl_nodelife.live.client import Client

ALL: Final[frozenset[str]] = frozenset({"*"})
"""The checks of every node."""
ONE_BY_ONE: Final = 8
"""The pods of so many nodes are read node by node, of more in one list."""
_OF_SERVICE: Final = ("Service", "EndpointSlice")
_NOT_FOUND = 404
_MADE: Final = ("Pod", "Job", "Service")


class RunRead(NamedTuple):
    """The nodes, the run's Lease, and when and from where they were read.

    `evidence`: what the checks of nodes are evaluated by; None where it was not asked for.
    """

    nodes: list[Node]
    lease: Lease | None
    now_ns: int
    source: dict[str, Any]
    warnings: list[str]
    evidence: CheckEvidence | None


async def read_run(
    connection: Connection, lease_namespace: str, checks_of: Collection[str] = ()
) -> RunRead:
    """Read them without a daemon. `checks_of`: of which nodes. Raises NodelifeError."""
    from kubectl_nodelife.answers.upgrade_nodes import has_checks
    from kubectl_nodelife.commands.cluster.direct import (
        bulk_client,
        direct_source,
        or_refused,
        server_now_ns,
        skew_warnings,
        target_of,
    )
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Node
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listing import read_all
    from kubectl_nodelife.live.requests import Resource

    target = target_of(connection)
    async with bulk_client(target) as client:
        found = await or_refused(read_all(client, Resource(kind_named("Node"))))
        if isinstance(found, ApiError):
            raise Failed(found.what, on="nodes", remedy="see 'kubectl nodelife rbac'")
        nodes = [node for node in found if isinstance(node, Node)]
        lease = await _read_lease(client, lease_namespace)
        evidence = None
        if checks_of:
            every = checks_of is ALL
            names = [n.name for n in nodes if has_checks(n) and (every or n.name in checks_of)]
            evidence = await _read_evidence(client, names, nodes, lease)
        return RunRead(
            nodes,
            lease,
            server_now_ns(client),
            direct_source(target, synced=True),
            skew_warnings(client),
            evidence,
        )


async def read_left_objects(
    connection: Connection, warn: Callable[[str], None]
) -> list[LeftObject]:
    """The canaries, Jobs and Services of runs, in all namespaces. Raises Unreachable, Failed.

    `warn` is told what must not be listed.
    """
    from kubectl_nodelife.commands.cluster.direct import bulk_client, or_refused, target_of
    from kubectl_nodelife.controllers.upgrade.cleaning import left_objects
    from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listing import read_all
    from kubectl_nodelife.live.requests import Resource

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


async def _read_evidence(
    client: Client, names: list[str], nodes: list[Node], lease: Lease | None
) -> CheckEvidence:
    """What the checks of these nodes rest on."""
    from kubectl_nodelife.answers.upgrade_nodes import CheckEvidence
    from kubectl_nodelife.answers.upgrade_status import policy_on
    from kubectl_nodelife.commands.cluster.direct import or_refused
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listing import read_all
    from kubectl_nodelife.live.requests import Resource

    evidence = CheckEvidence()
    for node in nodes:
        evidence.cache.set("Node", node.key, node)
    if not names:
        return evidence
    policy = policy_on(lease)
    wanted = [Resource(kind_named("DaemonSet")), Resource(kind_named("CSINode"))]
    if len(names) <= ONE_BY_ONE:
        wanted += [Resource(kind_named("Pod"), "", f"spec.nodeName={name}") for name in names]
        wanted.append(Resource(kind_named("Pod"), policy.namespace))
    else:
        wanted.append(Resource(kind_named("Pod")))
    if policy.canary_service:
        wanted += [Resource(kind_named(kind), policy.namespace) for kind in _OF_SERVICE]
    for resource in wanted:
        found = await or_refused(read_all(client, resource))
        if isinstance(found, ApiError):
            evidence.unread[resource.kind.name] = found.what
            continue
        for obj in found:
            evidence.cache.set(resource.kind.name, obj.key, obj)
    return evidence


async def _read_lease(client: Client, namespace: str) -> Lease | None:
    from kubectl_nodelife.acts.upgrade.lease import NAME
    from kubectl_nodelife.kube.decode import decode_json
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.requests import Resource, get_url

    url = get_url(Resource(kind_named("Lease"), namespace), NAME)
    try:
        body = await client.read(url)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    return decode_json(Lease, body)
