"""A DaemonSet whose pods are made and deleted over and over: recorded on a real v1.37.2 with its
default pace, and said by every verb that plays or looks at it.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.cli import main
from tests.objects import write_list
from tests.wild.reports import FOLDER, Report

Capture = pytest.CaptureFixture[str]
HERE = FOLDER / "node-19-surge-hot-loop"
SET = "daemonset/default/agent"
UNLIMITED = ("--set", "kube-api-qps=-1")


@pytest.fixture
def report(capsys: Capture) -> Report:
    return Report(HERE.name, capsys)


def right() -> Any:
    return json.loads((HERE / "right.json").read_text())["simulate"]


def made_in_it(records: Any, begin: float) -> list[float]:
    return [r["at"] for r in records if r["action"] == "CreatePod" and r["at"] >= begin]


def test_the_play_goes_on_at_the_pace_of_the_clients(report: Report) -> None:
    document = report.simulate("loop.yaml", "-o", "json").document
    span = right()["createdOnA1BetweenSeconds"]
    at = made_in_it(document["records"], span["from"])
    assert len(at) == int(span["pods"].split()[0])
    assert sum(instant <= span["from"] + 0.12 for instant in at) == 9
    assert max(at) <= span["to"]
    assert {round(b - a, 3) for a, b in pairwise(at[9:])} == {0.2}
    (loop,) = document["final"]["loops"]
    assert (loop["name"], loop["node"], loop["everySeconds"]) == ("agent", "a1", 0.2)


def test_without_a_limit_it_goes_on_at_the_pace_of_watches(report: Report) -> None:
    document = report.simulate("loop.yaml", "-o", "json", *UNLIMITED).document
    at = made_in_it(document["records"], 61.0)
    assert 500 < len(at) < 1000  # 673 of the real controllers, whose watches lag 1 to 4 ms
    assert max(at) <= 65.2


def test_simulate_says_who_how_often_and_until_when(report: Report) -> None:
    (said,) = [x for x in report.simulate("loop.yaml").out.splitlines() if "in a circle" in x]
    assert f"{SET} goes in a circle on a1: 28 pods made by daemonset" in said
    assert "deleted by taint-eviction, from 1m1s to 1m5.1s, one each 200ms" in said
    assert "ended by node-lifecycle, which removes node.kubernetes.io/not-ready:NoExecute" in said


def test_a_circle_with_a_pause_is_said_too(capsys: Capture) -> None:
    """Pods that tolerate a taint for ten seconds, on the only node there is (kubernetes#117520):
    each time the next ones are Ready two seconds after they were bound."""
    short = Report("node-04-short-toleration-loop", capsys)
    words = ("what-if", "taint", "node", "solo", "hello:NoExecute")
    told = short.ask(*words, "-o", "json", dump="before.json").document
    (workload,) = told["workloads"]
    assert workload["evicted"] == 720 and workload["outage"] == "full"
    assert 720 < workload["atZeroSeconds"] < 750
    (loop,) = told["repeats"]
    assert (loop["atOnce"], loop["everySeconds"]) == (2, 10.0)
    shown = short.ask(*words, dump="before.json").out
    assert "nginx-6b is down, 12m in all, 360 times" in shown and "2s each" in shown
    assert "to the end" not in shown.splitlines()[0] and "never" not in shown
    circle = "replicaset/default/nginx-6b goes in a circle on solo: 20 pods made anew and deleted"
    assert f"{circle} by taint-eviction" in short.simulate("loop.yaml").out
    assert "from 15s to 1m55s, 2 each 10s: the 10 s for which" in short.simulate("loop.yaml").out


def cluster(folder: Path, tainted: bool, surge: bool = True) -> str:
    """A dump of the cluster, perhaps with the taint of the loop."""
    objects = yaml.safe_load((HERE / "loop.yaml").read_text())["spec"]["objects"]
    if tainted:
        objects[0]["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}
    if not surge:
        del objects[2]["spec"]["updateStrategy"]
    other = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": []}}
    objects.append({"apiVersion": "v1", "kind": "Pod", **other})
    return write_list(folder / "cluster.json", objects)


def asked(capsys: Capture, *words: str) -> str:
    main([*words, "--now", "2026-09-20T12:00:00Z"])
    return capsys.readouterr().out


def test_what_if_says_it(tmp_path: Path, capsys: Capture) -> None:
    lasts = ("--until", "20s", "-f", cluster(tmp_path, False))
    said = asked(capsys, "what-if", "taint", "node", "a1", "k=v:NoExecute", *lasts)
    assert f"{SET} goes in a circle on a1: " in said and "one each 200ms" in said


def test_daemonset_says_it_of_the_present(tmp_path: Path, capsys: Capture) -> None:
    said = asked(capsys, "daemonset", "-A", "-f", cluster(tmp_path, True))
    assert "its pod on a1 is made by daemonset and deleted by taint-eviction over and over" in said
    assert (
        "about 5 times a second at 20 requests a second" in said and "until k=v:NoExecute" in said
    )
    assert "over and over" not in asked(capsys, "daemonset", "-A", "-f", cluster(tmp_path, False))


@pytest.mark.parametrize("surge", [True, False])
def test_audit_says_it_beforehand(tmp_path: Path, capsys: Capture, surge: bool) -> None:
    said = asked(capsys, "audit", "-A", "-f", cluster(tmp_path, False, surge))
    assert f"Beforehand: {SET}: on a node with " in said
    often = "about 5 times a second" if surge else "each time the one before is gone"
    assert often in said and "leave tolerationSeconds out" in said


def test_an_audit_says_nothing_of_a_set_that_tolerates_for_ever(
    tmp_path: Path, capsys: Capture
) -> None:
    file = Path(cluster(tmp_path, False))
    file.write_text(file.read_text().replace(', "tolerationSeconds": 0', ""))
    assert "Beforehand" not in asked(capsys, "audit", "-A", "-f", str(file))
