"""What a watched `status` says each time: nodes that changed, nodes that are gone, zones.

The table keeps the columns that it began with, so that later lines stand below the first ones.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.answers.status import NodeEntry, NodeLifeStatus
from kubectl_nodelife.commands.answering.query import Query, output_of, word
from kubectl_nodelife.commands.answering.status import page
from kubectl_nodelife.report.screen import ENDLESS
from kubectl_nodelife.report.table import Widths


class StatusLines:
    """Remembers what was told, and makes text of what is new."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._output = output_of(query)
        self._headers = self._output.headers
        self._widths = Widths()
        self._gone = "deleted"
        if word(query, "trouble") == "true":
            self._gone = "not in trouble any more, or deleted"
        elif word(query, "selector") or word(query, "fields"):
            self._gone = "not selected any more, or deleted"
        self._nodes: dict[str, object] = {}
        self._zones: dict[str, str] = {}

    def news(self, status: NodeLifeStatus) -> str:
        """What there is to say now, "" for nothing."""
        gists = {n.outlook.node.name: _gist(n) for n in status.nodes}
        changed = [n for n in status.nodes if self._nodes.get(_name(n)) != gists[_name(n)]]
        gone = sorted(self._nodes.keys() - gists.keys())
        zones = list(self._zone_changes(status))
        self._nodes = gists
        if not (changed or gone or zones):
            return ""
        shown = replace(status, nodes=changed, deleted=gone)
        if self._output.format not in ("table", "wide"):
            return self._output.render(page(shown, self._query))
        lines = page(shown, self._query).node_lines(
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
        said = [
            f"zone {z.name}: {before.get(z.name, 'new')} -> {z.state}: {z.why}\n" for z in changed
        ]
        return said + [f"zone {name} is gone\n" for name in sorted(before.keys() - states.keys())]


def _gist(node: NodeEntry) -> object:
    """What makes a node worth another line: anything but the time that goes by."""
    outlook, verdict = node.outlook, node.verdict
    return (
        verdict.state,
        verdict.next.action.partition(" ")[0] if verdict.next is not None else "",
        outlook.ready,
        outlook.node.spec.taints,
        outlook.node.spec.unschedulable,
        outlook.queued is not None,
        bool(outlook.timers),
    )


def _name(node: NodeEntry) -> str:
    return node.outlook.node.name
