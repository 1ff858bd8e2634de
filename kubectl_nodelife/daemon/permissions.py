"""The rights that enforcing needs: one table for `rbac --mode enforce` and for the preflight.

A row is (API group, resource, subresource, verbs). The rows of a controller are the requests of its
conversations (`engine/calls`), no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

Row = tuple[str, str, str, tuple[str, ...]]

READS: Final[tuple[Row, ...]] = (
    ("", "nodes", "", ("get", "list", "watch")),
    ("", "pods", "", ("get", "list", "watch")),
    ("coordination.k8s.io", "leases", "", ("get", "list", "watch")),
    ("apps", "daemonsets", "", ("get", "list", "watch")),
    ("apps", "controllerrevisions", "", ("get", "list", "watch")),
    ("", "namespaces", "", ("get",)),
)
NAMESPACE_SYSTEM: Final = "kube-system"
KILL_SWITCH: Final[Row] = ("", "configmaps", "", ("get",))
"""In kube-system alone: elsewhere ConfigMaps hold what is no business of ours."""
_EVENTS: Final[Row] = ("", "events", "", ("create", "patch"))
WRITES: Final[dict[str, tuple[Row, ...]]] = {
    "node-lifecycle": (
        ("", "nodes", "", ("patch",)),
        ("", "nodes", "status", ("patch",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "taint-eviction": (
        ("", "pods", "", ("delete",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "pod-gc": (
        ("", "pods", "", ("delete",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "daemonset": (
        ("", "pods", "", ("create", "delete", "patch")),
        ("apps", "daemonsets", "status", ("patch",)),
        ("apps", "daemonsets", "finalizers", ("update",)),
        ("apps", "controllerrevisions", "", ("create", "delete", "patch")),
        _EVENTS,
    ),
}
LEASE_VERBS: Final = ("create", "get", "list", "update")


def rows(controllers: Iterable[str]) -> Iterator[Row]:
    """The rows for these controllers, each resource once, verbs in order."""
    return merged((*READS, *(row for name in controllers for row in WRITES[name])))


def merged(rows: Iterable[Row]) -> Iterator[Row]:
    """One row for each resource, with the verbs of all its rows in order."""
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for group, resource, subresource, needed in rows:
        verbs.setdefault((group, resource, subresource), set()).update(needed)
    for (group, resource, subresource), found in verbs.items():
        yield group, resource, subresource, tuple(sorted(found))
