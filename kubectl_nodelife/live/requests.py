"""The requests that are sent, built as text: paths and queries of lists, watches and gets.

Nothing in here needs a network. Follows the API concepts of list, continue, watch, bookmarks and
`sendInitialEvents`. There are reads only: nothing of this package can write.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from kubectl_nodelife.kube.kinds import Kind, kind_named
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE

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
        version = self.kind.api_version
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        inside = f"/namespaces/{quote(self.namespace, safe='')}" if self.namespace else ""
        return f"{root}{inside}/{self.kind.plural}"

    def __str__(self) -> str:
        return self.kind.resource


def resource_of(kind: str, namespace: str = "") -> Resource:
    """The part of a kind to read: of Leases only the nodes', of namespaced kinds the namespace."""
    found = kind_named(kind)
    if kind == "Lease":
        return Resource(found, NAMESPACE_NODE_LEASE)
    return Resource(found, namespace if found.namespaced else "")


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
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(timeout_seconds),
    }
    return f"{resource.path}?{urlencode(query)}"


def watch_list_url(resource: Resource, timeout_seconds: int) -> str:
    """A watch that begins with all objects, then a bookmark that says so (WatchList)."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": "",
        "timeoutSeconds": str(timeout_seconds),
    }
    return f"{resource.path}?{urlencode(query)}"


def get_url(resource: Resource, name: str) -> str:
    """One object."""
    return f"{resource.path}/{quote(name, safe='')}"


PORT_FORWARD_PROTOCOL: Final = "v4.channel.k8s.io"
"""The subprotocol that kubelets offer for port-forward; v5 of it is for exec and attach alone."""


class PodPort(NamedTuple):
    """A port of a pod."""

    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}"


def port_forward_url(to: PodPort) -> str:
    """`pods/portforward`, one port."""
    namespace, pod = quote(to.namespace, safe=""), quote(to.pod, safe="")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={to.port}"
