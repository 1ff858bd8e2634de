"""`kubectl nodelife metrics`: the table of metrics, alerting rules and a dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Output, SpellingGroup, output_flags
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page
from kubectl_nodelife.report.table import Table, columns

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.families import MetricFamily

Rules = dict[str, Any]

SEVERITIES: Final = ("info", "warning", "critical")


@click.group("metrics", cls=SpellingGroup)
def metrics() -> None:
    """What a daemon with --metrics-bind-address tells Prometheus, and rules to alert on it.

    No cluster is asked and nothing is sent: these print.
    """


@metrics.command("list")
@output_flags()
def list_command(output: Output) -> None:
    """List the metrics: name, type, labels, and how many series each has at the most.

    \b
    Examples:
      kubectl nodelife metrics list
      kubectl nodelife metrics list -o wide
    """
    from kubectl_nodelife.daemon.metrics.families import FAMILIES

    output.show(metrics_page(FAMILIES))


@metrics.command("alerts")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("yaml", "prometheusrule")),
    default="yaml",
    show_default=True,
    help="A file of Prometheus, or an object of its operator.",
)
@click.option(
    "--severity-map",
    metavar="OLD=NEW[,...]",
    default="",
    help="Other names for info, warning, critical.",
)
@click.option(
    "--runbooks", metavar="URL", default="", help="Where docs/metrics.md can be read by all."
)
def alerts(output: str, severity_map: str, runbooks: str) -> None:
    """Print the alerting and recording rules.

    \b
    Examples:
      kubectl nodelife metrics alerts
      kubectl nodelife metrics alerts -o prometheusrule --severity-map critical=page
    """
    import yaml

    rules = _renamed(_read_rules(runbooks), severity_map)
    shown = _prometheus_rule(rules) if output == "prometheusrule" else rules
    terminal.write(yaml.safe_dump(shown, sort_keys=False, width=100, allow_unicode=True))


def _read_rules(runbooks: str) -> Rules:
    """The rules as Prometheus reads them. `runbooks`: where docs/metrics.md can be read, "" for
    alerts without the address of a runbook.
    """
    from importlib.resources import files

    import yaml

    text = files("kubectl_nodelife.daemon.metrics").joinpath("alerts.yaml").read_text("utf-8")
    rules: Rules = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule and runbooks:
                rule["annotations"]["runbook_url"] = f"{runbooks}#{rule['alert'].lower()}"
    return rules


def _prometheus_rule(rules: Rules) -> Rules:
    """A PrometheusRule of the operator's."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "kubectl-nodelife",
            "labels": {"app.kubernetes.io/name": "kubectl-nodelife"},
        },
        "spec": rules,
    }


@metrics.command("dashboard")
def dashboard_command() -> None:
    """Print a dashboard, for Import in Grafana.

    \b
    Example:
      kubectl nodelife metrics dashboard
    """
    import json

    terminal.write(json.dumps(dashboard(), indent=2) + "\n")


def _renamed(rules: Rules, severity_map: str) -> Rules:
    """The rules with other severities. Raises BadInput."""
    names = {}
    for text in filter(None, severity_map.split(",")):
        old, equals, new = text.partition("=")
        if old not in SEVERITIES or not equals or not new:
            raise BadInput(
                f"{text!r} renames no severity",
                on="--severity-map",
                remedy=f"give one of {', '.join(SEVERITIES)}, =, another name",
            )
        names[old] = new
    for group in rules["groups"]:
        for rule in group["rules"]:
            labels = rule.get("labels")
            if labels is not None:
                labels["severity"] = names.get(labels["severity"], labels["severity"])
    return rules


_COLUMNS = columns("name | type | labels | most series | help*")


Json = dict[str, Any]
_COLUMNS_OF_24: Final = {"stat": 6, "timeseries": 12, "state-timeline": 24}
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "state-timeline": 6}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_IN: Final = '{cluster=~"$cluster"}'
_OF_ZONE: Final = '{cluster=~"$cluster", zone=~"$zone"}'
_LOST: Final = (
    'sum(max by (cluster, zone, state) (nodelife_nodes{cluster=~"$cluster", zone=~"$zone", '
    'state=~"overdue|unreachable|not-ready"}))'
)
_STATES: Final = (
    "sum by (state) (max by (cluster, zone, state) "
    '(nodelife_nodes{cluster=~"$cluster", zone=~"$zone", state!="healthy"}))'
)
_UNKNOWN: Final = f"max by (seconds) (nodelife_nodes_unknown_within{_IN})"
_NEXT: Final = f"min(max by (cluster) (nodelife_next_eviction_timestamp_seconds{_IN} > 0)) - time()"
_BRAKE: Final = f"min by (zone) (nodelife_zone_nodes_until_brake{_OF_ZONE})"
_CHANGES: Final = (
    f"sum by (controller, action, outcome) (increase(nodelife_predicted_changes_total{_IN}[5m]))"
)
_STATES_OF_ZONES: Final = " or ".join(
    f'{value} * nodelife_zone_state{{cluster=~"$cluster", zone=~"$zone", state="{state}"}}'
    for value, state in enumerate(("Normal", "PartialDisruption", "FullDisruption"), 1)
)


