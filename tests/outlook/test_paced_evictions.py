"""Live: when the last pod of a node goes, and that a pod is not overdue while its controller's
client is still at it. The arithmetic is held against a real manager's recording.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.pace import Pace
from kubectl_nodelife.kube.times import SECOND_NS
from tests.objects import UNREACHABLE, condition, lease, node, pod, taint, toleration, write_list

Capture = pytest.CaptureFixture[str]
RECORDING = Path(__file__).parent.parent / "pace" / "taint-by-hand" / "timeline.json"
READY_AT, TAINTED_AT = "2026-09-20T11:50:00Z", "2026-09-20T11:55:05Z"
PODS = 30


def test_deletions_come_as_recorded() -> None:
    """110 pods that do not tolerate a taint put on their node at 5 s."""
    told = json.loads(RECORDING.read_bytes())["records"]
    real = sorted(r["at"] for r in told if r["action"] == "DeletePod")
    ends_ns = Pace(20, 30).deletions_ns([(5 * SECOND_NS, 3)] * len(real))
    ours = sorted(end_ns / SECOND_NS for end_ns in ends_ns)
    assert len(ours) == len(real) == 110
    assert max(abs(a - b) for a, b in zip(ours, real, strict=True)) < 1


def test_a_faster_client_is_sooner_done_and_an_idle_one_too() -> None:
    turns = [(0, 3)] * 50
    slow = Pace(20, 30).deletions_ns(turns)
    assert max(Pace(100, 150).deletions_ns(turns)) < max(slow) / 4
    assert max(Pace(20, 30).deletions_ns(turns, idle=False)) - max(slow) == 1.5 * SECOND_NS
    assert Pace(20, 30).deletions_ns([(0, 1), (60 * SECOND_NS, 3)]) == [0, 60 * SECOND_NS]


def test_of_many_thousands_the_last_one_goes_as_if_each_had_been_reckoned() -> None:
    many = [(node * SECOND_NS, 3) for node in range(140) for _ in range(30)]
    rough, exact = Pace(20, 30).deletions_ns(many), Pace(20, 30).deletions_ns(many[:3000])
    assert max(rough[:3000]) == pytest.approx(max(exact), rel=0.03)
    assert rough == sorted(rough)


def waiting(number: int, marked: bool) -> dict[str, Any]:
    """A pod of the lost node; the eviction of one that is marked has begun."""
    because = {"reason": "DeletionByTaintManager", "changed": "2026-09-20T12:00:07Z"}
    return pod(
        f"p{number:02}",
        "a1",
        namespace="d",
        ready=False,
        since=READY_AT,
        conditions=[condition("DisruptionTarget", **because)] if marked else [],
        deleted="2026-09-20T12:00:38Z" if marked and number < 5 else None,
        tolerations=[toleration(UNREACHABLE, seconds=300)],
    )


def lost(name: str) -> dict[str, Any]:
    """A node that is Unknown, and tainted for it."""
    taints = [taint(UNREACHABLE, why, added=TAINTED_AT) for why in ("NoExecute", "NoSchedule")]
    return node(name, "Unknown", reason="NodeStatusUnknown", since=READY_AT, taints=taints)


def cluster(folder: Path, marked: int = 0) -> str:
    """A lost node whose pods' time ends at 12:00:05; some are marked already."""
    pods = [waiting(number, number < marked) for number in range(PODS)]
    objects = [lost("a1"), node("b1", since=READY_AT), lease("b1", "2026-09-20T11:59:59Z"), *pods]
    return write_list(folder / "cluster.json", objects)


def asked(capsys: Capture, now: str, *words: str) -> str:
    capsys.readouterr()
    main([*words, "--now", f"2026-09-20T{now}Z"])
    return capsys.readouterr().out


def test_it_is_said_when_the_last_pod_goes(tmp_path: Path, capsys: Capture) -> None:
    dump = cluster(tmp_path)
    leave = (
        "its 30 pods leave between 12:00:06 and 12:00:08 (20 requests a second; not seen: at 100"
    )
    assert leave in asked(capsys, "12:00:00", "explain", "node", "a1", "-f", dump)
    seen = asked(capsys, "12:00:00", "status", "-o", "json", "-f", dump)
    (lost, _) = json.loads(seen)["nodes"]
    assert leave in lost["verdict"]["because"]
    assert lost["pods"]["nextEvictionSeconds"] == pytest.approx(6.65, abs=0.5)
    assert lost["pods"]["lastEvictionSeconds"] == pytest.approx(8.2, abs=0.5)


def test_a_flag_that_was_seen_is_no_range(tmp_path: Path, capsys: Capture) -> None:
    at_ten = ("--set", "kube-api-qps=10", "-f", cluster(tmp_path))
    said = asked(capsys, "12:00:00", "explain", "node", "a1", *at_ten)
    assert "(10 requests a second)" in said
    unlimited = ("--set", "kube-api-qps=-1", "-f", cluster(tmp_path))
    assert "requests a second" not in asked(capsys, "12:00:00", "explain", "node", "a1", *unlimited)


