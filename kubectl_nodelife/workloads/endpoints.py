"""Which pods a Service sends traffic to.

Follows `podToEndpoint` and `ShouldPodBeInEndpoints` of staging/src/k8s.io/endpointslice and
`getPodServiceMemberships` of its util: a pod that the selector matches and that has not finished is
an endpoint; it is ready while the pod is Ready and not being deleted, or always where the Service
publishes addresses that are not ready. Left out: addresses and ports.
"""

from __future__ import annotations

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import Service

_FINISHED = ("Succeeded", "Failed")


def selects(service: Service, pod: Pod) -> bool:
    """True if the pod is an endpoint of the Service, ready or not."""
    wanted, labels = service.spec.selector, pod.metadata.labels or {}
    if not wanted or service.namespace != pod.namespace or pod.status.phase in _FINISHED:
        return False
    return all(labels.get(key) == value for key, value in wanted.items())


def is_ready_endpoint(service: Service, pod: Pod) -> bool:
    """True if an endpoint gets traffic."""
    if service.spec.publish_not_ready_addresses:
        return True
    ready = pod.status.condition("Ready")
    return ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None
