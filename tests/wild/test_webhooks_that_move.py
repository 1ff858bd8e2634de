"""An eviction that asks a webhook whose own pods are drained: kubectl tries an answer of 500 no
second time (recorded with a webhook at a closed port: exit 1 after 0.4 s)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.wild.reports import FOLDER, Report, first_lines

Capture = pytest.CaptureFixture[str]
WEBHOOK = "drain-06-webhook-on-drained-node"
PLAN = ("drain-plan", "a1", "-o", "json")
NO_ENDPOINTS = (
    'failed calling webhook "evictions.guard.example": failed to call webhook: no endpoints'
)
SCALE = "kubectl scale deployment guard -n guard --replicas=2 first"


def starts_in(seconds: int, folder: Path) -> str:
    """The dump with a webhook whose pod was Ready so long after it had been bound."""
    cluster = json.loads((FOLDER / WEBHOOK / "reachable-pdb.json").read_text())
    (guard,) = (
        item
        for item in cluster["items"]
        if item["kind"] == "Pod" and item["metadata"]["namespace"] == "guard"
    )
    for condition in guard["status"]["conditions"]:
        if condition["type"] == "PodScheduled":
            condition["lastTransitionTime"] = (
                f"2026-11-27T14:{5 - (seconds > 13):02}:{(13 - seconds) % 60:02}Z"
            )
    dump = folder / "cluster.json"
    dump.write_text(json.dumps(cluster))
    return str(dump)


def planned(plan: Any) -> dict[str, Any]:
    return {pod["name"]: pod for wave in plan["waves"] for pod in wave["pods"]}


def test_a_second_try_that_meets_the_webhook_without_endpoints(
    tmp_path: Path, capsys: Capture
) -> None:
    report, dump = Report("", capsys), starts_in(20, tmp_path)
    plan = report.ask(*PLAN, dump=dump, now=False).document
    pods = planned(plan)
    given_up = pods.pop("web-765bfbb8ff-8kqs9")
    assert (given_up["verdict"], given_up["gate"]) == ("never", "webhook")
    assert given_up["reason"].startswith(
        "its try 2, at 5.7s, comes while the pods behind a webhook"
    )
    assert NO_ENDPOINTS in given_up["reason"] and given_up["tries"] == 2
    assert given_up["unblock"]["change"].startswith(f"{SCALE}, so that guard answers")
    assert {pod["verdict"] for pod in pods.values()} == {"unknown"}
    said = first_lines(report.ask("what-if", "drain", "a1", dump=dump, now=False))
    assert "the drain of a1 fails: kubectl drain gives up on default/web-765bfbb8ff-8kqs9" in said
    assert NO_ENDPOINTS in said


def test_a_webhook_that_is_back_before_the_second_try(tmp_path: Path, capsys: Capture) -> None:
    """Of a pod that needs half a second nothing is known but that it is asked."""
    for dump in ("reachable-pdb.json", starts_in(2, tmp_path)):
        plan = Report(WEBHOOK, capsys).ask(*PLAN, dump=dump, now=False).document
        assert {pod["verdict"] for pod in planned(plan).values()} == {"unknown"}


def test_a_webhook_that_cannot_be_called_from_the_start(capsys: Capture) -> None:
    report = Report(WEBHOOK, capsys)
    plan = report.ask(*PLAN, dump="unreachable.json", now=False).document
    pods = planned(plan).values()
    assert {(pod["verdict"], pod["gate"]) for pod in pods} == {("never", "webhook")}
    assert all("comes while" not in pod["reason"] for pod in pods)
    said = first_lines(report.ask("what-if", "drain", "a1", dump="unreachable.json", now=False))
    assert "the drain of a1 fails: kubectl drain gives up on" in said and NO_ENDPOINTS in said
