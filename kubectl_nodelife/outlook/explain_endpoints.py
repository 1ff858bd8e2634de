"""Explains which Services lose which endpoints with a node or a pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.endpoints import ServiceLoss, endpoints_pointing_at, service_losses
from kubectl_nodelife.outlook.explain import ExplainedQuestion

SERVICES = "Which Services lose endpoints with it?"
"""The question of the section."""

_MOST_NAMES = 4


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
        return f"{name} is without {_endpoints(loss.out)} ({_names(loss.out)}); {_left(loss)}."
    verb = "still counts on" if lost else "loses"
    return f"{name} {verb} {_endpoints(loss.ready)} ({_names(loss.ready)}); {_left(loss)}."


def _left(loss: ServiceLoss) -> str:
    if not loss.left:
        return "it has no ready endpoint elsewhere"
    return f"{loss.left} ready elsewhere"


def _endpoints(pods: list[str]) -> str:
    return f"{len(pods)} endpoint{'s' if len(pods) > 1 else ''}"


def _names(pods: list[str]) -> str:
    return ", ".join(pods[:_MOST_NAMES]) + (", ..." if len(pods) > _MOST_NAMES else "")
