"""The page of `metrics list`, and a Grafana dashboard on the daemon's metrics: one variable for the
data source, no plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kubectl_nodelife.document import document
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import Table, columns

_COLUMNS = columns("name | type | labels | most series | help*")


Json = dict[str, Any]
_WIDTH: Final = 12
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_STATES: Final = 'sum by (state) (nodelife_nodes{state!="healthy"})'
_UNKNOWN: Final = "max by (seconds) (nodelife_nodes_unknown_within)"
_NEXT: Final = "max(nodelife_next_eviction_timestamp_seconds > 0) - time()"
_CHANGES: Final = (
    "sum by (controller, action, outcome) (increase(nodelife_predicted_changes_total[5m]))"
)


class _Family(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def most(self) -> str: ...

    @property
    def help(self) -> str: ...


class MetricsPage:
    """The table of metrics as an answer. In `most`, `z` stands for each zone, `n` for each node."""

    def __init__(self, families: Sequence[_Family]) -> None:
        self._families = families

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The table."""
        rows = [(f.name, f.type, ", ".join(f.labels), f.most, f.help) for f in self._families]
        yield Table(_COLUMNS, rows)

    def document(self) -> object:
        """The MetricList."""
        return document(
            "MetricList",
            items=[
                {
                    "name": family.name,
                    "type": family.type,
                    "labels": list(family.labels),
                    "mostSeries": family.most,
                    "help": family.help,
                }
                for family in self._families
            ],
        )

    def names(self) -> Iterable[str]:
        """metric/NAME of each."""
        return (f"metric/{family.name}" for family in self._families)


class Panel(NamedTuple):
    """A chart. `lines`: PromQL -> how a line is called. `unit`: as Grafana calls it."""

    title: str
    lines: dict[str, str]
    unit: str = "short"


PANELS: Final = (
    Panel("Nodes that are not healthy", {_STATES: "{{state}}"}),
    Panel("Nodes that turn Unknown", {_UNKNOWN: "within {{seconds}}s"}),
    Panel("Ready nodes of each zone", {"node_collector_zone_health": "{{zone}}"}, "percent"),
    Panel(
        "Lost nodes until the brake",
        {"max by (zone) (nodelife_zone_nodes_until_brake)": "{{zone}}"},
    ),
    Panel("Time to the next eviction", {_NEXT: "next"}, "s"),
    Panel(
        "Pods due and stranded",
        {
            "max by (seconds) (nodelife_pods_due)": "due within {{seconds}}s",
            "max by (because) (nodelife_pods_stranded)": "stranded: {{because}}",
        },
    ),
    Panel("Changes in five minutes", {_CHANGES: "{{controller}} {{action}} {{outcome}}"}),
    Panel("Where controllers differ", {"max by (finding) (nodelife_divergences)": "{{finding}}"}),
    Panel("Error of predictions, p90", {"nodelife:prediction_error_seconds:p90": "90 of 100"}, "s"),
    Panel("What drains wait for", {"max by (gate) (nodelife_drain_wait_seconds)": "{{gate}}"}, "s"),
    Panel("Nodes of an upgrade", {"max by (state) (nodelife_upgrade_nodes)": "{{state}}"}),
    Panel("Watches", {"min by (kind) (nodelife_watch_up)": "{{kind}}"}),
)


def dashboard(panels: Iterable[Panel] = PANELS) -> Json:
    """The dashboard, as `Import` in Grafana takes it."""
    return {
        "title": "kubectl-nodelife",
        "uid": "kubectl-nodelife",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "annotations": {"list": []},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> Json:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {
            "h": _HEIGHT,
            "w": _WIDTH,
            "x": _WIDTH * (number % 2),
            "y": _HEIGHT * (number // 2),
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.lines.items())
        ],
    }
