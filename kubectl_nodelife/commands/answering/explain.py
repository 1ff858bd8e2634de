"""Answers `explain`: what happens to one node or pod, in sentences."""

from __future__ import annotations

from kubectl_nodelife.answers.explanation import explanation_of
from kubectl_nodelife.answers.status import KINDS, not_told
from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering.query import Query, Response, headers_of, output_of, word
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.status import ExplanationPage


def reading(query: Query) -> KindsToRead:
    """Nodes, their Leases, pods, and what sends traffic to them."""
    return KindsToRead((*KINDS, "Service", "EndpointSlice"), needed=("Node",), not_told=not_told)


def answer(view: ClusterView, query: Query) -> Response:
    """What happens to it, when, why, and why not yet. Raises Failed, BadInput."""
    made = explanation_of(view, *(word(query, key) for key in ("kind", "namespace", "name")))
    text = render(ExplanationPage(made), output_of(query), headers=headers_of(query))
    return {"text": text, "warnings": made.warnings}
