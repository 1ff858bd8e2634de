"""The decision vectors of upgrades, of a node's return and its proof.

A number is the vector's row. Unless a test says otherwise: a pool of one zone, growth over, the
defaults of the policy, phase Running, no gate, each node Ready and drainable.
"""

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import CordonOwner
from kubectl_nodelife.engine.actions import CreateForNode, FailWithoutMark, NodeMarkPatch
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.times import SECOND_NS
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import CORDON_TAINT
from tests.upgrade.vector_cases import (
    DONE,
    DRAINING,
    FAILED,
    PROVING,
    REBOOTED,
    SETTLING,
    SOAKING,
    TARGET,
    WORKING,
    one,
    words,
    working,
)


def newcomers(s: Stand, *names: str, uid: str = "") -> None:
    for i, name in enumerate(names):
        s.cache.set("Node", ("", name), None)
        born = s.now_ns + i * SECOND_NS
        s.add_nodes(name, uid=uid or f"new-{name}", born_ns=born)


def test_29_the_oldest_of_two_newcomers_of_the_zone_is_taken() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, work={"mode": "replace"})
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    s.settle()
    s.cache.set("Node", ("", "x"), None)
    s.run(30)
    newcomers(s, "a1", "a2")
    s.settle()
    assert s.state("a1") == SETTLING and s.mark_of("a1").for_ == "x"
    assert s.state("a2") == "" and not s.node("a2").spec.unschedulable


def test_29_the_same_name_with_another_uid_is_the_newcomer() -> None:
    s = working()
    s.cache.set("Node", ("", "x"), None)
    s.settle()
    newcomers(s, "x")
    s.settle()
    assert s.state("x") == SETTLING and s.node("x").spec.unschedulable
    assert s.mark_of("x").for_ == "x"


def test_a_node_that_went_and_whose_newcomer_does_not_come_has_failed_and_is_told_so() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, maxFailures=1, work={"mode": "replace"})
    s.add_nodes("x", "y")
    s.settle()
    s.cache.set("Node", ("", "x"), None)
    s.run(31 * 60, every=30)
    assert s.document.failed == ("x",) and s.document.phase == "Finished"
    (told,) = [a for a in s.did if isinstance(a, FailWithoutMark)]
    assert (told.node, told.because) == ("x", "its object went, and no newcomer came in time")


def test_30_a_newcomer_that_runs_pods_is_never_cordoned() -> None:
    s = working()
    s.cache.set("Node", ("", "x"), None)
    s.settle()
    newcomers(s, "x")
    s.add_pod("p", "x")
    s.settle()
    assert s.state("x") == SETTLING and not s.node("x").spec.unschedulable
    s.run(61)
    assert s.state("x") == PROVING or s.state("x") == SOAKING
    assert "OpenForProof" in words(s.did)


def test_31_ready_without_a_renewed_lease_waits() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.silence("x")
    s.mark("x", SETTLING)
    s.run(120)
    assert s.state("x") == SETTLING and s.waits_for("x").startswith("S2")


def test_32_ready_that_breaks_is_counted_anew_and_the_third_break_fails() -> None:
    s = one(SETTLING)
    for breaks in (1, 2, 3):
        s.run(40)
        assert s.state("x") == SETTLING
        s.ready("x", "False")
        s.settle()
        assert s.controller.memory.progress_of("x").breaks == breaks or s.state("x") == FAILED
        s.ready("x")
        s.settle()
    assert s.state("x") == FAILED and "flaps" in s.mark_of("x").reason


def test_33_work_without_effect_waits_for_the_target_and_fails() -> None:
    s = one(SETTLING, policy=TARGET)
    s.run(120)
    assert s.waits_for("x").startswith("S3")
    s.run(14 * 60, every=30)
    assert s.state("x") == FAILED and "no effect" in s.mark_of("x").reason


def test_34_a_new_taint_of_somebody_is_waited_for_by_name() -> None:
    s = one(SETTLING)
    s.edit("x", spec={"taints": (CORDON_TAINT, Taint("readiness.k8s.io/net", "NoSchedule"))})
    s.run(120)
    assert s.waits_for("x").startswith("S6") and "readiness.k8s.io/net" in s.waits_for("x")


def test_35_a_daemon_pod_from_before_the_reboot_is_not_taken() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.add_daemon_set("cni")
    s.add_pod("cni-x", "x", owner="cni", kind="DaemonSet", container="old")
    s.mark("x", DRAINING)
    s.settle()
    s.ends("x", 0)
    s.edit("x", node_info=REBOOTED)
    s.run(120)
    assert s.state("x") == SETTLING and s.waits_for("x").startswith("S7")
    s.add_pod("cni-x", "x", owner="cni", kind="DaemonSet", container="new")
    s.settle()
    assert s.state("x") == PROVING


