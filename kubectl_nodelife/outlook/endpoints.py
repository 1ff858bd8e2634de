"""Which Services lose which endpoints with a node, and which slices still point at its pods.

When a node is lost its pods are marked not ready; that takes them out of their Services. The rules
are those of `kube/service.py`; EndpointSlices show where traffic goes at this moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

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


def service_losses(cache: Cache, pods: Sequence[Pod], *, lost: bool) -> Iterator[str]:
    """A sentence on each Service, by name, that has endpoints among these pods, which it loses if
    they are marked not ready; one that sends traffic to pods that are not ready too
    (publishNotReadyAddresses) keeps them. `lost`: their node is not Ready now."""
    here = {pod.key for pod in pods}
    targets = _ready_targets(cache)
    for service in sorted(cache.all("Service"), key=lambda each: each.key):
        assert isinstance(service, Service)
        members = [pod for pod in pods if selects(service, pod)]
        if not members:
            continue
        names = sorted({pod.name for pod in members})
        ready = sorted(pod.name for pod in members if is_ready_endpoint(service, pod))
        name = f"Service {service.namespace}/{service.name}"
        elsewhere = _ready_elsewhere(cache, service, here, targets)
        left = f"{elsewhere} ready elsewhere" if elsewhere else "it has no ready endpoint elsewhere"
        if service.spec.publish_not_ready_addresses:
            yield f"{name} keeps {_names(names)}: it publishes addresses that are not ready."
        elif ready:
            verb = "still counts on" if lost else "loses"
            yield f"{name} {verb} {_endpoints(ready)}; {left}."
        else:
            yield f"{name} is without {_endpoints(names)}; {left}."


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
    for service, _, pod in _ready_endpoints(cache):
        targets.setdefault(service, set()).add(pod)
    return targets


def endpoints_pointing_at(cache: Cache, pods: Iterable[Pod]) -> list[str]:
    """A sentence on each ready endpoint of an EndpointSlice whose target is one of these pods."""
    wanted = {pod.key for pod in pods}
    dead = sorted(
        (namespace, service, pod[1], name)
        for (namespace, service), name, pod in _ready_endpoints(cache)
        if pod in wanted
    )
    return [
        f"EndpointSlice {namespace}/{name} of Service {service} still sends traffic to {pod}."
        for namespace, service, pod, name in dead
    ]


def _ready_endpoints(cache: Cache) -> Iterator[tuple[Key, str, Key]]:
    """(Service, name of its EndpointSlice, pod) of each pod to which one sends traffic."""
    for slice_ in cache.all("EndpointSlice"):
        assert isinstance(slice_, EndpointSlice)
        service = (slice_.metadata.labels or {}).get(SERVICE_NAME, "")
        for endpoint in slice_.endpoints:
            of, ready = endpoint.target_ref, endpoint.conditions.ready is not False
            if of is not None and of.kind == "Pod" and ready:
                pod = (of.namespace or slice_.namespace, of.name)
                yield (slice_.namespace, service), slice_.name, pod


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
        sentences = list(service_losses(cache, pods, lost=lost))
        sentences = sentences or ["No Service selects a pod of it."]
    if lost:
        sentences += endpoints_pointing_at(cache, pods)
    yield ExplainedQuestion(SERVICES, sentences)


def _endpoints(pods: list[str]) -> str:
    return f"{counted(len(pods), 'endpoint')} ({_names(pods)})"


def _names(pods: list[str]) -> str:
    return ", ".join(pods[:_MOST_NAMES]) + (", ..." if len(pods) > _MOST_NAMES else "")
