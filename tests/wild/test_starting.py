"""Reports about pods that are bound and do not start: volumes elsewhere, and loops."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.objects import write_list
from tests.wild.reports import FOLDER, Report, first_lines

Capture = pytest.CaptureFixture[str]
VOLUME = "node-17-volume-of-a-lost-node"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def test_a_pod_that_waits_for_a_volume_says_so(capsys: Capture) -> None:
    told = Report(VOLUME, capsys).ask("explain", "pod", "wp-1-b", dump="multi-attach.json")
    assert "waits for the volume of claim wp, which is attached to n1" in first_lines(told)
    assert "FailedAttachVolume: Multi-Attach error" in told.out


@pytest.mark.parametrize(
    "act, at", [(f"taint node n1 {OUT_OF_SERVICE}", "40s"), ("delete node n1", "7m20s")]
)
def test_a_repair_says_when_the_workloads_are_back(capsys: Capture, act: str, at: str) -> None:
    """The pod that was bound before waits for its volume, and not for its own age."""
    report = Report(VOLUME, capsys)
    told = report.ask("what-if", *act.split(), dump="multi-attach.json")
    assert f"2 workloads are up at the end, the last from {at} on" in first_lines(told)
    assert "down before, and left out" not in told.out


def test_a_volume_is_free_once_the_old_pod_has_ended(capsys: Capture) -> None:
    """Its grace period is 30 s: a plan of the drain and the same drain as a question agree."""
    report = Report(VOLUME, capsys)
    plan = report.ask("drain-plan", "n1", "-o", "json", dump="dump.json").document
    told = report.ask("what-if", "drain", "n1", "-o", "json", dump="dump.json").document
    down = {w["name"]: w["atZeroSeconds"] for w in told["workloads"]}
    planned = {w["name"]: w["seconds"] for w in plan["workloads"]}
    assert planned.keys() == down.keys() == {"wp-1", "pg"}
    for name, seconds in planned.items():
        assert 30 < seconds < 40 and abs(seconds - down[name]) < 1


def starting(tmp_path: Path, minutes: int) -> str:
    """The replacement alone, as its kubelet says nothing else of it for so long."""
    items = json.loads((FOLDER / VOLUME / "multi-attach.json").read_text())["items"]
    names = {"n2", "n3", "wp-1-b"}
    kept: list[dict[str, Any]] = [o for o in items if o["metadata"]["name"] in names]
    (pod,) = (o for o in kept if o["kind"] == "Pod")
    since = f"2026-09-20T11:{60 - minutes:02}:00Z"
    pod["metadata"]["creationTimestamp"] = since
    for condition in pod["status"]["conditions"]:
        condition["lastTransitionTime"] = since
        if condition["type"] == "Ready":
            condition["message"] = "containers with unready status: [app]"
    return write_list(tmp_path / "dump.json", kept)


@pytest.mark.parametrize("minutes, said", [(56, True), (5, False)])
def test_a_pod_that_does_not_start_is_no_silence(
    tmp_path: Path, capsys: Capture, minutes: int, said: bool
) -> None:
    """Nor is it Ready at once in a play, when nothing shows that it ever will be."""
    dump, report = starting(tmp_path, minutes), Report("", capsys)
    found = report.ask("audit", "-A", "-o", "json", dump=dump).document["findings"]
    assert [f["class"] for f in found] == ["not-starting"] * said
    played = report.simulate(dump, "--until", "10m", "-o", "json").document["records"]
    ready = [r for r in played if r["action"] == "SetPodCondition"]
    assert bool(ready) == (not said)


def test_a_surging_set_that_loops_is_played_at_the_clients_pace(capsys: Capture) -> None:
    """29 on a real 1.37.2, nine of them within 0.12 s; until the taint goes with the next pass."""
    told = Report("node-19-surge-hot-loop", capsys).simulate("loop.yaml", "-o", "json")
    assert told.code == 0
    made = [
        r["at"]
        for r in told.document["records"]
        if r["action"] == "CreatePod" and r["detail"]["node"] == "a1"
    ]
    loop = [at for at in made if 61.0 <= at <= 65.2]
    assert abs(len(loop) - 29) <= 1 and sum(at <= loop[0] + 0.2 for at in loop) >= 8
