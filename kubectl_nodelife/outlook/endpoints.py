"""Which Services lose which endpoints with a node, and what still points at pods that are dead.

When a node is lost its pods are marked not ready; that takes them out of their Services. The rules
are those of `workloads/endpoints.py`; EndpointSlices tell what traffic goes by at this moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import EndpointSlice, Service
from kubectl_nodelife.workloads.endpoints import is_ready_endpoint, selects

SERVICE_NAME = "kubernetes.io/service-name"

Key: TypeAlias = tuple[str, str]
"""(namespace, name)"""


class ServiceLoss(msgspec.Struct, frozen=True):
    """A Service's share in some pods: names of its ready endpoints among them, and of those that
    are out already; `left`: ready endpoints elsewhere. `keeps`: it sends traffic to pods that are
    not ready too (publishNotReadyAddresses), so that nothing is taken out.
    """

    namespace: str
    name: str
    ready: list[str]
    out: list[str]
    left: int
    keeps: bool


class DeadEndpoint(msgspec.Struct, frozen=True):
    """An EndpointSlice that still sends traffic to a pod."""

    namespace: str
    slice_name: str
    service: str
    pod: str


def service_losses(cache: Cache, pods: Sequence[Pod]) -> list[ServiceLoss]:
    """The endpoints that each Service loses if these pods are marked not ready, by Service name."""
    here = {pod.key for pod in pods}
    targets = _ready_targets(cache)
    found = []
    for service in cache.all("Service"):
        assert isinstance(service, Service)
        members = [pod for pod in pods if selects(service, pod)]
        if not members:
            continue
        ready = sorted(pod.name for pod in members if is_ready_endpoint(service, pod))
        found.append(
            ServiceLoss(
                service.namespace,
                service.name,
                ready,
                sorted({pod.name for pod in members}.difference(ready)),
                _ready_elsewhere(cache, service, here, targets),
                service.spec.publish_not_ready_addresses,
            )
        )
    return sorted(found, key=lambda loss: (loss.namespace, loss.name))


def _ready_elsewhere(
    cache: Cache, service: Service, here: set[Key], targets: dict[Key, set[Key]]
) -> int:
    """By its pods; by its EndpointSlices where no other pods were read than these."""
    if cache.pods.keys() <= here:
        return len(targets.get(service.key, set()) - here)
    pods = (pod for pod in cache.pods.values() if pod.key not in here and selects(service, pod))
    return sum(is_ready_endpoint(service, pod) for pod in pods)


def _ready_targets(cache: Cache) -> dict[Key, set[Key]]:
    """Service -> the pods that its EndpointSlices call ready."""
    found: dict[Key, set[Key]] = {}
    for slice_ in cache.all("EndpointSlice"):
        assert isinstance(slice_, EndpointSlice)
        ready = found.setdefault((slice_.namespace, _service_of(slice_)), set())
        ready.update(_targets(slice_))
    return found


def endpoints_pointing_at(cache: Cache, pods: Iterable[Pod]) -> list[DeadEndpoint]:
    """The ready endpoints of all EndpointSlices whose target is one of these pods."""
    wanted = {pod.key for pod in pods}
    found = []
    for slice_ in cache.all("EndpointSlice"):
        assert isinstance(slice_, EndpointSlice)
        service = _service_of(slice_)
        for key in _targets(slice_):
            if key in wanted:
                found.append(DeadEndpoint(slice_.namespace, slice_.name, service, key[1]))
    return sorted(found, key=lambda e: (e.namespace, e.service, e.pod, e.slice_name))


def _service_of(slice_: EndpointSlice) -> str:
    return (slice_.metadata.labels or {}).get(SERVICE_NAME, "")


def _targets(slice_: EndpointSlice) -> Iterator[Key]:
    """The pods to which it sends traffic."""
    for endpoint in slice_.endpoints:
        target = endpoint.target_ref
        if target is not None and target.kind == "Pod" and endpoint.conditions.ready is not False:
            yield target.namespace or slice_.namespace, target.name
