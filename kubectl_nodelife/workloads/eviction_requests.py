"""Which EvictionRequests name a pod, who answers them now.

Follows pkg/controller/evictionrequest of v1.38; v1.37 has the API alone, so that nothing acts on a
request there. `kubectl drain` uses neither, in any release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from kubectl_nodelife.kube.lifecycle import (
    Eviction,
    EvictionRequest,
    EvictionTarget,
    ResponderStatus,
    TargetPod,
    TargetResponder,
)
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import Condition

HEARTBEAT_TIMEOUT_NS: Final = 20 * MINUTE_NS
"""`ResponderHeartbeatTimeout`: after so long without a heartbeat the next responder is asked."""

IMPERATIVE: Final = "imperative-eviction.k8s.io/evictor"
"""`EvictionResponderImperativeEviction`, asked last of all: it uses the eviction API."""

_ENDED: Final = ("TargetEvicted", "Failed")


class Responder(NamedTuple):
    """One responder of an Eviction: what its controller says of it, and what it says itself."""

    target: TargetResponder
    status: ResponderStatus

    @property
    def heartbeat_ns(self) -> int | None:
        """When it was last heard of, ns since the epoch: its start counts, too."""
        times = (self.status.heartbeat_time, self.status.start_time)
        return next((int(time) for time in times if time is not None), None)


def ended(conditions: Iterable[Condition]) -> Condition | None:
    """The condition by which a request or an Eviction is over, None where it goes on."""
    return next((c for c in conditions if c.type in _ENDED and c.status == TRUE), None)


def is_wanted(request: EvictionRequest) -> bool:
    """True if the request still asks for the pod's eviction."""
    return request.spec.intent == "Eviction" and ended(request.status.conditions) is None


def responders_of(eviction: Eviction) -> list[Responder]:
    """Its responders in the order in which they are asked: by priority, then by their domains'
    labels, the top one first (`selectNextResponder`)."""
    statuses = {status.name: status for status in eviction.status.responders}
    responders = [
        Responder(target, statuses.get(target.name, ResponderStatus()))
        for target in eviction.status.target_responders
    ]
    return sorted(responders, key=_order)


def _order(responder: Responder) -> tuple[int, list[str], str]:
    domain, _, key = responder.target.name.partition("/")
    return -responder.target.priority, domain.split(".")[::-1], key


Key = tuple[str, str, str]


class EvictionRequests:
    """The requests and Evictions of a cluster, by the pods that they name."""

    def __init__(self, requests: Iterable[EvictionRequest], evictions: Iterable[Eviction]) -> None:
        self._requests: dict[Key, list[EvictionRequest]] = defaultdict(list)
        self._evictions: dict[Key, list[Eviction]] = defaultdict(list)
        for request in requests:
            self._requests[_key(request.namespace, request.spec.target)].append(request)
        for eviction in evictions:
            self._evictions[_key(eviction.namespace, eviction.spec.target)].append(eviction)

    def requests(self, pod: Pod) -> list[EvictionRequest]:
        """Those that name this pod, with its uid."""
        return self._requests.get((*pod.key, pod.uid), [])

    def going(self, pod: Pod) -> list[Eviction]:
        """The Evictions that were made of them and are not over."""
        evictions = self._evictions.get((*pod.key, pod.uid), [])
        return [one for one in evictions if ended(one.status.conditions) is None]

    def active(self, pod: Pod) -> Responder | None:
        """The responder that is at work on it."""
        responders = (responder for one in self.going(pod) for responder in responders_of(one))
        return next((r for r in responders if r.target.state == "Active"), None)


def _key(namespace: str, target: EvictionTarget) -> Key:
    pod = target.pod or TargetPod()
    return namespace, pod.name, pod.uid
