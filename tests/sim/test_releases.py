"""What the cluster around the controllers does in the release before a change, and from it on."""

from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kubelet.containers import generated
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.sim.scenario import parse_scenario
from tests.conformance.api_budgets import eviction, queued
from tests.sim.documents import found
from tests.simulating import simulate_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def told(name: str, release: str) -> Any:
    text = (SCENARIOS / f"{name}-v1.37.yaml").read_text().replace("v1.37", release)
    return simulate_scenario(parse_scenario(text.encode(), name))


@pytest.mark.parametrize(("release", "at"), [("v1.37", 542), ("v1.38", 182)])
def test_a_volume_of_a_deleted_node(release: str, at: int) -> None:
    """Six minutes after pod-gc has deleted the pod, or as soon as its successor starts."""
    records = found(told("detach-when-node-gone", release), "SetPodCondition", type="Ready")
    (running,) = [r for r in records if r.detail["status"] == "True"]
    assert round(running.at) == at


@pytest.mark.parametrize(("release", "node"), [("v1.37", "a"), ("v1.38", "")])
def test_a_spread_constraint_with_an_empty_selector(release: str, node: str) -> None:
    (made,) = found(told("empty-selector-spread", release), "CreatePod")
    assert made.detail["node"] == node


def pod(app: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "default", "labels": {"app": app}}}


def budget(name: str, app: str, **status: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    meta = {"name": name, "namespace": "default"}
    return {"metadata": meta, "spec": {"minAvailable": 1, "selector": selector}, "status": status}


@pytest.mark.parametrize(
    ("release", "keys", "events"),
    [
        (
            "v1.37",
            ["default/b"],
            ['Pod "default"/"p" matches multiple PodDisruptionBudgets.  Chose "b" arbitrarily.'],
        ),
        (
            "v1.38",
            ["default/a", "default/b", "default/c"],
            [
                'Pod "default"/"p" matches multiple PodDisruptionBudgets ["b" "c"]. '
                "Overlapping PDBs are unsupported for eviction."
            ],
        ),
    ],
)
def test_budgets_that_a_change_of_labels_concerns(
    release: str, keys: list[str], events: list[str]
) -> None:
    budgets = [budget("a", "old"), budget("b", "new"), budget("c", "new")]
    step = {"op": "podChanged", "old": pod("old"), "new": pod("new")}
    expect = {"queued": keys, "events": events}
    queued({"given": {"budgets": budgets}, "profile": release, "steps": [step], "expect": expect})


@pytest.mark.parametrize(
    ("release", "causes"),
    [
        ("v1.36", []),
        (
            "v1.37",
            [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget a does not allow evicting pods currently: "
                    "pdb disruptions allowed is negative",
                }
            ],
        ),
    ],
)
def test_a_budget_that_allows_less_than_nothing(release: str, causes: list[Any]) -> None:
    running = {**pod("x"), "status": {"phase": "Running"}}
    given = {"pod": running, "budgets": [budget("a", "x", disruptionsAllowed=-1)]}
    expect = {"code": 403, "causes": causes, "deleted": False}
    eviction({"given": given, "profile": release, "steps": [{"op": "evict"}], "expect": expect})


def status(phase: str, exit_code: int) -> PodStatus:
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=exit_code))
    ready_to_start = PodCondition(type="PodReadyToStartContainers", status="True")
    return PodStatus(
        phase=phase,
        reason="Evicted",
        message="m",
        conditions=(ready_to_start,),
        container_statuses=(ContainerStatus(name="c", state=state),),
    )


@pytest.mark.parametrize(
    ("release", "phase", "exit_code", "ends"),
    [
        ("v1.37", "Failed", 0, ("Succeeded", "")),
        ("v1.38", "Failed", 0, ("Failed", "Evicted")),
        ("v1.37", "Failed", 1, ("Failed", "Evicted")),
        ("v1.37", "Running", 0, ("Succeeded", "")),
        ("v1.38", "Succeeded", 1, ("Failed", "")),
    ],
)
def test_the_phase_that_the_kubelet_set(
    release: str, phase: str, exit_code: int, ends: tuple[str, str]
) -> None:
    spec, rules = PodSpec(containers=(Container(name="c"),)), rules_for(parse_profile(release))
    made = generated(spec, status(phase, exit_code), rules, is_terminal=True)
    assert (made.phase, made.reason) == ends


@pytest.mark.parametrize(
    ("release", "why"),
    [("v1.36", ("", "")), ("v1.37", ("PodSandboxNotReady", "pod sandbox is not ready"))],
)
def test_a_pod_whose_sandbox_is_stopped(release: str, why: tuple[str, str]) -> None:
    spec, rules = PodSpec(containers=(Container(name="c"),)), rules_for(parse_profile(release))
    made = generated(spec, status("Running", 0), rules, is_terminal=True)
    condition = made.condition("PodReadyToStartContainers")
    assert condition is not None and condition.status == "False"
    assert (condition.reason, condition.message) == why
