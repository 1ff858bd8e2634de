"""kubectl drain reads a refused pod again by name, and goes on with what it finds
(kubernetes#138229)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.wild.reports import FOLDER, Report

Capture = pytest.CaptureFixture[str]
AFFINITY = "drain-35-statefulset-affinity"


def records(document: Any, reason: str) -> list[Any]:
    return [r for r in document["records"] if r["detail"].get("reason") == reason]


def test_the_pending_successor_is_evicted_too(capsys: Capture) -> None:
    """Recorded: exit 0 after 10.2 s; the successor is tied to a1 and Pending."""
    told = Report(AFFINITY, capsys).simulate("s.yaml", "-o", "json").document
    (drained,) = records(told, "Drained")
    assert abs(drained["at"] - 1 - 10.2) < 0.1
    evicted = [r for r in told["records"] if r["reason"] == "kubectl drain evicts it"]
    assert [r["object"]["name"] for r in evicted] == ["db-0"]
    deleted = {r["object"]["uid"] for r in told["records"] if r["action"] == "DeletePod"}
    assert len(deleted) == 2


def test_a_successor_on_another_node_is_asked_for_until_the_timeout(
    tmp_path: Path, capsys: Capture
) -> None:
    """Recorded of the same set without its affinity: 429 until --timeout, exit 1."""
    cluster = json.loads((FOLDER / AFFINITY / "cluster.json").read_text())
    for item in cluster["items"]:
        if item["kind"] == "StatefulSet":
            item["spec"]["template"]["spec"].pop("affinity", None)
            item["spec"]["template"]["spec"].pop("nodeSelector", None)
        elif item["kind"] == "Pod":
            item["spec"].pop("affinity", None)
            item["spec"].pop("nodeSelector", None)
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    scenario = tmp_path / "s.yaml"
    events = (FOLDER / AFFINITY / "s.yaml").read_text()
    scenario.write_text(events.replace("at: 9s, delete", "at: 7s, delete"))  # Ready before 11 s
    assert main(["simulate", "-f", str(scenario), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (failed,) = records(told, "DrainFailed")
    assert 40 < failed["at"] < 47 and not records(told, "Drained")
    ready = [r for r in told["records"] if r["reason"].startswith("the containers run on")]
    assert [r["reason"] for r in ready] == ["the containers run on a2"]
