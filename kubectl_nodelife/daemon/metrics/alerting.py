"""Reads the rules file, and gives it the form of Prometheus or of its operator.

The expressions stand in `alerts.yaml` alone.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

Rules = dict[str, Any]


def read_rules(runbooks: str = "") -> Rules:
    """The rules as Prometheus reads them. `runbooks`: where docs/metrics.md can be read, "" for
    alerts without the address of a runbook.
    """
    text = files("kubectl_nodelife.daemon.metrics").joinpath("alerts.yaml").read_text("utf-8")
    rules: Rules = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule and runbooks:
                rule["annotations"]["runbook_url"] = f"{runbooks}#{rule['alert'].lower()}"
    return rules


def prometheus_rule(rules: Rules) -> Rules:
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


def to_yaml(rules: Rules) -> str:
    """As YAML, in the order of the file."""
    return yaml.safe_dump(rules, sort_keys=False, width=100, allow_unicode=True)
