"""`kubectl nodelife metrics`: the table of metrics, alerting rules and a dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kubectl_nodelife.commands.flags import Output, SpellingGroup, output_flags
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page, Table, columns

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics import MetricFamily

Json = dict[str, Any]

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
    from kubectl_nodelife.daemon.metrics import FAMILIES

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


def _read(name: str) -> Json:
    """A file beside the table of metrics."""
    from importlib.resources import files

    import yaml

    text = files("kubectl_nodelife.daemon.metrics").joinpath(name).read_text("utf-8")
    document: Json = yaml.safe_load(text)
    return document


def _read_rules(runbooks: str) -> Json:
    """The rules as Prometheus reads them. `runbooks`: where docs/metrics.md is; "": nowhere."""
    rules = _read("alerts.yaml")
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule and runbooks:
                rule["annotations"]["runbook_url"] = f"{runbooks}#{rule['alert'].lower()}"
    return rules


def _prometheus_rule(rules: Json) -> Json:
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

    dashboard = _read("dashboard.yaml")
    dashboard["panels"] = list(_placed(dashboard["panels"]))
    terminal.write(json.dumps(dashboard, indent=2) + "\n")


def _renamed(rules: Json, severity_map: str) -> Json:
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


_COLUMNS_OF_24: Final = {"stat": 6, "timeseries": 12, "state-timeline": 24}
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "state-timeline": 6}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


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


def _placed(panels: Iterable[Json]) -> Iterator[Json]:
    """Rows of dashboard.yaml as panels, from left to right, line by line; Grafana counts 24
    columns."""
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        kind = panel.get("kind", "timeseries")
        width = _COLUMNS_OF_24[kind]
        if x + width > 24:
            x, y, height = 0, y + height, 0
        height = max(height, _HEIGHTS[kind])
        place = {"h": _HEIGHTS[kind], "w": width, "x": x, "y": y}
        yield {"id": number, "gridPos": place, "type": kind, **_panel(panel)}
        x += width


def _panel(panel: Json) -> Json:
    defaults: Json = {"unit": panel.get("unit", "short"), "min": 0}
    if "steps" in panel:
        steps = [{"value": value, "color": colour} for value, colour in panel["steps"]]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds"}
    if "words" in panel:
        called = {str(value): {"text": word} for value, word in enumerate(panel["words"])}
        defaults["mappings"] = [{"type": "value", "options": called}]
    return {
        "title": panel["title"],
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "expr": line["expr"],
                "legendFormat": line.get("legend", ""),
            }
            for at, line in enumerate(panel["lines"])
        ],
    }
