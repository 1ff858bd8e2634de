"""Records which Services lose and regain which ready endpoints.

Stands in for the EndpointSlice controller (staging/src/k8s.io/endpointslice), by the rules of
`kube/service.py`. It writes no EndpointSlices: a record on the Service says what traffic
goes to from then on, and the API server is told which webhooks it cannot call meanwhile. Only
Services that exist at the start are followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Self, cast

from kubectl_nodelife.copy_on_write import fork_dict, made_later
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.service import Service, is_ready_endpoint, selects
from kubectl_nodelife.sim.api import Api, ForkedWorld, WorldPart, event_record
from kubectl_nodelife.sim.timeline import KUBELET, Agenda
from kubectl_nodelife.workloads.pod_classes import LabelledPods

LOST = "EndpointsLost"
BACK = "EndpointsReady"


class ServiceEndpoints:
    """One Service's ready endpoints, and what has changed at this instant. `ready` is None until
    the first of its pods changes.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.ready: dict[str, None] | None = None
        self.lost: set[str] = set()
        self.back: set[str] = set()
        self.cause: Action | None = None

    def fork(self) -> ServiceEndpoints:
        """A copy with the same endpoints."""
        other = copy(self)
        if self.ready is not None:
            self.ready, other.ready = fork_dict(self.ready)
        other.lost, other.back = set(self.lost), set(self.back)
        return other


class EndpointsController(WorldPart):
    """Follows pods, and records each Service's changes once an instant."""

    def __init__(self, api: Api, agenda: Agenda) -> None:
        super().__init__(api, agenda)
        self._indexes: dict[str, SelectorIndex[Key]] = {}
        """By namespace."""
        self._endpoints: dict[Key, ServiceEndpoints] = {}
        self._pods: LabelledPods | None = None

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        forked = fork_dict(self._endpoints, ServiceEndpoints.fork)
        self._endpoints, other._endpoints = forked
        return other

    def begin(self, pods: LabelledPods, *, joined: bool = False) -> None:
        """Follow what is there from now on; without Services nothing is followed. `pods`: all pods
        at t=0; `joined`: they stay as they are now, so that a Service's are looked at when the
        first of them changes.
        """
        self._pods = pods
        services = cast("dict[Key, Service]", self._api.store.as_now("Service"))
        if not services:
            return

        def index_of(keys: Iterable[Key]) -> SelectorIndex[Key]:
            index: SelectorIndex[Key] = SelectorIndex()
            for key in keys:
                service = services[key]
                if _is_followed(service):
                    index.add(key[0], LabelSelector(match_labels=service.spec.selector), key)
            return index

        by_namespace = defaultdict[str, list[Key]](list)
        for key in services:
            by_namespace[key[0]].append(key)
        self._indexes = made_later(by_namespace, index_of)
        self._endpoints = made_later(services, ServiceEndpoints, ServiceEndpoints.fork)
        if not joined:
            for key, service in services.items():
                if _is_followed(service):
                    self._ready_of(self._endpoints[key])
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)

    def services_of(self, pod: Pod) -> list[Key]:
        """The Services that are followed and select the pod."""
        index = self._indexes.get(pod.namespace)
        return index.find(pod.namespace, pod.metadata.labels) if index is not None else []

    def pods_at_start(self, service: Key) -> Iterator[Pod]:
        """The pods that a Service selects at t=0, as they were, in a cluster that was joined."""
        one = self._endpoints.get(service)
        if one is not None and _is_followed(one.service) and self._pods is not None:
            selector = LabelSelector(match_labels=one.service.spec.selector)
            yield from self._pods.matching(one.service.namespace, selector)

    def _ready_of(self, one: ServiceEndpoints) -> dict[str, None]:
        """The names of a Service's ready endpoints, before a change of its pods counts."""
        if one.ready is None:
            pods = self.pods_at_start(one.service.key)
            one.ready = {pod.name: None for pod in pods if _counts(one.service, pod)}
        return one.ready

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        pod = new or old
        assert pod is not None
        keys = self.services_of(pod)
        if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
            keys += [key for key in self.services_of(old) if key not in keys]
        for key in keys:
            self._endpoint_changed(self._endpoints[key], pod, new, cause)

    def _endpoint_changed(
        self, one: ServiceEndpoints, pod: Pod, new: Pod | None, cause: Action | None
    ) -> None:
        """`pod`: as it is, or last was; `new` is None where it is gone."""
        ready = new is not None and _counts(one.service, new)
        names = self._ready_of(one)
        if ready == (pod.name in names):
            return
        if not one.lost and not one.back:
            self._agenda.add(self._api.now_ns, KUBELET, self._record_changes, one.service.key)
        if ready:
            names[pod.name] = None
        else:
            del names[pod.name]
        if len(names) == (1 if ready else 0):  # its first one, or none any more
            self._api.serve(one.service.key, ready)
        (one.back if ready else one.lost).add(pod.name)
        (one.lost if ready else one.back).discard(pod.name)
        one.cause = cause

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for change in changes:
            self._pod_changed(*change)

    def _record_changes(self, key: Key, now_ns: int) -> None:
        one = self._endpoints[key]
        ready = self._ready_of(one)
        for reason, pods, verb in (
            (LOST, one.lost, "no traffic goes to"),
            (BACK, one.back, "traffic goes again to"),
        ):
            if pods:
                names = ", ".join(sorted(pods))
                because = f"{verb} {names}; ready endpoints: {len(ready)}"
                warning = reason == LOST and not ready
                done = event_record(one.service, reason, because, cause=one.cause, warning=warning)
                self._api.note(done)
        one.lost, one.back, one.cause = set(), set(), None


def _is_followed(service: Service) -> bool:
    return bool(service.spec.selector) and not service.spec.publish_not_ready_addresses


def _counts(service: Service, pod: Pod) -> bool:
    return selects(service, pod) and is_ready_endpoint(service, pod)
