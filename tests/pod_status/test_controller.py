"""The status managers of simulated kubelets: pods marked not ready, and who sets them right."""

import json
from typing import Any

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.run import Run, run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario

LOST_S, BACK_S = 30, 120


def outage(profile: str, controllers: list[str], back_s: int = BACK_S) -> Run:
    """One of three nodes is silent for a while; it has two pods."""
    spec: dict[str, Any] = {
        "profile": profile,
        "controllers": controllers,
        "duration": "4m",
        "generate": {"zones": 1, "nodesPerZone": 3, "podsPerNode": 2, "daemonSets": 0},
        "events": [
            {"at": f"{LOST_S}s", "kubelet": {"nodes": ["a1"], "heartbeats": "stop"}},
            {"at": f"{back_s}s", "kubelet": {"nodes": ["a1"], "heartbeats": "start"}},
        ],
    }
    document = {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "outage"},
        "spec": spec,
    }
    scenario = parse_scenario(json.dumps(document).encode(), "test")
    setting = assemble(scenario)
    settings = make_settings(setting.profile, scenario.flags)
    return run(setting, make_controllers(settings, scenario.controllers))


def unready(done: Run) -> int:
    """How many pods are not ready at the end."""
    return sum(not pod.ready() for pod in done.cluster.pods.values())


def mended(done: Run) -> list[float]:
    """When a kubelet set a pod's Ready right."""
    records = done.timeline.records(done.failures)
    return [r.at for r in records if r.controller == "pod-status" and r.detail["type"] == "Ready"]


LIFECYCLE = ["node-lifecycle", "taint-eviction"]


def test_a_kubelet_that_is_back_sets_its_pods_right_at_its_next_batch() -> None:
    done = outage("v1.36", [*LIFECYCLE, "pod-status"])
    assert mended(done) == [BACK_S + 10, BACK_S + 10]
    assert unready(done) == 0


def test_without_status_managers_pods_stay_as_they_were_marked() -> None:
    done = outage("v1.36", LIFECYCLE)
    assert mended(done) == []
    assert unready(done) == 2


@pytest.mark.parametrize(
    "profile, stuck",
    [
        pytest.param("v1.16", 2, id="v1.16-is-blind-once-its-pods-were-listed"),
        pytest.param("v1.17", 2, id="v1.17-still-is"),
        pytest.param("v1.18", 0, id="v1.18-is-mended"),
        pytest.param("v1.14", 0, id="v1.14-never-had-it"),
        pytest.param("v1.11", 0, id="v1.11-never-had-it"),
    ],
)
def test_the_famous_bug(profile: str, stuck: int) -> None:
    assert unready(outage(profile, [*LIFECYCLE, "pod-status"])) == stuck


def test_a_dead_kubelet_sets_nothing_right() -> None:
    done = outage("v1.36", [*LIFECYCLE, "pod-status"], back_s=239)
    assert mended(done) == []


def test_the_record_names_what_led_to_it() -> None:
    done = outage("v1.36", [*LIFECYCLE, "pod-status"])
    records = done.timeline.records(done.failures)
    mend = next(r for r in records if r.controller == "pod-status")
    assert mend.cause is not None
    assert records[mend.cause].action == "MarkPodNotReady"
