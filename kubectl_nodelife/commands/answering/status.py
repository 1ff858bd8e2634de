"""Answers `status`: the nodes asked for, and all zones."""

from __future__ import annotations

from collections.abc import Generator

from kubectl_nodelife.answers.status import KINDS, NodeLifeStatus, not_told, status_steps
from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering.query import (
    Query,
    Response,
    output_of,
    word,
)
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.report.status import StatusPage

NOTHING_TO_SHOW = ("table", "wide", "name", "markdown")
"""The formats that show nothing at all where no node is left."""


def reading(query: Query) -> KindsToRead:
    """Nodes, their Leases, and pods."""
    return KindsToRead(KINDS, needed=("Node",), not_told=not_told)


def steps(view: ClusterView, query: Query) -> Generator[None, None, NodeLifeStatus]:
    """The status, a step a node. Raises BadInput, Failed."""
    return status_steps(
        view,
        query.get("node", []),
        word(query, "selector"),
        field_selector=word(query, "fields"),
        sort_by=word(query, "sort"),
        trouble=word(query, "trouble") == "true",
    )


def page(status: NodeLifeStatus, query: Query) -> StatusPage:
    """The page, with the columns of labels that are asked for."""
    return StatusPage(
        status,
        is_sorted=bool(word(query, "sort")),
        labels=query.get("label", []),
        all_labels=word(query, "labels") == "true",
    )


def told(status: NodeLifeStatus, query: Query) -> Response:
    """The status as text. Raises BadInput."""
    output = output_of(query)
    text = ""
    if status.nodes or output.format not in NOTHING_TO_SHOW:
        text = output.render(page(status, query))
    none = "No node is in trouble." if word(query, "trouble") == "true" else "No resources found"
    return {
        "text": text,
        "warnings": status.warnings,
        "note": "" if status.nodes else none,
        "inTrouble": status.in_trouble(),
    }


def answer(view: ClusterView, query: Query) -> Response:
    """The status of the nodes asked for. Raises BadInput, Failed."""
    return told(finished(steps(view, query)), query)


def finished(made: Generator[None, None, NodeLifeStatus]) -> NodeLifeStatus:
    """What the steps come to, taken at once."""
    while True:
        try:
            next(made)
        except StopIteration as end:
            status: NodeLifeStatus = end.value
            return status
