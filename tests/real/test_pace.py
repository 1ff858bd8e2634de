"""A zone lost to a real kube-controller-manager at its default pace, twenty requests a second of
each client, against the simulation: the first and the last write of each kind.

Which write of one moment comes first is chance, so that only the ends of each kind are held, within
three seconds or 5 % of the time passed. NODELIFE_OUTAGE=200x30 plays 200 nodes of 30 pods, which
takes twenty minutes; here it is less.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.settings import NEWEST
from kubectl_nodelife.sim.scenario import parse_scenario
from tests.real.recording import record
from tests.real.unplanned import node, pod
from tests.simulating import simulate_scenario

Json = dict[str, Any]
NODES, PODS = map(int, os.environ.get("NODELIFE_OUTAGE", "60x10").split("x"))
WRITES = {"SetNodeCondition", "MarkPodNotReady", "AddTaint", "SetPodCondition", "DeletePod"}
SILENT_AT_S, GRACE_S, SECONDS = 10.5, 16, 5
UNREACHABLE = "node.kubernetes.io/unreachable"


def scenario() -> Json:
    """Zone a is lost; in zone b three nodes live on."""
    lost = [node(f"a{number:03}", "a") for number in range(NODES)]
    lives = [node(f"b{number}", "b") for number in range(3)]
    tolerates = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    pods = [
        pod(
            f"p-{each['metadata']['name']}-{number:02}",
            each["metadata"]["name"],
            [{**tolerates, "tolerationSeconds": SECONDS}],
        )
        for each in lost
        for number in range(PODS)
    ]
    requests = NODES * 8 + PODS * NODES * 3  # the Events of pods come after them
    lasts_s = SILENT_AT_S + GRACE_S + max(NODES, requests / 20) * 1.1 + 60
    names = [each["metadata"]["name"] for each in lost]
    return {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "zone-at-default-pace"},
        "spec": {
            "profile": NEWEST,
            "flags": {
                "node-monitor-period": "5s",
                "node-monitor-grace-period": f"{GRACE_S}s",
                "node-eviction-rate": "1",
            },
            "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
            "duration": f"{lasts_s:.0f}s",
            "kubelet": {
                "leaseRenewInterval": "5s",
                "leaseRenewPhase": "300ms",
                "nodeStatusReportInterval": "300s",
                "podStartDuration": "1s",
                "podStopDuration": "1s",
            },
            "objects": [*lost, *lives, *pods],
            "events": [
                {"at": f"{SILENT_AT_S}s", "kubelet": {"nodes": names, "heartbeats": "stop"}}
            ],
        },
    }


def ends(records: Iterable[Json]) -> dict[tuple[str, ...], tuple[float, float, int]]:
    """Of each kind of write when the first and the last one came, and how many; a pod's deletion
    that is repeated counts once.
    """
    times: dict[tuple[str, ...], list[float]] = {}
    deleted = set()
    for told in records:
        name, detail = told["object"]["name"], told.get("detail", {})
        if told["action"] not in WRITES or told.get("error") or told["at"] < SILENT_AT_S:
            continue
        if told["controller"] not in ("node-lifecycle", "taint-eviction"):
            continue
        if told["action"] == "DeletePod" and name in deleted:
            continue
        deleted.update([name] if told["action"] == "DeletePod" else [])
        what = "" if told["action"] == "MarkPodNotReady" else detail.get("type", "")
        kind = (told["controller"], told["action"], str(detail.get("effect", what)))
        times.setdefault(kind, []).append(told["at"])
    return {kind: (min(at), max(at), len(at)) for kind, at in times.items()}


@pytest.mark.timeout(3600)
def test_each_kind_of_write_begins_and_ends_when_it_is_told(tmp_path: Path) -> None:
    made = scenario()
    recording = record(made)
    (tmp_path / "scenario.json").write_text(json.dumps(made))
    (tmp_path / "recorded.json").write_text(json.dumps(recording))
    story = simulate_scenario(parse_scenario(json.dumps(made).encode(), "scenario.json"))
    simulated = msgspec.json.decode(msgspec.json.encode(story.document()))
    real, ours = ends(recording["records"]), ends(simulated["records"])
    assert real.keys() == ours.keys()
    for kind, (first, last, count) in real.items():
        for a, b in ((first, ours[kind][0]), (last, ours[kind][1])):
            assert abs(a - b) <= max(3.0, 0.05 * a), (kind, real[kind], ours[kind])
        assert abs(count - ours[kind][2]) <= max(2, count // 50), (kind, real[kind], ours[kind])
    deletions = real["taint-eviction", "DeletePod", ""]
    assert deletions[2] == NODES * PODS
    assert deletions[1] - deletions[0] > NODES * PODS * 3 / 20 * 0.8  # the pace shows
