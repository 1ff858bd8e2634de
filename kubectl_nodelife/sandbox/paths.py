"""What a URL's path and method ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from kubectl_nodelife.sandbox.resources import BY_PATH, ServedResource
from kubectl_nodelife.sandbox.status import StatusError, no_such_path
from kubectl_nodelife.sandbox.writing import WriteTarget

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_POSTED = ("eviction", "binding")


class ResourceRequest(NamedTuple):
    """A request for a resource: the verb, in RBAC's words, and what it is about."""

    verb: str
    target: WriteTarget


def read_path(method: str, path: str, query: Mapping[str, str]) -> ResourceRequest:
    """The request for a resource. Raises StatusError 404 or 405."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        api_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        api_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        raise no_such_path()
    target = _target(api_version, rest)
    if method in ("GET", "HEAD"):
        if target.name:
            return ResourceRequest("get", target)
        watching = query.get("watch") in ("true", "1")
        return ResourceRequest("watch" if watching else "list", target)
    verb = _VERBS.get(method)
    on_collection = not target.name
    if verb == "delete" and on_collection:
        verb = "deletecollection"
    elif verb is None or (verb == "create") != (on_collection or target.subresource in _POSTED):
        raise _not_allowed(method)
    return ResourceRequest(verb, target)


def _target(api_version: str, rest: list[str]) -> WriteTarget:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (api_version, rest[2]) in BY_PATH:
        namespace, rest = rest[1], rest[2:]
    resource: ServedResource | None = BY_PATH.get((api_version, rest[0]))
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    return WriteTarget(resource, namespace, name, subresource)


def _not_allowed(method: str) -> StatusError:
    return StatusError(405, "MethodNotAllowed", f"{method} is not supported here")