def metrics_page(families: Sequence[MetricFamily]) -> Page:
    """The table of metrics as an answer."""

    def blocks(*, wide: bool) -> Iterator[Block]:
        rows = [(f.name, f.type, ", ".join(f.labels), f.most, f.help) for f in families]
        yield Table(_COLUMNS, rows)

    def made() -> object:
        items = [
            {
                "name": family.name,
                "type": family.type,
                "labels": list(family.labels),
                "mostSeries": family.most,
                "help": family.help,
            }
            for family in families
        ]
        return document("MetricList", items=items)

    return Page(blocks, made, lambda: (f"metric/{family.name}" for family in families))


class Panel(NamedTuple):
    """One panel. `lines`: PromQL -> how a line is called. `unit` and `kind`: as Grafana calls them.

    `steps`: (from this value on, colour); `words`: what a value is called.
    """

    title: str
    lines: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    steps: tuple[tuple[float | None, str], ...] = ()
    words: tuple[str, ...] = ()


_GOOD_WORSE_GONE: Final = ("blue", "orange", "dark-red")
"""As on the live page: told apart also by who does not tell red from green."""


def _steps(worse: float, gone: float) -> tuple[tuple[float | None, str], ...]:
    return tuple(zip((None, worse, gone), _GOOD_WORSE_GONE, strict=True))


PANELS: Final = (
    Panel("Lost nodes", {_LOST: ""}, kind="stat", steps=_steps(1, 3)),
    Panel(
        "Lost nodes until the brake",
        {f"min(nodelife_zone_nodes_until_brake{_OF_ZONE})": ""},
        kind="stat",
        steps=((None, "dark-red"), (2, "orange"), (4, "blue")),
    ),
    Panel("Time to the next eviction", {_NEXT: ""}, "s", "stat", ((None, "orange"), (300, "blue"))),
    Panel(
        "Where controllers differ",
        {f"sum(max by (finding) (nodelife_divergences{_IN}))": ""},
        kind="stat",
        steps=_steps(1, 2),
    ),
    Panel(
        "State of each zone",
        {f"max by (zone) ({_STATES_OF_ZONES})": "{{zone}}"},
        kind="state-timeline",
        steps=((None, "blue"), (2, "orange"), (3, "dark-red")),
        words=("Initial", "Normal", "PartialDisruption", "FullDisruption"),
    ),
    Panel("Nodes that are not healthy", {_STATES: "{{state}}"}),
    Panel("Nodes that turn Unknown", {_UNKNOWN: "within {{seconds}}s"}),
    Panel("Lost nodes until the brake, by zone", {_BRAKE: "{{zone}}"}),
    Panel(
        "Pods due and stranded",
        {
            f"max by (seconds) (nodelife_pods_due{_IN})": "due within {{seconds}}s",
            f"max by (because) (nodelife_pods_stranded{_IN})": "stranded: {{because}}",
        },
    ),
    Panel("Changes in five minutes", {_CHANGES: "{{controller}} {{action}} {{outcome}}"}),
    Panel("Differences", {f"max by (finding) (nodelife_divergences{_IN})": "{{finding}}"}),
    Panel(
        "Error of predictions, p90",
        {f"nodelife:prediction_error_seconds:p90{_IN}": "90 of 100"},
        "s",
    ),
    Panel(
        "What drains wait for",
        {f"max by (gate) (nodelife_drain_wait_seconds{_IN})": "{{gate}}"},
        "s",
    ),
    Panel("Nodes of an upgrade", {f"max by (state) (nodelife_upgrade_nodes{_IN})": "{{state}}"}),
    Panel("Watches", {f"min by (kind) (nodelife_watch_up{_IN})": "{{kind}}"}),
)


def dashboard(panels: Iterable[Panel] = PANELS) -> Json:
    """The dashboard, as `Import` in Grafana takes it. Where scrapes add no label `cluster`, all is
    one cluster.
    """
    return {
        "title": "kubectl-nodelife",
        "uid": "kubectl-nodelife",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("cluster", "label_values(nodelife_info, cluster)"),
                _variable("zone", 'label_values(nodelife_zone_state{cluster=~"$cluster"}, zone)'),
            ]
        },
        "annotations": {"list": []},
        "panels": list(_placed(panels)),
    }


def _variable(name: str, query: str) -> Json:
    """A choice of the values of a label, several or all of them."""
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Iterable[Panel]) -> Iterator[Json]:
    """From left to right, line by line; Grafana counts 24 columns."""
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        width = _COLUMNS_OF_24[panel.kind]
        if x + width > 24:
            x, y, height = 0, y + height, 0
        height = max(height, _HEIGHTS[panel.kind])
        place = {"h": _HEIGHTS[panel.kind], "w": width, "x": x, "y": y}
        yield {"id": number, "gridPos": place, **_panel(panel)}
        x += width


def _panel(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.steps:
        steps = [{"value": value, "color": colour} for value, colour in panel.steps]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds"}
    if panel.words:
        called = {str(value): {"text": word} for value, word in enumerate(panel.words)}
        defaults["mappings"] = [{"type": "value", "options": called}]
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.lines.items())
        ],
    }
