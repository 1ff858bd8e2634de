"""Slices of what sends traffic to pods: Service and EndpointSlice.

Which pods a Service sends traffic to follows `podToEndpoint` and `ShouldPodBeInEndpoints` of
staging/src/k8s.io/endpointslice and `getPodServiceMemberships` of its util: a pod that the selector
matches and that has not finished is an endpoint; it is ready while the pod is Ready and not being
deleted, or always where the Service publishes addresses that are not ready. Left out: addresses and
ports.
"""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, KubeObject
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod


class ServiceSpec(ApiStruct, frozen=True):
    """`core/v1.ServiceSpec`. Without a selector an external process manages the endpoints."""

    selector: dict[str, str] | None = None
    publish_not_ready_addresses: bool = False


class Service(KubeObject, frozen=True):
    """`core/v1.Service`."""

    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(ApiStruct, frozen=True):
    """`discovery/v1.EndpointConditions`. `ready` None counts as ready."""

    ready: bool | None = None


class EndpointTarget(ApiStruct, frozen=True):
    """`core/v1.ObjectReference`, as far as it names a pod."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(ApiStruct, frozen=True):
    """`discovery/v1.Endpoint`."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: EndpointTarget | None = None
    node_name: str = ""


class EndpointSlice(KubeObject, frozen=True):
    """`discovery/v1.EndpointSlice`; its label `kubernetes.io/service-name` names the service."""

    endpoints: tuple[Endpoint, ...] = ()


def selects(service: Service, pod: Pod) -> bool:
    """True if the pod is an endpoint of the Service, ready or not."""
    wanted, labels = service.spec.selector, pod.metadata.labels or {}
    if not wanted or service.namespace != pod.namespace or pod.status.phase in TERMINAL_PHASES:
        return False
    return all(labels.get(key) == value for key, value in wanted.items())


def is_ready_endpoint(service: Service, pod: Pod) -> bool:
    """True if an endpoint gets traffic."""
    if service.spec.publish_not_ready_addresses:
        return True
    ready = pod.status.condition("Ready")
    return ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None
