"""Which Services lose which endpoints with a node, and which slices still point at its pods.

When a node is lost its pods are marked not ready; that takes them out of their Services. The rules
are those of `kube/service.py`; EndpointSlices show where traffic goes at this moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import EndpointSlice, Service, is_ready_endpoint, selects
from kubectl_nodelife.outlook.explain import ExplainedQuestion

SERVICE_NAME = "kubernetes.io/service-name"

Key: TypeAlias = tuple[str, str]
"""(namespace, name)"""


SERVICES = "Which Services lose endpoints with it?"
"""The question of the section."""
_MOST_NAMES = 4


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
    losses = []
    for service in cache.all("Service"):
        assert isinstance(service, Service)
        members = [pod for pod in pods if selects(service, pod)]
        if not members:
            continue
        ready = sorted(pod.name for pod in members if is_ready_endpoint(service, pod))
        losses.append(
            ServiceLoss(
                service.namespace,
                service.name,
                ready,
                sorted({pod.name for pod in members}.difference(ready)),
                _ready_elsewhere(cache, service, here, targets),
                service.spec.publish_not_ready_addresses,
            )
        )
    return sorted(losses, key=lambda loss: (loss.namespace, loss.name))


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
    targets: dict[Key, set[Key]] = {}
    for slice_ in cache.all("EndpointSlice"):
        assert isinstance(slice_, EndpointSlice)
        ready = targets.setdefault((slice_.namespace, _service_of(slice_)), set())
        ready.update(_targets(slice_))
    return targets


def endpoints_pointing_at(cache: Cache, pods: Iterable[Pod]) -> list[DeadEndpoint]:
    """The ready endpoints of all EndpointSlices whose target is one of these pods."""
    wanted = {pod.key for pod in pods}
    dead = []
    for slice_ in cache.all("EndpointSlice"):
        assert isinstance(slice_, EndpointSlice)
        service = _service_of(slice_)
        for key in _targets(slice_):
            if key in wanted:
                dead.append(DeadEndpoint(slice_.namespace, slice_.name, service, key[1]))
    return sorted(dead, key=lambda e: (e.namespace, e.service, e.pod, e.slice_name))


def _service_of(slice_: EndpointSlice) -> str:
    return (slice_.metadata.labels or {}).get(SERVICE_NAME, "")


def _targets(slice_: EndpointSlice) -> Iterator[Key]:
    """The pods to which it sends traffic."""
    for endpoint in slice_.endpoints:
        target = endpoint.target_ref
        if target is not None and target.kind == "Pod" and endpoint.conditions.ready is not False:
            yield target.namespace or slice_.namespace, target.name


def endpoint_sections(
    cache: Cache, pods: Sequence[Pod], *, lost: bool, services_read: bool = False
) -> Iterator[ExplainedQuestion]:
    """The section about these pods, all of one node. `lost`: it is not Ready now.

    Nothing where there are no pods.
    """
    if not pods:
        return
    if not services_read and not any(cache.all("Service")):
        sentences = ["Not known: no Service was read (kubectl get services,endpointslices -A)."]
    else:
        sentences = [_loss(loss, lost=lost) for loss in service_losses(cache, pods)]
        sentences = sentences or ["No Service selects a pod of it."]
    if lost:
        sentences += (
            f"EndpointSlice {e.namespace}/{e.slice_name} of Service {e.service} still sends "
            f"traffic to {e.pod}."
            for e in endpoints_pointing_at(cache, pods)
        )
    yield ExplainedQuestion(SERVICES, sentences)


def _loss(loss: ServiceLoss, *, lost: bool) -> str:
    """One sentence about one Service."""
    name = f"Service {loss.namespace}/{loss.name}"
    if loss.keeps:
        pods = sorted([*loss.ready, *loss.out])
        return f"{name} keeps {_names(pods)}: it publishes addresses that are not ready."
    if not loss.ready:
        return f"{name} is without {_endpoints(loss.out)}; {_left(loss)}."
    verb = "still counts on" if lost else "loses"
    return f"{name} {verb} {_endpoints(loss.ready)}; {_left(loss)}."


def _left(loss: ServiceLoss) -> str:
    if not loss.left:
        return "it has no ready endpoint elsewhere"
    return f"{loss.left} ready elsewhere"


def _endpoints(pods: list[str]) -> str:
    return f"{counted(len(pods), 'endpoint')} ({_names(pods)})"


def _names(pods: list[str]) -> str:
    return ", ".join(pods[:_MOST_NAMES]) + (", ..." if len(pods) > _MOST_NAMES else "")
