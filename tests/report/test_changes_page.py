"""The page of `changes`: what the cluster confirms, and what it cannot."""

from typing import Any

import pytest

from kubectl_nodelife.commands.changes import changes_page
from kubectl_nodelife.report.formats import as_table, render
from kubectl_nodelife.report.terminal import ENDLESS, Screen


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
    shown = render(changes_page(items, {}), "table")
    assert "1 confirmed by the cluster, 2 decided, of which a cluster shows nothing, 1 pl" in shown
    rows = [line.split()[1:3] for line in shown.splitlines() if line.startswith("12:00:00Z")]
    assert rows == [
        ["would", "ScheduleEviction"],
        ["decided", "QueueNode"],
        ["decided", "ScheduleEviction"],
        ["confirmed", "AddTaint"],
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
    shown = render(changes_page([*items, late], {}), "table")
    rows = [line for line in shown.splitlines() if line.startswith("12:0")]
    assert len(rows) == 2, "a pause of half a minute begins another line"
    assert rows[0].startswith("12:01:00Z "), "the newest stand first"
    assert "12:00:00.500Z to 12:00:29.500Z" in rows[1]
    assert "Pod/shop/web-0, Pod/shop/web-1 and 28 more" in rows[1]
    assert "node n0 is not Ready (and alike)" in rows[1]
    assert "31 changes in 2 lines (-o wide has a line for each)" in shown
    wide = render(changes_page([*items, late], {}), "wide")
    assert all(f"Pod/shop/{pod}" in wide for pod in pods)


def two_lost_nodes() -> list[dict[str, Any]]:
    """What two lost nodes with twenty pods each bring about: forty pods, each told of in turn."""
    items = []
    for second, action in enumerate(
        ["SetNodeCondition", "AddTaint", "MarkPodNotReady", "ScheduleEviction", "DeletePod"] * 4
    ):
        kind = "Pod" if "Pod" in action or "Eviction" in action else "Node"
        for number in range(40 if kind == "Pod" else 2):
            about = {"kind": kind, "name": f"{kind.lower()}-of-a-long-name-{number}"}
            detail: dict[str, Any] = {}
            if action == "ScheduleEviction":
                detail = {"due": f"2026-01-01T12:15:{number:02}.123456Z"}
            elif action in ("SetNodeCondition", "MarkPodNotReady"):
                detail = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            elif action == "AddTaint":
                detail = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
            item = change(action, kind, "would") | {"object": about, "detail": detail}
            items.append(item | {"time": f"2026-01-01T12:{second:02}:00.123456Z"})
    return items


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_two_lost_nodes_fit_a_screen_and_all_is_to_be_had(width: int) -> None:
    items, screen = two_lost_nodes(), Screen(width)
    shown = as_table(changes_page(items, {}, screen=screen), True, screen)
    assert len(shown.splitlines()) <= 25
    assert "12:19:00.123Z" in shown and "DeletePod" in shown, "the newest are there"
    assert "2026-01-01T12:15:39.123Z" in shown, "until when the pods are due"
    assert "lines: -v 1 shows all" in shown
    whole = as_table(changes_page(items, {}), True, ENDLESS)
    rows = [line for line in whole.splitlines() if line.startswith("12:")]
    assert len(rows) == 20 and "-v 1" not in whole
