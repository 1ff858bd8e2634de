"""What the sources of v1.11.0 say of DaemonSets where descriptions of it differ."""

import json
from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.placement import Placement, PlacementDecision
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.workload import DaemonSet
from tests.sim.documents import document, node
from tests.sim.test_daemon_pods import agents

TAINTED = node("n1", taints=[{"key": "gpu", "effect": "NoExecute"}])


def judged(one: dict[str, Any], release: int, **gates: bool) -> PlacementDecision:
    """The three answers of nodeShouldRunDaemonPod for a set that asks for 100m."""
    subject, on = decode("DaemonSet", agents("100m")), decode("Node", one)
    assert isinstance(subject, DaemonSet) and isinstance(on, Node)
    template = PodTemplate(subject, behaviour_of((1, release), gates))
    return Placement(template).judge(on, lambda name: ())


def test_with_the_gate_v1_11_looks_at_selector_and_affinity_alone() -> None:
    """`Predicates`: "If ScheduleDaemonSetPods is enabled, only check nodeSelector and
    nodeAffinity"; toleration and taint came into it with 1.12."""
    on = judged(TAINTED, 11, ScheduleDaemonSetPods=True)
    assert (on.want_to_run, on.should_run, on.should_continue_running) == (True, True, True)
    for release, gate in ((11, False), (12, True), (16, True)):
        off = judged(TAINTED, release, ScheduleDaemonSetPods=gate)
        assert (off.want_to_run, off.should_continue_running) == (False, False), release


@pytest.mark.parametrize("pressure", ["MemoryPressure", "DiskPressure"])
def test_pressure_never_keeps_a_daemon_pod_off_in_v1_11(pressure: str) -> None:
    """The switch knows ErrNodeUnderMemoryPressure and ErrNodeUnderDiskPressure; neither
    PodToleratesNodeTaints nor GeneralPredicates ever gives them."""
    pressed = node("n1")
    pressed["status"]["conditions"].append({"type": pressure, "status": "True"})
    pressed["status"]["allocatable"] = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    verdict = judged(pressed, 11)
    assert verdict.should_run and not verdict.failed_placements


def test_a_node_without_room_is_wanted_and_not_scheduled() -> None:
    full = node("n1")
    full["status"]["allocatable"] = {"cpu": "50m", "memory": "1Gi", "pods": "10"}
    verdict = judged(full, 11)
    assert (verdict.want_to_run, verdict.should_run, verdict.should_continue_running) == (
        True,
        False,
        True,
    )
    assert verdict.failed_placements


def test_a_rollback_to_of_extensions_v1beta1_means_nothing_to_a_daemon_set() -> None:
    """DaemonSetSpec of extensions/v1beta1 has no such field in v1.11; Deployments have."""
    asked = agents("100m")
    asked["spec"]["rollbackTo"] = {"revision": 1}
    assert decode("DaemonSet", asked) == decode("DaemonSet", agents("100m"))


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_only_restart_policy_always_is_taken(policy: str) -> None:
    from kubectl_nodelife.sim.scenario import parse_scenario

    refused = agents("100m")
    refused["spec"]["template"]["spec"]["restartPolicy"] = policy
    words = (
        f'spec.template.spec.restartPolicy: Unsupported value: "{policy}":'
        ' supported values: "Always"'
    )
    with pytest.raises(BadInput) as error:
        parse_scenario(json.dumps(document(objects=[refused])).encode(), "test")
    assert words in str(error.value)
