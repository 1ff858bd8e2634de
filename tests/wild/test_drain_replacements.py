"""When pods are back, and when not; and budgets that nobody made their controller look at again."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.wild.reports import FOLDER, Report, first_lines

Capture = pytest.CaptureFixture[str]
ORDERED, BUDGET = "drain-14-statefulset-ordered", "drain-32-replicaset-gone"
PLAN = ("drain-plan", "a1", "-o", "json")


def planned(capsys: Capture, folder: str, dump: str) -> dict[str, Any]:
    plan = Report(folder, capsys).ask(*PLAN, dump=dump, now=False).document
    return {pod["name"]: pod for wave in plan["waves"] for pod in wave["pods"]}


def test_a_stateful_set_that_stops_at_its_first_pod(capsys: Capture) -> None:
    """Recorded: 20 s later db-1 and db-2 do not exist."""
    pods = planned(capsys, ORDERED, "cluster.json")
    for name in ("db-1", "db-2"):
        assert pods[name]["goneSeconds"] is not None and pods[name]["endSeconds"] is None
        assert "db-0 on a2 is CrashLoopBackOff" in pods[name]["reason"]
        assert "StatefulSet db (OrderedReady) makes none after it" in pods[name]["reason"]


def test_what_if_says_too_why_a_stateful_set_stops(capsys: Capture) -> None:
    said = first_lines(
        Report(ORDERED, capsys).ask("what-if", "drain", "a1", dump="cluster.json", now=False)
    )
    assert "db is down, to the end" in said
    because = (
        "db-0 on a2 is CrashLoopBackOff, and StatefulSet db (OrderedReady) makes none after it"
    )
    assert f"default/db-1, default/db-2: {because}" in said


def test_a_budget_is_not_counted_anew_without_an_event(capsys: Capture) -> None:
    """Its ReplicaSet is gone, which no informer of the disruption controller tells it. Recorded:
    the first eviction is accepted at once by the recorded status, the second after 35.6 s.
    """
    pods = planned(capsys, BUDGET, "case_b/cluster.json")
    first, second = sorted(pod["startSeconds"] for pod in pods.values())
    assert first < 0.5 and abs(second - 35.6) < 1


def test_the_pods_of_a_deleted_replica_set_are_in_nobody_s_place(capsys: Capture) -> None:
    pods = planned(capsys, BUDGET, "cluster.json")
    gone = [pod for name, pod in pods.items() if name.startswith("api-64d7b9df67")]
    assert len(gone) == 2 and all(pod["endSeconds"] is None for pod in gone)


def test_the_taint_that_an_uncordon_left_goes(tmp_path: Path, capsys: Capture) -> None:
    """Read right after an uncordon: recorded, the node takes pods a moment later."""
    cluster = json.loads((FOLDER / ORDERED / "cluster.json").read_text())
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    (node,) = (i for i in cluster["items"] if i["metadata"]["name"] == "a2" and i["kind"] == "Node")
    assert not node["spec"].get("unschedulable")
    node["spec"]["taints"] = [taint]
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Scenario\n"
        "spec: {snapshot: cluster.json, start: join, duration: 1m}\n"
    )
    assert main(["simulate", "-f", str(scenario), "-o", "json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    (removed,) = (r for r in records if r["action"] == "RemoveTaint")
    assert removed["object"]["name"] == "a2" and removed["at"] <= 5
