"""Label and field selectors of a request, as one question about an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.selectors import (
    matches,
    matches_fields,
    parse_field_selector,
    parse_selector,
)
from kubectl_nodelife.sandbox.resources import ServedResource
from kubectl_nodelife.sandbox.status import bad_request

Filter = Callable[[KubeObject], bool]

# `kubectl describe` asks for the events of an object by these.
_EVENT_FIELDS: Mapping[str, Callable[[Event], str]] = {
    "involvedObject.kind": lambda e: e.involved_object.kind,
    "involvedObject.namespace": lambda e: e.involved_object.namespace,
    "involvedObject.name": lambda e: e.involved_object.name,
    "involvedObject.uid": lambda e: e.involved_object.uid,
    "reason": lambda e: e.reason,
    "type": lambda e: e.type,
}


def read_filter(
    resource: ServedResource, namespace: str, query: Mapping[str, str]
) -> Filter | None:
    """What the request's selectors and namespace ask for; None: everything. Raises StatusError."""
    parts: list[Filter] = []
    if namespace:
        parts.append(lambda obj: obj.metadata.namespace == namespace)
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    try:
        if labels:
            selector = parse_selector(labels)
            parts.append(lambda obj: matches(selector, obj.metadata.labels))
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    try:
        if fields:
            parts.append(_field_filter(resource, fields))
    except ValueError:
        unknown = fields.partition("=")[0].rstrip("!")
        raise bad_request(f"field label not supported: {unknown}") from None
    if not parts:
        return None
    return lambda obj: all(part(obj) for part in parts)


def _field_filter(resource: ServedResource, text: str) -> Filter:
    if resource.kind != "Event":
        wanted = parse_field_selector(text, resource.type)
        return lambda obj: matches_fields(wanted, obj)
    terms: list[tuple[Callable[[Any], str], bool, str]] = []
    others = []
    for term in filter(None, text.split(",")):
        field, _, value = term.partition("=")
        equal = not field.endswith("!")
        read = _EVENT_FIELDS.get(field.removesuffix("!"))
        if read is None:
            others.append(term)
        else:
            terms.append((read, equal, value.removeprefix("=")))
    rest = parse_field_selector(",".join(others), resource.type)
    return lambda obj: (
        all((read(obj) == value) == equal for read, equal, value in terms)
        and matches_fields(rest, obj)
    )