def test_36_a_gpu_that_is_lost_waits_and_fails() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", allocatable={"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "8"})
    s.mark("x", SETTLING)
    s.edit("x", allocatable={"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "0"})
    s.run(120)
    assert s.waits_for("x").startswith("S9") and "nvidia.com/gpu" in s.waits_for("x")
    s.run(14 * 60, every=30)
    assert s.state("x") == FAILED


def test_37_gate_zone_holds_neither_settling_nor_proving_nor_release() -> None:
    s = Stand(nodes=["x", "n0"], maxUnavailable=4)
    s.add_nodes("x", "n0", "n1", "n2")
    s.mark("x", SETTLING)
    s.mark("n0", SETTLING)
    for name in ("n0", "n1", "n2"):  # two are others': no more than a zone bears
        s.ready(name, "False")
    s.run(200)
    assert "zone" in s.gates and s.went_through("x") == [PROVING, SOAKING, DONE]


def test_37_others_broke_the_zone_so_nothing_fails_and_the_clock_begins_anew() -> None:
    s = one(SETTLING, nodes=5, policy=TARGET)
    for name in ("n0", "n1", "n2"):
        s.ready(name, "False")
    s.run(20 * 60, every=30)
    assert s.state("x") == SETTLING
    for name in ("n0", "n1", "n2"):
        s.ready(name)
    s.run(14 * 60, every=30)
    assert s.state("x") == SETTLING
    s.run(2 * 60, every=30)
    assert s.state("x") == FAILED


def test_38_the_cordons_taint_stays_though_another_node_lost_its_own() -> None:
    s = Stand(nodes=["x", "z"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.lifecycle = False
    s.mark("x", SETTLING)
    s.mark("z", SETTLING)
    s.run(62)
    assert s.state("x") == PROVING
    z = s.node("z")
    taints = tuple(t for t in z.spec.taints if t != CORDON_TAINT)
    s.edit("z", spec={"taints": taints})
    s.run(65)
    assert s.state("x") == FAILED


def test_38_no_node_loses_the_cordons_taint() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.lifecycle = False
    s.mark("x", SETTLING)
    s.run(62 + 65)
    assert s.state("x") == PROVING and "proof" in s.gates
    s.run(600, every=30)
    assert s.state("x") == PROVING and not s.document.failed


def test_39_a_canary_refused_by_quota_closes_the_gate_and_fails_no_node() -> None:
    s = one(SETTLING)
    s.refuse["CreateCanary"] = (403, "exceeded quota: pods=1")
    s.run(600)
    assert s.state("x") == PROVING and "exceeded quota" in s.gates["proof"]
    s.refuse.clear()
    s.run(90)
    assert SOAKING in s.went_through("x") and "proof" not in s.gates


def test_40_a_scheduler_that_does_not_look_closes_the_gate() -> None:
    s = one(SETTLING)
    s.scheduler = False
    s.run(62 + 55)
    assert "proof" not in s.gates
    s.run(600, every=20)
    assert s.state("x") == PROVING and "scheduler" in s.gates["proof"]


def unschedulable(s: Stand, message: str) -> None:
    from kubectl_nodelife.kube.pod import PodCondition

    pod = next(p for p in s.cache.pods.values() if p.name.startswith("nodelife-canary-"))
    condition = PodCondition("PodScheduled", "False", "Unschedulable", message)
    s.put(replace(pod, status=replace(pod.status, conditions=(condition,))))


def test_41_a_canary_that_does_not_fit_its_node_fails_it() -> None:
    s = one(SETTLING)
    s.scheduler = False
    s.run(62)
    unschedulable(s, "0/10 nodes are available: 1 Insufficient memory")
    s.run(240, every=20)
    assert s.state("x") == PROVING and "Insufficient memory" in s.waits_for("x")
    s.run(90, every=20)
    node = s.node("x")
    assert s.state("x") == FAILED and node.spec.unschedulable
    assert not node.has_taint("nodelife.dev/unproven", "NoSchedule")
    assert not [p for p in s.cache.pods.values() if p.name.startswith("nodelife-canary-")]


PULL = "ImagePullBackOff: Back-off pulling image"


def test_42_no_image_though_another_node_passed_fails() -> None:
    s = Stand(nodes=["x", "z"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.mark("z", DONE)
    s.mark("x", SETTLING)
    s.canary_waits = PULL
    s.run(62 + 310)
    assert s.state("x") == FAILED and "ImagePullBackOff" in s.mark_of("x").reason


def test_42_no_image_on_any_node_closes_the_gate_until_another_is_given() -> None:
    s = one(SETTLING)
    s.canary_waits = PULL
    s.run(62 + 600)
    assert s.state("x") == PROVING and "ImagePullBackOff" in s.gates["proof"]
    s.canary_waits = ""
    s.policy = replace(s.policy, canary_image="other")
    s.lead(2)
    s.run(120)
    assert SOAKING in s.went_through("x")


def test_43_a_canary_that_does_not_go_fails_the_node() -> None:
    s = one(SETTLING)
    s.canary_stays = True
    s.run(62 + 10 + 55)
    assert s.state("x") == PROVING
    s.run(20)
    assert s.state("x") == FAILED and "cannot stop pods" in s.mark_of("x").reason


def test_44_a_persons_cordon_stays_after_the_proof() -> None:
    s = one(SETTLING)
    s.canary_stays = True
    s.run(62 + 20)
    assert s.state("x") == PROVING
    s.edit("x", spec={"unschedulable": True})
    s.canary_stays = False
    s.settle()
    node = s.node("x")
    assert s.state("x") == SOAKING and node.spec.unschedulable
    assert not node.has_taint("nodelife.dev/unproven", "NoSchedule")
    s.run(70)
    last = next(a for a in reversed(s.did) if isinstance(a, NodeMarkPatch) and a.to == DONE)
    assert last.because == "cordoned by others" and s.node("x").spec.unschedulable


def test_45_claimed_with_include_cordoned_is_released_cordoned() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, includeCordoned=True, work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    s.edit("x", spec={"unschedulable": True})
    s.settle()
    assert s.mark_of("x").cordon is CordonOwner.THEIRS
    s.run(62)
    canary = next(a for a in s.did if isinstance(a, CreateForNode))
    tolerated = {t["key"] for t in canary.manifest["spec"]["tolerations"]}
    assert "node.kubernetes.io/unschedulable" in tolerated
    s.run(15)
    assert s.state("x") == SOAKING and s.node("x").spec.unschedulable
