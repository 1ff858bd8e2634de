"""Slices of what sends traffic to pods: Service and EndpointSlice."""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, KubeObject


class ServiceSpec(ApiStruct, frozen=True):
    """`core/v1.ServiceSpec`. Without a selector somebody else makes the endpoints."""

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
