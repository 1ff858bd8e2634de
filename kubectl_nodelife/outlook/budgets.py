"""`budgets`: each disruption budget's arithmetic, and what it makes undrainable, as a document."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.document import document
from kubectl_nodelife.drain.budget_findings import BudgetView
from kubectl_nodelife.drain.budget_survey import BudgetSurvey, PoolView


def budgets_document(survey: BudgetSurvey) -> dict[str, Any]:
    """The BudgetList document."""
    return document(
        "BudgetList",
        items=[_item(view) for view in survey.budgets],
        twoBudgets=[{"pod": pod, "budgets": names} for pod, names in survey.two_budgets.items()],
        pools=[_pool(pool) for pool in survey.pools],
        warnings=survey.warnings,
    )


def _pool(pool: PoolView) -> dict[str, Any]:
    return {
        "name": pool.name,
        "label": pool.label or None,
        "nodes": pool.nodes,
        "undrainable": pool.undrainable,
        "budgets": pool.budgets,
    }


def _item(view: BudgetView) -> dict[str, Any]:
    return {
        "namespace": view.namespace,
        "name": view.name,
        "state": view.state,
        "rule": view.rule,
        "selector": view.selector,
        "unhealthyPodEvictionPolicy": view.policy,
        "expectedPods": view.expected,
        "desiredHealthy": view.desired,
        "currentHealthy": view.healthy,
        "disruptionsAllowed": view.allowed,
        "disruptedPods": view.disrupted,
        "counted": view.counted,
        "pods": view.pods,
        "owners": view.owners,
        "nodes": view.nodes,
        "undrainable": view.undrainable,
        "findings": [
            {"what": finding.what, "remedy": finding.remedy or None} for finding in view.findings
        ],
    }
