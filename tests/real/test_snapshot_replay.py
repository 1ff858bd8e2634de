"""`snapshot` and `replay` on a real cluster: a node is lost and comes back, one is drained."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.kubelets import Kubelets
from tests.snapshot.test_sandbox import without_time

Capture = pytest.CaptureFixture[str]

FLAGS = ("--node-monitor-period=500ms", "--node-monitor-grace-period=10s")
SETTINGS = ("--set=node-monitor-period=500ms", "--set=node-monitor-grace-period=10s")
FORCE = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment() -> dict[str, Any]:
    tolerated = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
    spec = {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{**tolerated, "effect": "NoExecute", "tolerationSeconds": 2}],
        "containers": [
            {
                "name": "c",
                "image": "registry.example/web:1",
                "env": [{"name": "PASSWORD", "value": "s3cr3t-env"}],
                "args": ["--token=s3cr3t-arg"],
            }
        ],
    }
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    spec = {"replicas": 4, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Four pods on two nodes; n2 is lost until its pods are deleted; n1 is drained at last."""
    with (
        control_plane(controller_manager=FLAGS, scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        api = plane.api
        for name in ("n1", "n2", "n3"):
            kubelets.add_node(name)
        api.create(DEPLOYMENTS, deployment())

        def pods() -> str:
            return plane.kubectl("get", "pods,nodes,events", "-o", "wide")

        def running() -> bool:
            """True if four pods run, besides those that are being deleted."""
            there = [p for p in api.get(PODS)["items"] if "deletionTimestamp" not in p["metadata"]]
            return [p["status"].get("phase") for p in there] == ["Running"] * 4

        until(running, pods)
        (lost,) = {p["spec"]["nodeName"] for p in api.get(PODS)["items"][:1]}
        kubelets.stop(lost)

        def deleted() -> bool:
            on = [p for p in api.get(PODS)["items"] if p["spec"].get("nodeName") == lost]
            return all("deletionTimestamp" in p["metadata"] for p in on)

        until(deleted, pods)
        until(running, pods)
        plane.lost = lost  # type: ignore[attr-defined]
        yield plane


@pytest.fixture(autouse=True)
def home(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)


def said(capsys: Capture, *words: str) -> Any:
    """The document of a verb."""
    assert main([*words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_snapshot_answers_as_the_cluster(plane: ControlPlane, capsys: Capture) -> None:
    assert main(["snapshot", "save", "s.json.gz"]) == 0
    assert main(["snapshot", "save", "s.json"]) == 0
    questions = (
        ("status", *SETTINGS),
        ("audit", "-A", *SETTINGS),
        ("budgets", "-A"),
        ("daemonset", "-A"),
        ("drain-plan", "n3", *FORCE),
        ("explain", "node", lost_node(plane), *SETTINGS),
    )
    capsys.readouterr()
    live = {words[0]: without_time(said(capsys, *words)) for words in questions}
    for file in ("s.json.gz", "s.json"):
        kept = {w[0]: without_time(said(capsys, *w, "-f", file)) for w in questions}
        assert live == kept
    content = Path("s.json").read_text()
    assert "s3cr3t" not in content
    assert len([i for i in json.loads(content)["items"] if i["kind"] == "Node"]) == 3


def lost_node(plane: ControlPlane) -> str:
    found: str = plane.lost  # type: ignore[attr-defined]
    return found


def test_the_replay_says_who_did_what(plane: ControlPlane, capsys: Capture) -> None:
    lost = lost_node(plane)
    drained = next(name for name in ("n1", "n2", "n3") if name != lost)
    plane.kubectl("drain", drained, *FORCE, "--timeout=60s")
    plane.kubectl("taint", "nodes", drained, "maintenance=now:NoExecute")
    items = said(capsys, "replay")["items"]
    evicted = [i for i in items if i["action"] == "TaintManagerEviction"]
    assert evicted and {i["actor"]["name"] for i in evicted} == {"taint-eviction"}
    led = [items[i["cause"]] for i in evicted if i["cause"] is not None]
    assert lost in {i["object"]["name"] for i in led}
    (cordon,) = [i for i in items if i["action"] == "Cordon"]
    assert cordon["object"] == {"kind": "Node", "name": drained}
    assert cordon["actor"] == {"kind": "user", "name": "kubectl (a user)"}
    (taints,) = [i for i in items if i["action"] == "SetTaints"]
    assert taints["actor"] == {"kind": "user", "name": "kubectl-taint (a user)"}
    silent = [i for i in items if i["action"] == "NodeNotReady" and i["object"]["name"] == lost]
    assert {i["actor"]["name"] for i in silent} == {"node-lifecycle"}
    assert main(["replay", "node", lost, "-o", "html"]) == 0
    assert lost in capsys.readouterr().out


def test_nothing_was_written_by_us(plane: ControlPlane) -> None:
    writers = {entry.get("userAgent", "") for entry in plane.audit()}
    assert "tests" in writers
    assert not any("nodelife" in writer for writer in writers)


def test_explain_and_replay_tell_of_our_own_drain_and_why(
    plane: ControlPlane, capsys: Capture
) -> None:
    """By managedFields and our journal. Comes last, for it writes."""
    last = "n3" if lost_node(plane) != "n3" else "n2"
    words = ("--yes", "--timeout=60s")
    assert main(["drain", last, *FORCE, *words]) == 0, capsys.readouterr()
    capsys.readouterr()
    answers = said(capsys, "explain", "node", last, *SETTINGS)["answers"]
    (who,) = (a["sentences"] for a in answers if a["question"].startswith("Who cordoned"))
    by = "by kubectl nodelife drain (a user)"
    assert any(s.startswith("Cordoned") and f"{by}: nothing undoes it" in s for s in who), who
    items = [i for i in said(capsys, "replay")["items"] if i["object"]["name"] == last]
    drains = [i for i in items if i["action"] == "Drain"]
    assert [i["actor"]["name"] for i in drains] == ["kubectl nodelife drain (a user)"]
