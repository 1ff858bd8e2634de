"""A scenario's events about containers and about what is left of a pod, and how they are read."""

from __future__ import annotations

from typing import Any

import msgspec

from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.kubelet.containers import ContainerStep
from kubectl_nodelife.kubelet.reclaim import RESOURCES
from kubectl_nodelife.sim.fields import (
    FieldPath,
    count,
    mapping,
    one_of,
    sequence,
    switch,
    text,
    texts,
)

_POD_TARGETS = ("namespace", "pods", "selector")
_STEP = ("state", "reason", "exitCode", "message")


class PodTargets(msgspec.Struct, frozen=True):
    """Which pods an event is about: those named, or those whose labels match."""

    namespace: str
    names: tuple[str, ...] = ()
    selector: LabelSelector | None = None

    def match(self, pod: Pod) -> bool:
        """True if the pod is one of them."""
        if pod.namespace != self.namespace:
            return False
        if self.selector is None:
            return pod.name in self.names
        return matches(self.selector, pod.metadata.labels)


class ContainerEvent(msgspec.Struct, frozen=True):
    """A prober's word (`ready`, `started`), or a container's next state (`step`)."""

    targets: PodTargets
    container: str = ""
    ready: bool | None = None
    started: bool | None = None
    step: ContainerStep | None = None


class ResourcesEvent(msgspec.Struct, frozen=True):
    """The resources of pods that a node holds from now on, stopped or not
    (`kubelet/reclaim.RESOURCES`).
    """

    targets: PodTargets
    left: tuple[str, ...]


def _pod_targets(value: dict[str, Any], at: FieldPath) -> PodTargets:
    if ("pods" in value) == ("selector" in value):
        raise at.fault("names no pods or names them twice", "give either pods or selector")
    namespace = text(value.get("namespace", "default"), at.key("namespace"))
    if "pods" in value:
        return PodTargets(namespace, texts(value["pods"], at.key("pods")))
    try:
        selector = parse_selector(text(value["selector"], at.key("selector")))
    except ValueError as error:
        raise at.key("selector").fault(str(error), "write it as for kubectl -l") from None
    return PodTargets(namespace, selector=selector)


def read_container(value: Any, at: FieldPath) -> ContainerEvent:
    """The event `container`. Raises BadInput."""
    container = mapping(value, at, (*_POD_TARGETS, "name", "ready", "started", *_STEP))
    targets = _pod_targets(container, at)
    name = text(container["name"], at.key("name")) if "name" in container else ""
    said = [key for key in ("ready", "started", "state") if key in container]
    if len(said) != 1:
        raise at.fault("says not what happens to the container", "give ready, started or state")
    if said[0] != "state":
        word = switch(container[said[0]], at.key(said[0]))
        if said[0] == "ready":
            return ContainerEvent(targets, name, ready=word)
        return ContainerEvent(targets, name, started=word)
    states = ("running", "waiting", "terminated")
    step = ContainerStep(
        one_of(container["state"], at.key("state"), states),
        text(container["reason"], at.key("reason")) if "reason" in container else "",
        count(container.get("exitCode", 0), at.key("exitCode"), most=255),
        text(container["message"], at.key("message")) if "message" in container else "",
    )
    return ContainerEvent(targets, name, step=step)


def read_resources(value: Any, at: FieldPath) -> ResourcesEvent:
    """The event `resources`. Raises BadInput."""
    resources = mapping(value, at, (*_POD_TARGETS, "left"))
    place = at.key("left")
    left = tuple(
        one_of(item, place.item(i), RESOURCES)
        for i, item in enumerate(sequence(resources.get("left"), place))
    )
    return ResourcesEvent(_pod_targets(resources, at), left)
