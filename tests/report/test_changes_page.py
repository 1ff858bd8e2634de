"""The page of `changes`: what the cluster confirms, and what it cannot."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.report.changes import ChangesPage
from kubectl_nodelife.report.formats import render


def change(action: str, kind: str, outcome: str) -> dict[str, Any]:
    about = {"kind": kind, "name": "n1"} | ({"namespace": "shop"} if kind == "Pod" else {})
    said = {"time": "2026-01-01T12:00:00Z", "controller": "node-lifecycle", "reason": ""}
    said |= {"id": "1", "cause": ""}
    detail = {"key": "x", "effect": "NoSchedule"} if action == "AddTaint" else {}
    return said | {"action": action, "object": about, "detail": detail, "outcome": outcome}


def test_a_decision_that_no_object_shows_is_not_confirmed_by_the_cluster() -> None:
    items = [
        change("AddTaint", "Node", "confirmed"),
        change("ScheduleEviction", "Pod", "confirmed"),
        change("QueueNode", "Node", "confirmed"),
        change("ScheduleEviction", "Pod", "would"),
    ]
    shown = render(ChangesPage(items, {}), "table")
    assert "1 confirmed by the cluster, 2 decided, of which a cluster shows nothing, 1 pl" in shown
    rows = [line.split()[1:3] for line in shown.splitlines() if line.startswith("12:00:00Z")]
    assert rows == [
        ["confirmed", "AddTaint"],
        ["decided", "ScheduleEviction"],
        ["decided", "QueueNode"],
        ["would", "ScheduleEviction"],
    ]
