"""`kubectl nodelife metrics`: the table of metrics, alerting rules and a dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.commands.groups import SpellingGroup
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.families import Rules

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
    from kubectl_nodelife.report.metrics import metrics_page

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
    from kubectl_nodelife.daemon.metrics.families import prometheus_rule, read_rules, to_yaml

    rules = _renamed(read_rules(runbooks), severity_map)
    terminal.write(to_yaml(prometheus_rule(rules) if output == "prometheusrule" else rules))


@metrics.command("dashboard")
def dashboard_command() -> None:
    """Print a dashboard, for Import in Grafana.

    \b
    Example:
      kubectl nodelife metrics dashboard
    """
    import json

    from kubectl_nodelife.report.metrics import dashboard

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
