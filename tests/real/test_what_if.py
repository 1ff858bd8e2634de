"""`what-if lose node` asked of a steady cluster, then the node is lost, and real controllers act.

The answer's instants count from the lost node's last renewal, which comes up to an interval after
the question: that is where the two clocks are laid on each other. When monitor passes begin nobody
outside knows, so that what is held is the answer's own range, and the 0.6 s by which any two
recordings on a busy machine may differ.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.real.audited import instant, records
from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.kubelets import Kubelets
from tests.real.predictions import BUSY_S

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
PERIOD_S = 3.0
FLAGS = (f"node-monitor-period={PERIOD_S:g}s", "node-monitor-grace-period=14s")
SETTINGS = tuple(f"--set={flag}" for flag in FLAGS)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/default/pods"
WEB = "/apis/apps/v1/namespaces/default/deployments"
NODES = ("n1", "n2", "n3", "n4")
TOLERATES_S = 4
STEADY_S = 15.0


def deployment() -> Json:
    """Three replicas, on three nodes, that leave a lost one after four seconds."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    terms = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in keys]
    labels = {"app": "web"}
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    term = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    spec = {
        "terminationGracePeriodSeconds": 2,
        "tolerations": [{**term, "tolerationSeconds": TOLERATES_S} for term in terms],
        "containers": [{"name": "c", "image": "registry.example/web:1"}],
        "affinity": {"podAntiAffinity": term},
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    }


