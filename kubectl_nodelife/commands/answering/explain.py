"""Answers `explain`: what happens to one object, in sentences."""

from __future__ import annotations

from typing import Any, Final

from kubectl_nodelife.commands.answering.query import (
    Query,
    Response,
    as_sent,
    output_of,
    word,
)
from kubectl_nodelife.commands.cluster.drain import KINDS as DRAIN_KINDS
from kubectl_nodelife.commands.cluster.look import KindsToRead, look
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.drain.eviction_webhooks import WEBHOOK_KINDS
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS
from kubectl_nodelife.outlook.explain_document import Explanation, continued, explanation_of
from kubectl_nodelife.outlook.status import KINDS, missing_parts
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.explanation import ExplanationPage


def reading(query: Query) -> KindsToRead:
    """The kinds that the explanation of an object of that kind reads."""
    match word(query, "kind"):
        case "Pod":
            fields = {"Event": _about_pod(word(query, "namespace"), word(query, "name"))}
            read, needed = (*DRAIN_KINDS, "Event"), ("Node", "Pod")
            return KindsToRead(
                read, needed, missing_parts=missing_parts, fields=fields, optional=OPTIONAL_KINDS
            )
        case _:
            more = () if word(query, "taint") else (*WEBHOOK_KINDS, "Event")
            fields = {"Event": about_node(word(query, "name"))}
            return KindsToRead(
                (*KINDS, *more), ("Node",), missing_parts=missing_parts, fields=fields
            )


def about_node(name: str) -> str:
    """The field selector of Events about a node."""
    return f"involvedObject.kind=Node,involvedObject.name={name}"


def _about_pod(namespace: str, name: str) -> str:
    return (
        f"involvedObject.kind=Pod,involvedObject.namespace={namespace},involvedObject.name={name}"
    )


def answer(view: ClusterView, query: Query) -> Response:
    """The explanation of a node, a pod or a taint. Raises Failed, BadInput."""
    words = (word(query, key) for key in ("kind", "namespace", "name", "taint"))
    made = explanation_of(view, *words)
    return _response_of(made, query)


def with_look(where: Where, response: dict[str, Any], query: dict[str, Any]) -> Response | None:
    """A daemon's explanation of a pod or a node (the response with its document), and what a look
    shows of kinds that a daemon does not watch; None where the user may not look."""
    import json

    sent = as_sent(query)
    kind, namespace, name = (word(sent, key) for key in ("kind", "namespace", "name"))
    try:
        view = look(where, _beside_a_daemon(kind, namespace, name))
    except Failed as refused:
        terminal.warn(f"{_LEFT_UNKNOWN[kind]} unknown: {refused}")
        return None
    return _response_of(
        continued(json.loads(str(response["text"])), view, kind, namespace, name), sent
    )


_LEFT_UNKNOWN: Final = {"Pod": "what a drain would do is", "Node": "Services and webhooks are"}


def _beside_a_daemon(kind: str, namespace: str, name: str) -> KindsToRead:
    """The kinds that are read: of a node only itself, its pods, and its Events."""
    if kind == "Pod":
        fields = {"Event": _about_pod(namespace, name)}
        read, needed = (*DRAIN_KINDS, "Event"), ("Node", "Pod")
        return KindsToRead(read, needed, fields=fields, optional=OPTIONAL_KINDS)
    fields = {
        "Node": f"metadata.name={name}",
        "Pod": f"spec.nodeName={name}",
        "Event": about_node(name),
    }
    return KindsToRead(("Node", "Pod", *WEBHOOK_KINDS, "Event"), ("Node", "Pod"), fields=fields)


def _response_of(made: Explanation, query: Query) -> Response:
    text = output_of(query).render(ExplanationPage(made))
    return {"text": text, "warnings": made.warnings}
