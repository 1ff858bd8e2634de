"""`drain-plan` and `budgets` of a live cluster: a small server that lists, and notes any write."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.kube.times import format_micro_time
from tests.drain.recorded import DRAINS

Capture = pytest.CaptureFixture[str]


class Cluster(ThreadingHTTPServer):
    """Objects by collection path. `forbidden`: resources that may not be listed."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.collections: dict[str, list[dict[str, Any]]] = {}
        self.forbidden: set[str] = set()
        self.absent: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        for obj in objects:
            kind = find_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None
            if obj["kind"] == "Lease":
                obj["spec"]["renewTime"] = format_micro_time(time.time_ns())
            self.collections.setdefault(kind.plural, []).append(obj)


class Handler(BaseHTTPRequestHandler):
    """GETs of whole collections."""

    server: Cluster

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(("GET", path))
        resource = path.rpartition("/")[2]
        if resource in self.server.forbidden:
            self._answer(403, {"kind": "Status", "message": f"{resource} is forbidden"})
        elif resource in self.server.absent:
            self._answer(404, {"kind": "Status", "message": "not found"})
        else:
            items = self.server.collections.get(resource, [])
            self._answer(
                200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            self.server.asked.append((name.removeprefix("do_"), self.path))
        raise AttributeError(name)

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silence."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    listed = json.loads((DRAINS / "budget-one-at-a-time" / "cluster.json").read_text())
    server = Cluster(listed["items"])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "me", "user": {}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "shop"}}
        ],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield server
    server.shutdown()
    server.server_close()
    assert {verb for verb, _ in server.asked} <= {"GET"}, "a plan writes nothing"


def test_a_live_plan(cluster: Cluster, capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "-o", "json", "--timeout", "5m"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["source"]["kind"] == "direct" and plan["source"]["context"] == "here"
    assert plan["verdict"] == "slow" and plan["notEvaluated"] == []


def test_what_may_not_be_listed_is_not_evaluated(cluster: Cluster, capsys: Capture) -> None:
    cluster.forbidden = {"poddisruptionbudgets", "leases"}
    cluster.absent = {"validatingadmissionpolicies"}
    assert main(["drain-plan", "a1", "-o", "json"]) == 0
    told = capsys.readouterr()
    plan = json.loads(told.out)
    assert plan["verdict"] == "unknown"
    assert [n["kind"] for n in plan["notEvaluated"]] == ["Lease", "PodDisruptionBudget"]
    assert "PodDisruptionBudget cannot be read" in told.err


def test_nodes_that_may_not_be_listed_are_an_error(cluster: Cluster, capsys: Capture) -> None:
    cluster.forbidden = {"nodes"}
    assert main(["drain-plan", "a1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: nodes: ")


def test_live_budgets_are_those_of_the_context_s_namespace(
    cluster: Cluster, capsys: Capture
) -> None:
    assert main(["budgets", "-o", "name", "-A"]) == 0
    assert main(["budgets", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []
    assert main(["budgets", "-n", "default", "-o", "json"]) == 0
    (budget,) = json.loads(capsys.readouterr().out)["items"]
    assert budget["name"] == "web" and budget["owners"] == ["Deployment/web"]


def test_now_is_for_dumps(cluster: Cluster, capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "--now", "2026-01-01T00:00:00Z"]) == 2
    assert not cluster.asked