class Steady:
    """A control plane on which nothing has happened for a while."""

    def __init__(self, plane: ControlPlane, kubelets: Kubelets) -> None:
        self.plane, self.kubelets, self.api = plane, kubelets, plane.api

    def renewed(self, node: str) -> float:
        """The node's last sign of life, its Lease's or its status', seconds since the epoch."""
        conditions = self.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
        posted = max(instant(condition["lastHeartbeatTime"]) for condition in conditions)
        return max(posted, instant(self.api.get(f"{LEASES}/{node}")["spec"]["renewTime"]))

    def ready(self) -> list[Json]:
        """The pods that are Ready and not being deleted."""
        return [
            pod
            for pod in self.api.get(PODS)["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and {"Ready": "True"}.items()
            <= {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}.items()
        ]

    def takes_pods(self) -> bool:
        """True if no node has a taint any more, as those have that were just made."""
        nodes = self.api.get("/api/v1/nodes")["items"]
        return len(nodes) == len(NODES) and not any(node["spec"].get("taints") for node in nodes)

    def until(self, wanted: Callable[[], bool]) -> None:
        """Wait for it."""
        until(wanted, lambda: self.plane.kubectl("get", "pods,nodes", "-o", "wide"))


@pytest.fixture
def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steady]:
    flags = tuple(f"--{flag}" for flag in FLAGS)
    with (
        control_plane(controller_manager=flags, scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        for name in NODES:
            kubelets.add_node(name)
        stand = Steady(plane, kubelets)
        stand.until(stand.takes_pods)  # else all three land on the first node that does
        plane.api.create(WEB, deployment())
        stand.until(lambda: len(stand.ready()) == 3)
        time.sleep(STEADY_S)
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
        monkeypatch.setenv("HOME", str(tmp_path))
        with tempfile.TemporaryDirectory(prefix="nl", dir="/tmp") as short:  # a socket's path
            monkeypatch.setenv("NODELIFE_RUNTIME_DIR", f"{short}/r")
            yield stand


def asked(
    stand: Steady, node: str, capsys: pytest.CaptureFixture[str], *settings: str, act: str = "lose"
) -> tuple[Json, float]:
    """The answer, and the renewal that it began with: one that none has followed meanwhile."""
    while True:
        before = stand.renewed(node)
        words = ["what-if", act, "node", node, *settings, "--until", "5m", "-o", "json"]
        assert main(words) == 0
        answer = json.loads(capsys.readouterr().out)
        if stand.renewed(node) == before:
            return answer, before


def held(node: Json, field: str, real: float) -> None:
    """It happened within the answer's range."""
    told = node["ranges"].get(field, {})
    earliest = told.get("earliestSeconds", node[field])
    latest = told.get("latestSeconds", node[field])
    print(f"{field}: {earliest} to {latest}, really {real:.2f}")
    assert earliest - BUSY_S <= real <= latest + BUSY_S, field


def test_a_node_is_lost_as_was_foretold(steady: Steady, capsys: pytest.CaptureFixture[str]) -> None:
    lost = steady.ready()[0]["spec"]["nodeName"]
    there = {p["metadata"]["name"] for p in steady.ready() if p["spec"]["nodeName"] == lost}
    answer, renewed = asked(steady, lost, capsys, *SETTINGS)
    steady.kubelets.stop(lost)
    time.sleep(1)
    begun = instant(answer["moment"]["time"]) + steady.renewed(lost) - renewed
    steady.until(lambda: len([p for p in steady.ready() if p["spec"]["nodeName"] != lost]) == 3)
    time.sleep(2)

    wrote = records(steady.plane.audit(), begun, 300)
    (node,) = answer["nodes"]
    (web,) = answer["workloads"]

    def at(action: str, name: str, **detail: str) -> float:
        """When the real controllers did it first."""
        return next(
            float(r["at"])
            for r in wrote
            if (r["action"], r["object"]["name"]) == (action, name)
            and detail.items() <= r["detail"].items()
        )

    unknown = at("SetNodeCondition", lost, type="Ready", status="Unknown")
    tainted = at("AddTaint", lost, key="node.kubernetes.io/unreachable", effect="NoExecute")
    gone = [r for r in wrote if r["action"] == "DeletePod"]
    assert (node["name"], node["evicted"]) == (lost, len(there))
    assert {r["object"]["name"] for r in gone} == there
    held(node, "unknownSeconds", unknown)
    held(node, "taintedSeconds", tainted)
    apart = node["firstDeletionSeconds"] - node["taintedSeconds"]
    assert abs(apart - TOLERATES_S) < 0.01
    assert abs(gone[0]["at"] - tainted - apart) <= BUSY_S + 0.2
    assert (web["outage"], web["readyBefore"], web["lowestServing"]) == ("degraded", 3, 2)
    assert len(web["stuck"]) == len(there)  # no kubelet ends them


def test_a_node_that_comes_back_was_called_unknown_within_its_range(
    steady: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = steady.ready()[0]["spec"]["nodeName"]
    answer, renewed = asked(steady, lost, capsys, "--for", "40s", *SETTINGS)
    steady.kubelets.stop(lost)
    time.sleep(1)
    begun = instant(answer["moment"]["time"]) + steady.renewed(lost) - renewed
    steady.until(lambda: is_unknown(steady, lost))
    time.sleep(3)
    steady.kubelets.start(lost)
    (node,) = answer["nodes"]
    wrote = records(steady.plane.audit(), begun, 300)
    of_node = [r for r in wrote if r["object"]["name"] == lost]
    unknown = [r for r in of_node if r["detail"].get("status") == "Unknown"]
    tainted = [r for r in of_node if r["detail"].get("effect") == "NoExecute"]
    held(node, "unknownSeconds", float(unknown[0]["at"]))
    held(node, "taintedSeconds", float(tainted[0]["at"]))


def test_pods_of_a_deleted_node_go_when_pod_gc_may_come(
    steady: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = steady.ready()[0]["spec"]["nodeName"]
    answer, _ = asked(steady, gone, capsys, *SETTINGS, act="delete")
    steady.kubelets.stop(gone)
    steady.api.delete(f"/api/v1/nodes/{gone}")
    deleted = time.time()
    steady.until(
        lambda: all(p["spec"].get("nodeName") != gone for p in steady.api.get(PODS)["items"])
    )
    time.sleep(2)
    (node,) = answer["nodes"]
    wrote = records(steady.plane.audit(), deleted, 300)
    at = [float(r["at"]) for r in wrote if r["action"] == "DeletePod"]
    held(node, "firstDeletionSeconds", min(at))
    held(node, "lastDeletionSeconds", max(at))


def test_a_daemon_that_has_seen_a_pass_foretells_the_next_loss_to_the_pass(
    steady: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = sorted({pod["spec"]["nodeName"] for pod in steady.ready()})[:2]
    program("daemon", "start", *SETTINGS)
    try:
        time.sleep(STEADY_S)
        steady.kubelets.stop(first)
        steady.until(lambda: is_unknown(steady, first))
        time.sleep(5)
        capsys.readouterr()
        answer, renewed = asked(steady, second, capsys)
        steady.kubelets.stop(second)
        time.sleep(1)
        later = steady.renewed(second) - renewed
        steady.until(lambda: is_unknown(steady, second))
        time.sleep(2)
    finally:
        program("daemon", "stop")
    assert answer["source"]["kind"] == "daemon"
    begun = instant(answer["moment"]["time"])
    (told,) = [node["unknownSeconds"] for node in answer["nodes"] if node["name"] == second]
    wrote = records(steady.plane.audit(), begun, 300)
    (real,) = [
        float(r["at"])
        for r in wrote
        if r["action"] == "SetNodeCondition"
        and r["object"]["name"] == second
        and (r["detail"]["type"], r["detail"]["status"]) == ("Ready", "Unknown")
    ]
    passes = round(later / PERIOD_S)  # renewals after the question are noticed so much later
    # a renewal right before a pass may reach the real controllers right after it
    before_pass = (begun + real - renewed - later) % PERIOD_S
    is_close = bool(later) or before_pass <= BUSY_S
    print(f"told {told:.2f}, {later:.2f} s later {told + passes * PERIOD_S:.2f}, really {real:.2f}")
    print(f"the last renewal came {before_pass:.2f} s before a pass")
    assert abs(told + passes * PERIOD_S - real) <= BUSY_S + (PERIOD_S if is_close else 0)


def program(*words: str) -> None:
    """A command in a process of its own, which must succeed: a daemon is started by its like."""
    command = [sys.executable, "-P", "-m", "kubectl_nodelife", *words]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def is_unknown(stand: Steady, node: str) -> bool:
    """True if the node is called Unknown."""
    conditions = stand.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return {"Ready": "Unknown"}.items() <= {c["type"]: c["status"] for c in conditions}.items()
