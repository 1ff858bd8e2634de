"""Checks values that decoding leaves as they came: names, quantities, pod templates, revisions.

Quantities stay text until they are computed with, and pod templates and revisions stay plain
JSON. They are checked once, where an object comes in, so that no rule later meets a quantity that
is none. An API server refuses most of this itself; a ControllerRevision's `data` is the exception:
it may be any JSON at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from kubectl_nodelife.kube.decode import convert
from kubectl_nodelife.kube.kinds import KINDS, kind_of
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, controller_of
from kubectl_nodelife.kube.names import LONGEST_NAME, is_dns_subdomain
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec, ResourceRequirements
from kubectl_nodelife.kube.quantity import Quantity, parse_quantity
from kubectl_nodelife.kube.unreadable import Unreadable, reason, related
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, Event, PodDisruptionBudget

DEEPEST_PLAIN: Final = 100
"""Levels of nesting in what stays plain JSON; pod templates have some ten."""

_MOST_REMEMBERED: Final = 10_000
_good: set[Quantity] = set()  # quantities that parse; a cluster has few different ones

_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 63) - 1


def unfit(obj: KubeObject) -> str:
    """Why no decision can be taken on the object, "" where one can."""
    check = CHECKS.get(type(obj))
    if check is None:
        return ""
    try:
        check(obj)
    except ValueError as error:
        return reason(error)
    except Exception as error:  # a bug of ours; its text may quote a value
        return f"our check of it failed: {type(error).__name__}"
    return ""


def as_unreadable(obj: KubeObject, why: str) -> Unreadable:
    """The object as one that cannot be read."""
    kind, owner = kind_of(obj), controller_of(obj.metadata)
    owners = [(owner.kind, owner.name)] if owner is not None else []
    node = obj.spec.node_name if isinstance(obj, Pod) else ""
    meta = obj.metadata
    refs = related(kind, obj.key, owners, node)
    return Unreadable(kind, obj.key, why, meta.uid, meta.resource_version, refs)


def sift(objects: Iterable[KubeObject]) -> tuple[list[KubeObject], list[Unreadable]]:
    """The objects that can be decided on, and the others."""
    fit: list[KubeObject] = []
    others: list[Unreadable] = []
    for obj in objects:
        why = unfit(obj)
        if why:
            others.append(as_unreadable(obj, why))
        else:
            fit.append(obj)
    return fit, others


def _node(node: Any) -> None:
    _quantities("status.allocatable", node.status.allocatable)
    _quantities("status.capacity", node.status.capacity)


def _pod(pod: Any) -> None:
    _pod_spec(pod.spec)


def _pod_spec(spec: PodSpec) -> None:
    known = _good.issuperset
    for container in spec.containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        if (requests and not known(requests.values())) or (limits and not known(limits.values())):
            _container(resources)
    for container in spec.init_containers:
        _container(container.resources)
    if spec.overhead:
        _quantities("spec.overhead", spec.overhead)
    if spec.resources is not None:
        _quantities("spec.resources.requests", spec.resources.requests)
        _quantities("spec.resources.limits", spec.resources.limits)


def _container(resources: ResourceRequirements) -> None:
    _quantities("resources.requests", resources.requests)
    _quantities("resources.limits", resources.limits)


def _quantities(path: str, quantities: Mapping[str, Quantity] | None) -> None:
    if not quantities or _good.issuperset(quantities.values()):
        return
    for name, quantity in quantities.items():
        try:
            parse_quantity(quantity)
        except ValueError as error:
            raise ValueError(f"{path}[{name!r}]: {error}") from None
    if len(_good) > _MOST_REMEMBERED:
        _good.clear()
    _good.update(quantities.values())


def _daemon_set(daemon_set: Any) -> None:
    _template("spec.template", daemon_set.spec.template)


def _revision(revision: Any) -> None:
    """Only a DaemonSet's revisions are read, and those that a DaemonSet could adopt."""
    data = revision.data or {}
    _plain("data", data)
    owner = controller_of(revision.metadata)
    if owner is not None and owner.kind != "DaemonSet":
        return
    spec = _member("data", data, "spec")
    template = _member("data.spec", spec, "template")
    _template("data.spec.template", {k: v for k, v in template.items() if k != "$patch"})


def _template(path: str, template: dict[str, Any]) -> None:
    _plain(path, template)
    convert(_member(path, template, "metadata"), ObjectMeta, "", f"{path}.metadata")
    spec: Any = convert(_member(path, template, "spec"), PodSpec, "", f"{path}.spec")
    _pod_spec(spec)


def _member(path: str, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}.{name}: expected an object, got {type(value).__name__}")
    return value


def _plain(path: str, document: Any) -> None:
    """Bounds of plain JSON: what Go's types hold, and a depth that recursion bears."""
    level = [document]
    for _ in range(DEEPEST_PLAIN):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
            elif type(value) is int and not _LEAST_INT <= value <= _MOST_INT:
                raise ValueError(f"{path}: holds an integer of more than 64 bits")
        if not deeper:
            return
        level = deeper
    raise ValueError(f"{path}: is nested more than {DEEPEST_PLAIN} deep")


_VALUES: Final[dict[type[KubeObject], Callable[[Any], None]]] = {
    Node: _node,
    Pod: _pod,
    DaemonSet: _daemon_set,
    ControllerRevision: _revision,
}
_ANY_NAME: Final = (PodDisruptionBudget, Event)
"""Kinds whose names the API server does not check either; see `kube.names`."""


_is_namespace = lru_cache(maxsize=1 << 12)(is_dns_subdomain)
"""A cluster has few, each of which its pods name over and over; none that is too long is kept."""


def _check_of(type_: type[KubeObject]) -> Callable[[Any], None]:
    """The check of an object of that type; raises ValueError."""
    values, any_name = _VALUES.get(type_), issubclass(type_, _ANY_NAME)

    def check(obj: Any) -> None:
        meta = obj.metadata
        if not (any_name or is_dns_subdomain(meta.name)):
            raise ValueError("metadata.name: is no DNS name, which no API server takes")
        namespace = meta.namespace
        if namespace and not (len(namespace) <= LONGEST_NAME and _is_namespace(namespace)):
            raise ValueError("metadata.namespace: is no DNS name, which no API server takes")
        if values is not None:
            values(obj)

    return check


CHECKS: Final = {kind.type: _check_of(kind.type) for kind in KINDS}
"""The check of each type: name and values. Raises ValueError."""
