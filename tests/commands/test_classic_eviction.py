"""`status` and `explain` of a v1.16 set up to evict without taints.

The clocks are those of `processNoTaintBaseEviction`: a node that is False counts from its
transition, one that is Unknown from its last sign of life; tolerations do not count.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.objects import lease, node, pod, toleration, workload, write_list

NOW = "2026-11-22T12:10:00Z"
WITHOUT_TAINTS = ("--profile", "v1.16", "--set", "feature-gates=TaintBasedEvictions=false")


def at(minutes: int, seconds: int = 0) -> str:
    """An instant before `NOW`, which is minute 10."""
    return f"2026-11-22T12:{minutes:02}:{seconds:02}Z"


def web(name: str, on: str, **more: Any) -> dict[str, Any]:
    """A pod that tolerates everything for ever."""
    return pod(name, on, namespace="shop", tolerations=[toleration(effect="")], **more)


DAEMON_SET = workload("DaemonSet", "logs", namespace="shop")


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Six nodes: two well, one that says it is not ready, three whose kubelets are silent."""
    well = [node(f"well-{n}", heartbeat=at(9, 55), since=at(0)) for n in range(1, 5)]
    of_logs = {"app": "logs"}
    objects = [
        *well,
        *(lease(n["metadata"]["name"], at(9, 55)) for n in well),
        node("reports-false", "False", heartbeat=at(9, 58), since=at(7)),
        lease("reports-false", at(9, 58)),
        node("silent", "Unknown", heartbeat=at(5), since=at(6, 42)),
        lease("silent", at(6)),
        node("evicted", "Unknown", heartbeat=at(0), since=at(1)),
        lease("evicted", at(0)),
        DAEMON_SET,
        web("web-0", "silent"),
        web("logs-0", "silent", labels=of_logs),
        web("web-1", "reports-false"),
        web("web-2", "well-1"),
        web("logs-2", "evicted", labels=of_logs, status={"reason": "NodeLost"}),
    ]
    return write_list(tmp_path / "dump.json", objects)


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What the verb prints as JSON."""
    assert main([*words, "--now", NOW, *WITHOUT_TAINTS, "-o", "json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_status_tells_pod_eviction_timeout_and_no_taint(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    told = document(capsys, "status", "-f", dump)
    nodes = {n["name"]: n for n in told["nodes"]}
    # Unknown: from the last sign of life at 12:06:00, not from the transition at 12:06:42.
    silent = nodes["silent"]["verdict"]
    assert silent["next"] == {
        "action": "DeletePod shop/web-0",
        "inSeconds": 62.5,  # the next monitor pass queues it, 5 s later at most
        "earliestSeconds": 60,
        "latestSeconds": 65,
    }
    assert "pod-eviction-timeout 5m0s, counted since its last sign of life" in silent["because"]
    assert nodes["silent"]["pods"]["nextEvictionSeconds"] == 62.5
    # False: from the transition at 12:07:00, whatever it posted since.
    reports = nodes["reports-false"]["verdict"]
    assert (reports["next"]["action"], reports["next"]["earliestSeconds"]) == (
        "DeletePod shop/web-1",
        120,
    )
    assert "counted since Ready turned False" in reports["because"]
    # The pods' reason NodeLost shows that this node's turn has come already.
    gone = nodes["evicted"]["verdict"]
    assert gone["next"] is None and "its pods were evicted" in gone["because"]
    assert not any("taint" in n["verdict"]["because"] for n in told["nodes"])


def test_with_taints_the_same_dump_is_told_of_taints(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    assert main(["status", "-f", dump, "--now", NOW, "--profile", "v1.16", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    silent = next(n for n in told["nodes"] if n["name"] == "silent")
    assert silent["verdict"]["next"]["action"].startswith("AddTaint")


def test_explain_adds_up_the_timeout_the_pass_and_the_token(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    answers = document(capsys, "explain", "node", "silent", "-f", dump)["answers"]
    when = next(a for a in answers if "terms" in a)
    assert [t["what"] for t in when["terms"]] == [
        "pod-eviction-timeout left",
        "until a monitor pass queues the node",
        "waiting for a token",
    ]
    assert when["total"] == {"lowSeconds": 60, "highSeconds": 75}
    assert "tolerations are ignored" in when["sentences"][0]
    fates = {s.split()[0]: s for a in answers for s in a["sentences"] if s.startswith("shop/")}
    assert "a DaemonSet selects it" in fates["shop/logs-0"]
    assert "whatever it tolerates" in fates["shop/web-0"]


def test_explain_of_a_pod_on_a_ready_node_counts_from_its_last_sign_of_life(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    answers = document(capsys, "explain", "pod", "web-2", "-n", "shop", "-f", dump)["answers"]
    when = next(a for a in answers if "terms" in a)
    assert when["question"] == "When would it be evicted if its node were lost?"
    assert when["terms"][0]["lowSeconds"] == 295  # of 300 s, and the lease is 5 s old
    assert "pod-eviction-timeout 5m0s (default of v1.16)" in when["terms"][0]["origin"]


def test_without_a_taint_manager_a_taint_evicts_nobody(
    capsys: pytest.CaptureFixture[str], dump: str, tmp_path: Path
) -> None:
    made = json.loads(Path(dump).read_text())
    tainted = next(o for o in made["items"] if o["metadata"]["name"] == "well-1")
    tainted["spec"] = {"taints": [{"key": "mine", "effect": "NoExecute"}]}
    for item in made["items"]:
        if item["kind"] == "Pod":
            item["spec"]["tolerations"] = []
    Path(dump).write_text(json.dumps(made))
    off = ("--set", "enable-taint-manager=false")
    answers = document(capsys, "explain", "pod", "web-2", "-n", "shop", "-f", dump, *off)["answers"]
    said = " ".join(s for a in answers for s in a["sentences"])
    assert "on which no controller acts: enable-taint-manager=false" in said
