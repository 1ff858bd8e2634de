"""Answers `status`: the nodes asked for, and all zones."""

from __future__ import annotations

from collections.abc import Generator

from msgspec.structs import replace

from kubectl_nodelife.commands.answering.query import (
    Query,
    Response,
    StatusQuestion,
    flags_of,
    output_of,
)
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.outlook.status import (
    KINDS,
    NodeEntry,
    NodeLifeStatus,
    missing_parts,
    status_steps,
)
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report.status import StatusTable, status_page
from kubectl_nodelife.report.table import Widths
from kubectl_nodelife.report.terminal import ENDLESS

NOTHING_TO_SHOW = ("table", "wide", "name", "markdown")
"""The formats that show nothing at all where no node is left."""


def reading(query: Query) -> KindsToRead:
    """Nodes, their Leases, and pods."""
    return KindsToRead(KINDS, ("Node",), missing_parts=missing_parts, manager_role=True)


def steps(view: ClusterView, query: Query) -> Generator[None, None, NodeLifeStatus]:
    """The status, a step a node. Raises BadInput, Failed."""
    question = flags_of(query, StatusQuestion)
    return status_steps(
        view,
        question.node,
        question.selector,
        field_selector=question.fields,
        sort_by=question.sort,
        trouble=question.trouble,
    )


def _shown(question: StatusQuestion) -> StatusTable:
    """How the nodes are shown, with the columns of labels that are asked for."""
    return StatusTable(
        is_sorted=bool(question.sort),
        labels=question.label,
        all_labels=question.labels,
        most=max(0, question.most),
    )


def response_of(status: NodeLifeStatus, query: Query) -> Response:
    """The status as text. Raises BadInput."""
    output, question = output_of(query), flags_of(query, StatusQuestion)
    text = ""
    if status.nodes or output.format not in NOTHING_TO_SHOW:
        text = output.render(status_page(status, _shown(question)))
    none = "No node is in trouble." if question.trouble else "No resources found"
    return {
        "text": text,
        "warnings": status.warnings,
        "note": "" if status.nodes else none,
        "inTrouble": status.in_trouble(),
    }


def answer(view: ClusterView, query: Query) -> Response:
    """The status of the nodes asked for. Raises BadInput, Failed."""
    return response_of(finished(steps(view, query)), query)


def finished(made: Generator[None, None, NodeLifeStatus]) -> NodeLifeStatus:
    """The result of all steps, taken at once."""
    while True:
        try:
            next(made)
        except StopIteration as end:
            status: NodeLifeStatus = end.value
            return status


class StatusLines:
    """Remembers what was shown, and makes text of what is new."""

    def __init__(self, query: Query) -> None:
        self._question = question = flags_of(query, StatusQuestion)
        self._output = output_of(query)
        self._headers = self._output.headers
        self._widths = Widths()
        self._gone = "deleted"
        if question.trouble:
            self._gone = "not in trouble any more, or deleted"
        elif question.selector or question.fields:
            self._gone = "not selected any more, or deleted"
        self._nodes: dict[str, object] = {}
        self._zones: dict[str, str] = {}

    def news(self, status: NodeLifeStatus) -> str:
        """The progress to show now, "" for none."""
        fingerprints = {n.outlook.node.name: _fingerprint(n) for n in status.nodes}
        changed = [n for n in status.nodes if self._nodes.get(_name(n)) != fingerprints[_name(n)]]
        gone = sorted(self._nodes.keys() - fingerprints.keys())
        zones = list(self._zone_changes(status))
        self._nodes = fingerprints
        if not (changed or gone or zones):
            return ""
        shown, table = replace(status, nodes=changed, deleted=gone), _shown(self._question)
        if self._output.format not in ("table", "wide"):
            return self._output.render(status_page(shown, table))
        shown = table.ordered(shown)
        lines = table.of(shown, shown.nodes).lines(
            self._widths,
            wide=self._output.format == "wide",
            headers=self._headers,
            screen=self._output.screen or ENDLESS,
        )
        self._headers = self._headers and not lines
        return "".join([*lines, *(f"{name}: {self._gone}\n" for name in gone), *zones])

    def _zone_changes(self, status: NodeLifeStatus) -> list[str]:
        states = {zone.name: zone.state for zone in status.zones}
        before, self._zones = self._zones, states
        if not before:
            return []
        changed = [zone for zone in status.zones if before.get(zone.name) != zone.state]
        lines = [
            f"zone {z.name}: {before.get(z.name, 'new')} -> {z.state}: {z.why}\n" for z in changed
        ]
        return lines + [f"zone {name} is gone\n" for name in sorted(before.keys() - states.keys())]


def _fingerprint(node: NodeEntry) -> object:
    """The facts by which a node is worth another line: all but the time that goes by."""
    outlook, verdict = node.outlook, node.verdict
    return (
        verdict.state,
        verdict.next.act if verdict.next is not None else "",
        outlook.ready,
        outlook.node.spec.taints,
        outlook.node.spec.unschedulable,
        outlook.queued is not None,
        bool(outlook.timers),
    )


def _name(node: NodeEntry) -> str:
    return node.outlook.node.name
