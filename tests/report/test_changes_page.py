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
        change("ScheduleEviction", "Pod", "decided"),
        change("QueueNode", "Node", "decided"),
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


def test_what_is_done_alike_without_a_pause_is_one_line() -> None:
    pods = [f"web-{n}" for n in range(30)]
    items = [
        change("MarkPodNotReady", "Pod", "would")
        | {"time": f"2026-01-01T12:00:{n:02}.500Z", "reason": f"node n{n % 2} is not Ready"}
        | {"object": {"kind": "Pod", "namespace": "shop", "name": pod}}
        for n, pod in enumerate(pods)
    ]
    late = items[0] | {"time": "2026-01-01T12:01:00Z"}
    shown = render(ChangesPage([*items, late], {}), "table")
    rows = [line for line in shown.splitlines() if line.startswith("12:0")]
    assert len(rows) == 2, "a pause of half a minute begins another line"
    assert "12:00:00.500Z to 12:00:29.500Z" in rows[0]
    assert "Pod/shop/web-0, Pod/shop/web-1 and 28 more" in rows[0]
    assert "node n0 is not Ready (and alike)" in rows[0]
    assert "31 changes in 2 lines (-o wide has a line for each)" in shown
    wide = render(ChangesPage([*items, late], {}), "wide")
    assert all(f"Pod/shop/{pod}" in wide for pod in pods)
