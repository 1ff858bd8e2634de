"""`drain-plan` and `budgets` of a live cluster: a small server that lists, and notes any write."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.kube.times import format_micro_time
from tests.drain.recorded import DRAINS
from tests.raw_server import RawServer, in_a_thread, raw_server

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    listed = json.loads((DRAINS / "budget-one-at-a-time" / "cluster.json").read_text())["items"]
    for obj in listed:
        if obj["kind"] == "Lease":
            obj["spec"]["renewTime"] = format_micro_time(time.time_ns())
    with in_a_thread(raw_server(listed)) as server:
        monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path, namespace="shop"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        yield server
        assert not server.writes, "a plan writes nothing"


def test_a_live_plan(cluster: RawServer, capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "-o", "json", "--timeout", "5m"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["source"]["kind"] == "direct" and plan["source"]["context"] == "c"
    assert plan["verdict"] == "slow" and plan["notEvaluated"] == []


def test_what_may_not_be_listed_is_not_evaluated(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {"poddisruptionbudgets": 403, "leases": 403}
    cluster.refused["validatingadmissionpolicies"] = 404
    assert main(["drain-plan", "a1", "-o", "json"]) == 0
    told = capsys.readouterr()
    plan = json.loads(told.out)
    assert plan["verdict"] == "unknown"
    assert [n["kind"] for n in plan["notEvaluated"]] == ["Lease", "PodDisruptionBudget"]
    assert "PodDisruptionBudget cannot be read" in told.err


def test_kinds_that_may_not_be_listed_are_one_warning(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {"poddisruptionbudgets": 403, "leases": 403, "jobs": 403, "replicasets": 403}
    assert main(["drain-plan", "a1"]) == 0
    said = capsys.readouterr().err
    assert said.count("cannot be read") == 1 and " and 1 more cannot be read (" in said
    assert main(["budgets", "web"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: poddisruptionbudgets")


def test_nodes_that_may_not_be_listed_are_an_error(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {"nodes": 403}
    assert main(["drain-plan", "a1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: nodes: ")


def test_live_budgets_are_those_of_the_context_s_namespace(
    cluster: RawServer, capsys: Capture
) -> None:
    assert main(["budgets", "-o", "name", "-A"]) == 0
    assert main(["budgets", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []
    assert main(["budgets", "-n", "default", "-o", "json"]) == 0
    (budget,) = json.loads(capsys.readouterr().out)["items"]
    assert budget["name"] == "web" and budget["owners"] == ["Deployment/web"]


def test_now_is_for_dumps(cluster: RawServer, capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "--now", "2026-01-01T00:00:00Z"]) == 2
    assert not cluster.requests
