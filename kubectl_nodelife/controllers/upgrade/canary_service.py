"""P5 (`--canary-service`): do controllers act on what runs on the node?

A headless Service that selects the canary gets an EndpointSlice, with this pod as a ready endpoint
on this node. The Service has the canary's name, and goes when the proof is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.upgrade.canary import LABEL_CANARY, canary_name, owned_by
from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN, NodeMark
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import CreateCanaryService, DeleteCanaryService
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import Endpoint, EndpointSlice, Service

LABEL_SERVICE_NAME: Final = "kubernetes.io/service-name"


def waits_for_endpoint(p: UpgradePass, node: Node, mark: NodeMark, pod: Pod) -> str:
    """What of the canary's EndpointSlice is missing; "" where it is there, or is not asked for."""
    if not p.policy.canary_service:
        return ""
    key = (p.policy.namespace, canary_name(node.uid))
    if p.cache.get("Service", key) is None:
        if not p.is_under_way("Service", key):
            _create(p, node, mark, key)
        return "the canary's Service is being created"
    for endpoint in _endpoints(p, key):
        target = endpoint.target_ref
        if target is not None and target.uid == pod.uid:
            if endpoint.conditions.ready is False:
                return "the canary's endpoint is not ready"
            if endpoint.node_name and endpoint.node_name != node.name:
                return f"the canary's endpoint is said to be on {endpoint.node_name}"
            return ""
    return "the canary's Service has no endpoint yet"


def delete_service(p: UpgradePass, node: Node) -> None:
    """DELETE the canary's Service where there is one."""
    key = (p.policy.namespace, canary_name(node.uid))
    found = p.cache.get("Service", key)
    if isinstance(found, Service) and not p.is_under_way("Service", key):
        p.delete(DeleteCanaryService, found, "its canary has gone", node.name)


def _create(p: UpgradePass, node: Node, mark: NodeMark, key: tuple[str, str]) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key[1],
            "namespace": key[0],
            "labels": {LABEL_RUN: mark.run},
            "ownerReferences": [owned_by(node)],
        },
        "spec": {"clusterIP": "None", "selector": {LABEL_CANARY: canary_name(node.uid)}},
    }
    p.emit(
        CreateCanaryService(
            controller="upgrade",
            because=f"proves that controllers act on what runs on {node.name}",
            namespace=key[0],
            name=key[1],
            node=node.name,
            manifest=manifest,
        )
    )


def _endpoints(p: UpgradePass, key: tuple[str, str]) -> Iterator[Endpoint]:
    for found in p.cache.all("EndpointSlice"):
        of = (found.namespace, (found.metadata.labels or {}).get(LABEL_SERVICE_NAME))
        if of == key and isinstance(found, EndpointSlice):
            yield from found.endpoints