def test_a_late_pod_waits_while_its_controller_is_at_work(tmp_path: Path, capsys: Capture) -> None:
    dump = cluster(tmp_path, marked=20)
    for verb in (("status", "-o", "wide"), ("explain", "node", "a1"), ("explain", "pod", "p25")):
        namespace = ("-n", "d") if "pod" in verb else ()
        said = asked(capsys, "12:00:17", *verb, *namespace, "-f", dump)
        assert "verdue" not in said and "leave between 12:00:17 and" in said
    later = asked(capsys, "12:01:00", "explain", "node", "a1", "-f", dump)
    assert "overdue since 2026-09-20T12:00:05Z" in later


def test_without_any_write_of_the_controller_it_is_late(tmp_path: Path, capsys: Capture) -> None:
    said = asked(capsys, "12:00:17", "explain", "node", "a1", "-f", cluster(tmp_path))
    assert "overdue since 2026-09-20T12:00:05Z" in said


def outage(folder: Path) -> str:
    """Thirty nodes of twenty pods are silent since 11:58:55; a pass has written to ten of them."""
    objects: list[Any] = []
    for number in range(30):
        name = f"a{number:02}"
        ready = ("Unknown", "NodeStatusUnknown") if number < 10 else ("True",)
        since = "2026-09-20T11:59:45Z" if number < 10 else "2026-09-19T00:00:00Z"
        objects += [node(name, *ready, since=since), lease(name, "2026-09-20T11:58:55Z")]
        for other in range(20):
            made = waiting(other, marked=False)
            made["metadata"].update(name=f"p-{name}-{other}", uid=f"{name}-{other}")
            made["spec"]["nodeName"] = name
            objects.append(made)
    return write_list(folder / "outage.json", objects)


def test_a_node_is_not_overdue_while_the_pass_may_still_come_to_it(
    tmp_path: Path, capsys: Capture
) -> None:
    dump = outage(tmp_path)
    seen = asked(capsys, "12:00:00", "status", "-o", "json", "-f", dump)
    verdicts = {n["name"]: n["verdict"] for n in json.loads(seen)["nodes"]}
    assert verdicts["a29"]["state"] == "silent"
    assert verdicts["a29"]["next"]["action"] == "SetNodeCondition Ready=Unknown"
    later = asked(capsys, "12:02:00", "status", "-o", "json", "-f", dump)
    verdicts = {n["name"]: n["verdict"] for n in json.loads(later)["nodes"]}
    assert verdicts["a29"]["state"] == "overdue"
    unlimited = ("--set", "kube-api-qps=-1", "-f", dump)
    seen = asked(capsys, "12:00:00", "status", "-o", "json", *unlimited)
    verdicts = {n["name"]: n["verdict"] for n in json.loads(seen)["nodes"]}
    assert verdicts["a29"]["state"] == "overdue"


def brake_comes(capsys: Capture, dump: str, *words: str) -> tuple[float, float]:
    """Between when and when the zone of silent nodes stops, in seconds."""
    told = json.loads(asked(capsys, "12:00:00", "status", "-o", "json", "-f", dump, *words))
    (zone,) = (zone for zone in told["zones"] if "foretold" in zone)
    step = zone["foretold"][-1]
    return step["earliestSeconds"], step["latestSeconds"]


def test_the_brake_comes_when_the_pass_has_marked_all_pods(tmp_path: Path, capsys: Capture) -> None:
    """Ten nodes of thirty pods: 300 marks and as many other requests take a quarter of a minute."""
    names = [f"a{number}" for number in range(10)]
    renewed = {**dict.fromkeys(names, "11:59:25"), "b1": "11:59:59"}
    leases = [lease(name, f"2026-09-20T{time}Z") for name, time in renewed.items()]
    pods = [waiting(number, marked=False) for number in range(300)]
    for number, each in enumerate(pods):
        each["spec"]["nodeName"] = names[number % 10]
        each["status"]["conditions"][0]["status"] = "True"
    objects = [*(node(name, since=READY_AT) for name in renewed), *leases]
    for each in objects[: len(names)]:
        each["metadata"]["labels"] = {"topology.kubernetes.io/zone": "a"}
    spans = {}
    for word, there in (("alone", []), ("with pods", pods)):
        items = [*objects, *there]
        file = write_list(tmp_path / "cluster.json", items)
        spans[word] = brake_comes(capsys, file)
    at_20 = brake_comes(capsys, file, "--set", "kube-api-qps=20")
    assert spans["alone"][1] + 12 < spans["with pods"][1] < spans["alone"][1] + 25
    assert spans["with pods"][0] < spans["alone"][0] + 5, "at 100 requests a second"
    assert at_20[1] == pytest.approx(spans["with pods"][1], abs=0.1)
    assert at_20[0] > spans["with pods"][0] + 8, "the flag was seen"
