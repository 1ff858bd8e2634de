"""Judges whether a 2xx is the API server's answer to a request, or somebody else's on the way.

A login page, a captive portal or a proxy may say 200 to anything, with a page of its own or with
another object. Such an answer says nothing of what became of the request: it counts as none, and
the object is read before anything follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from kubectl_nodelife.engine.calls.call import Body, Request

_STATUS: Final = "Status"


def why_no_answer(request: Request, kind: str, raw: Any) -> str:
    """Why the document is no answer to the request, "" where it is one.

    `kind`: of the object that the request is about, such as `Pod` or, of a list, `PodList`; ""
    where any document will do. `raw`: the decoded body of the answer, None where it is no JSON.
    """
    if not isinstance(raw, dict):
        return "it is no JSON object"
    if not kind:
        return ""
    namespace, name, subresource = _asked(request)
    sent = request.body
    if subresource == "eviction" and raw.get("kind") in (_STATUS, "Eviction"):
        return "" if raw.get("status", "Success") == "Success" else "its Status is no Success"
    if request.method == "DELETE" and raw.get("kind") == _STATUS:
        details = _part(raw, "details")
        uid = _part(sent, "preconditions").get("uid")
        same = details.get("name") == name and uid in (None, details.get("uid", uid))
        return "" if raw.get("status") == "Success" and same else "its Status is of something else"
    if raw.get("kind") != kind:
        return f"it is no {kind}"
    wanted = dict(_wanted(request.method, namespace, name, sent))
    found = _part(raw, "metadata")
    if request.method == "POST" and wanted and not found.get("uid"):
        return "it has no uid: it is what was sent, and not what was stored"
    other = [key for key, value in wanted.items() if found.get(key) != value]
    return f"it is a {kind} of another {other[0]}" if other else ""


def _wanted(method: str, namespace: str, name: str, sent: Body) -> Iterator[tuple[str, str]]:
    """What the metadata of the answer must say."""
    meta = _part(sent, "preconditions" if method == "DELETE" else "metadata")
    name = name or str(meta.get("name", "") if method == "POST" else "")
    for key, value in (("namespace", namespace), ("name", name), ("uid", meta.get("uid"))):
        if value and (key != "namespace" or name):
            yield key, str(value)


def _asked(request: Request) -> tuple[str, str, str]:
    """(namespace, name, subresource) of the request's path, "" for what it does not say."""
    parts = [unquote(part) for part in request.path.partition("?")[0].strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    _, name, subresource = (*parts, "", "", "")[:3]
    return namespace, name, subresource


def _part(body: Any, key: str) -> Body:
    """A member that is an object, {} where there is none."""
    part = body.get(key) if isinstance(body, dict) else None
    return part if isinstance(part, dict) else {}
