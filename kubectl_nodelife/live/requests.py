"""The lists, watches and gets that are sent, built as text: their paths and queries, timeouts,
pauses and page sizes.

Nothing in here needs a network. Follows the API concepts of list, continue, watch, bookmarks and
`sendInitialEvents`. There are reads only: nothing of this package can write.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from kubectl_nodelife.kube.kinds import Kind, kind_named
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.live.transport import FIRST_S, LAST_S

PAGE_SIZE = 500


class Resource(NamedTuple):
    """The part of a kind that is read: all of it, one namespace of it, or what a selector takes.

    `labels`: of lists alone.
    """

    kind: Kind
    namespace: str = ""
    fields: str = ""
    labels: str = ""

    @property
    def path(self) -> str:
        """The collection's path, such as `/api/v1/pods`."""
        return self.kind.path(self.namespace)

    def __str__(self) -> str:
        return self.kind.resource


def resource_of(kind: str, namespace: str = "") -> Resource:
    """The part of a kind to read: of Leases only the nodes', of namespaced kinds the namespace."""
    its_kind = kind_named(kind)
    if kind == "Lease":
        return Resource(its_kind, NAMESPACE_NODE_LEASE)
    return Resource(its_kind, namespace if its_kind.namespaced else "")


def list_url(resource: Resource, *, limit: int = PAGE_SIZE, continue_: str = "") -> str:
    """One page of a consistent list, as of now or of the token; a limit of 0 asks for all at once.

    No resourceVersion is given on purpose: 0 would let an old watch cache answer, and before 1.34
    with everything at once whatever the limit.
    """
    query = {"limit": str(limit)} if limit else {}
    if resource.fields:
        query["fieldSelector"] = resource.fields
    if resource.labels:
        query["labelSelector"] = resource.labels
    if continue_:
        query["continue"] = continue_
    return f"{resource.path}?{urlencode(query)}" if query else resource.path


def watch_url(resource: Resource, resource_version: str, timeout_seconds: int) -> str:
    """A watch from a version on, with bookmarks; the server ends it after `timeout_seconds`."""
    return _watch_url(resource, {"resourceVersion": resource_version}, timeout_seconds)


def watch_list_url(resource: Resource, timeout_seconds: int) -> str:
    """A watch that begins with all objects, then a bookmark that says so (WatchList)."""
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return _watch_url(resource, {**initial, "resourceVersion": ""}, timeout_seconds)


def _watch_url(resource: Resource, begin: dict[str, str], timeout_seconds: int) -> str:
    query = {"watch": "true", "allowWatchBookmarks": "true", **begin}
    query["timeoutSeconds"] = str(timeout_seconds)
    return f"{resource.path}?{urlencode(query)}"


def get_url(resource: Resource, name: str) -> str:
    """One object."""
    return f"{resource.path}/{quote(name, safe='')}"


class WatchPacing(msgspec.Struct, frozen=True):
    """How patient the source is, in seconds.

    `silence_s`: of a watch without a sign of life, after which it counts as hung and is opened
    anew; servers send a bookmark a minute. `silence_by_kind`: the same for kinds that are never
    quiet for long. `watch_s`: how long one watch may last (up to twice that). `page_size` counts
    objects. `gather_s`: how long events of a watch are gathered before they are read, with
    `gather_by_kind` for kinds that many events come of and that may be passed on a little later.
    `healthy_s`: after a watch of that length the next failure counts as a first one. `nameless_s`:
    after an event that cannot be read and has no name the kind is listed anew, at most so often.
    """

    first_backoff_s: float = FIRST_S
    last_backoff_s: float = LAST_S
    healthy_s: float = 10.0
    refused_s: float = 60.0
    nameless_s: float = 300.0
    silence_s: float = 150.0
    silence_by_kind: dict[str, float] = {}
    first_byte_s: float = 120.0
    watch_s: int = 300
    page_size: int = PAGE_SIZE
    gather_s: float = 0.05
    gather_by_kind: dict[str, float] = {}


DAEMON_PACING: Final = WatchPacing(silence_by_kind={"Lease": 15.0}, gather_by_kind={"Lease": 0.15})
"""Leases are never quiet for long, and most of what comes. What controllers do is to be seen soon,
so that our copy decides on what they decided on."""

ENFORCING_PACING: Final = WatchPacing(
    silence_by_kind=DAEMON_PACING.silence_by_kind,
    gather_by_kind={**DAEMON_PACING.gather_by_kind, "DaemonSet": 0.0, "ControllerRevision": 0.0},
)
"""A set and its revisions are read in the order in which they change."""
