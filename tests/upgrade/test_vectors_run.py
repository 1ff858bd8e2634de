"""The decision vectors of upgrades, of whole runs: soaking, failures, steps, leaders, abort.

A number is the vector's row. Unless a test says otherwise: a pool of one zone, growth over, the
defaults of the policy, phase Running, no gate, each node Ready and drainable.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, CordonOwner, encode_mark
from kubectl_nodelife.engine.actions import FailWithoutMark, NodeMarkPatch
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import (
    DONE,
    DRAINING,
    FAILED,
    NEW,
    PROVING,
    SETTLING,
    SOAKING,
    TARGET,
    WORKING,
    one,
    stand,
    words,
)


def soaking(**policy: Any) -> Stand:
    s = Stand(nodes=["x"], **policy)
    s.add_nodes("x", "y")
    s.add_daemon_set("cni")
    for name in ("x", "y"):
        s.add_pod(f"cni-{name}", name, owner="cni", kind="DaemonSet")
    s.mark("x", SOAKING)
    s.settle()
    assert s.state("x") == SOAKING
    return s


def test_46_a_break_while_soaking_where_a_cordon_would_break_the_floor() -> None:
    s = soaking(minAvailable=2, maxUnavailable=2)
    s.add_pod("cni-x", "x", owner="cni", kind="DaemonSet", ready="False")
    s.settle()
    assert s.state("x") == FAILED and not s.node("x").spec.unschedulable
    assert "left in service" in s.mark_of("x").reason


def test_46_a_break_of_ready_while_soaking_is_cordoned() -> None:
    s = soaking(minAvailable=2, maxUnavailable=2)
    s.ready("x", "False")
    s.settle()
    assert s.state("x") == FAILED and s.node("x").spec.unschedulable


def test_47_a_failure_within_the_allowance_ends_the_step_and_growth_begins_anew() -> None:
    s = Stand(grown=False, maxUnavailable=8, maxFailures=1)
    s.add_nodes(*[f"n{i}" for i in range(10)])
    s.write(step=replace(s.document.step, pool="", k=1, window=2))
    s.mark("n0", DONE)
    s.mark("n1", SETTLING)
    s.edit("n1", allocatable={"cpu": "1", "memory": "16Gi"})
    s.run(16 * 60, every=30)
    assert s.state("n1") == FAILED and s.document.phase is RunPhase.RUNNING
    assert s.claimed() == []
    s.run(5 * 60, every=30)
    assert (s.document.step.k, s.document.step.window) == (0, 1)
    assert len(s.claimed()) == 1


def test_48_more_failures_than_tolerated_pause_and_what_is_in_work_goes_on() -> None:
    policy = {"maxUnavailable": 9, "maxFailures": 1, "drainTimeout": "20m", **TARGET}
    s = Stand(**policy, work={"mode": "wait"})
    s.add_nodes(*[f"n{i}" for i in range(10)])
    s.add_pod("p", "n2")
    s.verdicts["n2"] = DrainVerdict("slow")
    s.mark("n0", FAILED)
    s.write(failed=("n0",))
    s.mark("n1", SETTLING)
    s.mark("n2", DRAINING)
    s.mark("n3", WORKING)
    s.mark("n4", SETTLING)
    for name in ("n3", "n4"):
        s.edit(name, node_info=NEW)
    for i in range(5, 10):
        s.label(f"n{i}", **{"nodelife.dev/upgrade-hold": ""})
    s.run(17 * 60, every=30)
    assert s.state("n1") == FAILED and s.document.phase is RunPhase.PAUSED
    assert s.state("n2") == DRAINING
    assert s.state("n3") == DONE and s.state("n4") == DONE
    s.run(4 * 60, every=30)
    assert s.state("n2") == "" and "n2" not in s.document.given_back


def test_51_a_leader_that_sees_a_greater_epoch_ends_and_writes_nothing() -> None:
    s = one(SETTLING)
    s.lead(4)
    s.settle()
    assert s.mark_of("x").epoch == 4
    s.mark("x", SETTLING, epoch=5)
    s.lease_transitions(5)
    assert s.step() == []
    assert "epoch 5" in s.controller.superseded
    assert s.step() == []


def test_52_abort_with_a_node_in_each_state() -> None:
    s = Stand(maxUnavailable=9)
    s.add_nodes(*[f"n{i}" for i in range(9)])
    s.add_pod("p", "n0")
    for i in (3, 5, 6, 7, 8):
        s.label(f"n{i}", **{"nodelife.dev/upgrade-hold": ""})
    s.verdicts["n0"] = DrainVerdict("slow", evictable=())
    s.mark("n2", SETTLING)
    s.mark("n4", FAILED)
    s.mark("n0", DRAINING)
    s.mark("n1", DRAINING)
    s.scheduler = False
    s.run(62)
    assert s.state("n1") == WORKING and s.state("n2") == PROVING
    s.run(70)
    assert "proof" in s.gates
    s.request("abort")
    s.settle()
    assert s.document.phase is RunPhase.ABORTING
    assert s.state("n0") == "" and s.state("n1") == WORKING and s.state("n4") == FAILED
    s.run(320)
    assert s.state("n2") == FAILED, "in an abort no clock stands"
    s.ends("n1", 0)
    s.scheduler = True
    s.run(300)
    assert s.document.phase is RunPhase.ABORTED
    assert s.state("n1") == "" and s.state("n4") == FAILED and s.state("n2") == FAILED


def test_53_pods_without_a_replacement_close_the_gate_displaced() -> None:
    s = Stand(maxUnavailable=9, nodes=["x", "w", "q"])
    s.add_nodes("x", "y", "z", "w", "q")
    s.add_pod("late", "q")
    for i in range(40):
        s.add_pod(f"p{i}", "x", owner=f"rs{i}")
    s.verdicts["w"] = s.verdicts["q"] = DrainVerdict("unknown")
    s.settle()
    assert words(s.did).count("EvictPod") == 40
    for i in range(34):
        s.add_pod(f"q{i}", "y", owner=f"rs{i}", born_ns=s.now_ns)
    s.run(9 * 60, every=30)
    assert "displaced" not in s.gates
    s.verdicts["w"] = DrainVerdict("ready")
    s.run(2 * 60, every=30)
    assert "6 of 40" in s.gates["displaced"] and "15 %" in s.gates["displaced"]
    s.ends("x", 0)
    s.run(4 * 60, every=30)
    assert s.state("x") == DONE


def test_53_pods_that_served_nobody_are_missed_by_nobody() -> None:
    s = Stand(maxUnavailable=9, nodes=["x"])
    s.add_nodes("x", "y", "z")
    for i in range(4):
        s.add_pod(f"crashing{i}", "x", owner=f"rs{i}", ready="False")
    s.add_pod("worker", "x", owner="job")
    s.settle()
    assert words(s.did).count("EvictPod") == 5
    s.add_pod("worker-2", "y", owner="job", born_ns=s.now_ns, phase="Succeeded", ready="False")
    s.run(12 * 60, every=30)
    assert "displaced" not in s.gates, "what took the worker's place has run"


def test_a_cluster_of_control_plane_nodes_alone_is_upgraded_too() -> None:
    labels = {"node-role.kubernetes.io/control-plane": ""}
    three = Stand(includeControlPlane=True, selector="", nodes=["x", "y", "z"])
    three.add_nodes("x", "y", "z", labels=labels)
    three.settle()
    assert len(three.claimed()) == 1
    two = Stand(includeControlPlane=True, nodes=["x", "y"])
    two.add_nodes("x", "y", labels=labels)
    two.run(60)
    assert not two.claimed() and two.document.phase == "Finished"
    assert two.skipped["x"] == "of 2 control-plane nodes none is taken out, of 3 one"


def test_54_what_a_dry_run_decides_is_what_a_run_decides() -> None:
    s = stand(2)
    s.settle()
    assert all(isinstance(a, NodeMarkPatch) for a in s.did if a.word == "ClaimNode")
    assert s.claimed()


def test_prove_leaves_no_mark_and_takes_each_node_once() -> None:
    s = Stand(nodes=["x", "y"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    s.write(proof_only=True)
    s.add_pod("p", "x")
    s.run(120)
    assert s.document.phase is RunPhase.FINISHED and not s.document.failed
    assert sorted(s.claimed()) == ["x", "y"] and "EvictPod" not in words(s.did)
    assert s.document.given_back == {"x": "proven", "y": "proven"}
    for name in ("x", "y"):
        node = s.node(name)
        assert not node.spec.taints and not node.metadata.annotations
        assert s.went_through(name) == [SETTLING, PROVING]


def test_prove_takes_its_nodes_of_all_pools_and_zones_at_once() -> None:
    s = Stand(grown=False, nodes=["x", "y"], work={"mode": "nothing"})
    s.add_nodes("x", zone="a")
    s.add_nodes("y", zone="b", labels={"pool": "blue"})
    s.write(proof_only=True)
    s.settle()
    assert s.state("x") == s.state("y") == SETTLING
    s.run(90)
    assert s.document.phase is RunPhase.FINISHED and len(s.document.given_back) == 2


def test_prove_takes_no_node_while_a_gate_holds() -> None:
    s = Stand(nodes=["x"], work={"mode": "nothing"}, gate="false")
    s.add_nodes("x", "y", "z")
    s.write(proof_only=True)
    s.gate_command, s.gate_runs = "it failed", 1
    s.run(60)
    assert s.state("x") == "" and not s.claimed() and s.document.phase is RunPhase.RUNNING
    assert s.controller.holds["x"] == ("command", "it failed")


def test_prove_that_fails_leaves_no_mark_and_is_told_by_the_document() -> None:
    s = Stand(nodes=["x"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    s.write(proof_only=True)
    s.canary_stays = True
    s.run(200)
    assert s.document.phase is RunPhase.FINISHED and s.document.failed == ("x",)
    node = s.node("x")
    assert not node.spec.taints and not node.metadata.annotations and not node.spec.unschedulable


def failed_before(s: Stand, cordon: CordonOwner = CordonOwner.OURS) -> None:
    """x is Failed since a run that is over."""
    shield = ("karpenter.sh/do-not-disrupt",)
    s.mark("x", FAILED, cordon=cordon, reason="did not come back", shield=shield)
    node = s.node("x")
    old = replace(s.mark_of("x"), run="r0")
    notes = {ANNOTATION: encode_mark(old), shield[0]: "true"}
    s.put(replace(node, metadata=replace(node.metadata, annotations=notes)))
    s.write(proof_only=True)


def test_prove_takes_a_node_that_a_run_before_has_left_failed_and_cordoned() -> None:
    s = Stand(nodes=["x"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    failed_before(s)
    s.run(120)
    node = s.node("x")
    assert s.document.given_back == {"x": "proven"} and not node.metadata.annotations
    assert node.spec.unschedulable, "a person uncordons it"
    assert not node.has_taint("nodelife.dev/unproven", "NoSchedule")


def test_prove_that_fails_leaves_the_mark_of_the_run_before() -> None:
    s = Stand(nodes=["x"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    failed_before(s)
    s.canary_stays = True
    s.run(200)
    mark = s.mark_of("x")
    assert s.document.failed == ("x",) and s.node("x").spec.unschedulable
    assert (mark.run, mark.state, mark.cordon) == ("r0", FAILED, "ours")
    assert mark.shield == ("karpenter.sh/do-not-disrupt",)
    assert s.node("x").metadata.annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_prove_says_which_node_cannot_be_proven_and_why() -> None:
    s = Stand(nodes=["x"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    failed_before(s, CordonOwner.THEIRS)
    s.run(30)
    (told,) = [a for a in s.did if isinstance(a, FailWithoutMark)]
    assert (told.node, told.because) == ("x", "not proven: cordoned by others")
    assert s.mark_of("x").run == "r0"


def test_a_patch_refused_by_a_webhook_is_tried_each_minute() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.refuse["ClaimNode"] = (403, "denied by a webhook")
    s.run(125)
    assert len(s.claimed()) == 3


def test_a_failed_node_that_is_down_is_told_with_what_holds_its_zone() -> None:
    s = Stand(maxUnavailable=9, zones=0)
    s.add_nodes("x", "y", "z")
    s.mark("x", FAILED)
    s.ready("x", "False")
    s.run(60)
    (held, *_) = {why for by, why in s.controller.holds.values() if by == "zone"}
    assert "x Failed and not Ready: repair it and `upgrade resume --retry all`" in held


def test_a_blind_leader_writes_nothing_and_its_clocks_stand() -> None:
    s = one(SETTLING)
    s.run(30)
    s.blind = "the watch of pods is broken"
    before = len(s.did)
    s.run(20 * 60, every=30)
    assert words(s.did[before:]) == ["SetGate"] and s.state("x") == SETTLING
    s.blind = ""
    s.run(59)
    assert s.state("x") == SETTLING, "the gate lifts after a minute"
    s.run(120)
    assert PROVING in s.went_through("x")


def test_a_new_leader_writes_nothing_in_its_first_grace_period() -> None:
    s = Stand(cold=True, nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.run(45)
    assert words(s.did) == ["SetGate"]
    s.run(10)
    assert s.claimed() == ["x"]


@pytest.mark.parametrize(
    ("verb", "phase"), [("abort", RunPhase.ABORTED), ("pause", RunPhase.PAUSED)]
)
def test_an_order_to_end_waits_for_nothing_while_nothing_is_claimed(
    verb: str, phase: RunPhase
) -> None:
    """Not for the first grace period; but for what is in flight, and for a broken watch."""
    s = Stand(cold=True, nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.request(verb)
    s.settle()
    assert s.document.phase is phase
    assert s.controller.is_over == (verb == "abort") and s.claimed() == []
    busy, unseen = (Stand(cold=True, nodes=["x"], maxUnavailable=5) for _ in range(2))
    unseen.blind = "the watch of pods is broken"
    for other in (busy, unseen):
        other.add_nodes("x", "y", "z")
        other.request(verb)
    busy.mark("x", SETTLING)
    for other in (busy, unseen):
        other.settle()
        assert other.document.phase is RunPhase.RUNNING


def test_an_annotation_edited_by_another_hand_is_left_alone() -> None:
    s = one(SETTLING)
    s.mark("x", SETTLING, reason="edited")
    s.run(200)
    assert (
        s.went_through("x") == [] and "edited by another client" in s.controller.memory.foreign["x"]
    )


def test_retry_assume_done_and_skip_do_what_a_person_asks() -> None:
    s = Stand(maxUnavailable=9, nodes=["a", "b", "c"])
    s.add_nodes("a", "b", "c", "d", "e", "f", "g")
    for name in ("a", "b", "c"):
        s.mark(name, FAILED)
    s.add_pod("p", "a")
    s.verdicts["a"] = DrainVerdict("slow")
    s.write(failed=("a", "b", "c"), phase=RunPhase.PAUSED)
    s.settle()
    s.request("resume", retry=("a",), assume_done=("b",), skip=("c",))
    s.settle()
    assert s.document.phase is RunPhase.RUNNING and not s.document.failed
    assert s.state("a") == DRAINING and s.state("b") == SETTLING and s.state("c") == ""
    assert not s.node("c").spec.unschedulable and "skipped" in s.document.given_back["c"]
    assert not s.document.asked


def test_a_write_of_ours_that_shows_late_is_no_edit() -> None:
    s = one(SETTLING)
    s.run(61)
    assert s.state("x") == PROVING
    s.lead(2)
    s.settle()
    s.mark("x", PROVING, epoch=1, reason="of the leader before")
    s.settle()
    assert not s.controller.memory.foreign and s.mark_of("x").epoch == 2


def test_an_annotation_that_no_program_of_ours_wrote_is_left_alone() -> None:
    s = one(SETTLING)
    node = s.node("x")
    text = '{"run":"r1","state":"Settling","since":"yesterday"}'
    s.put(replace(node, metadata=replace(node.metadata, annotations={ANNOTATION: text})))
    s.lead(2)
    s.run(60)
    assert "cannot be read" in s.skipped["x"] and not s.went_through("x")


def test_a_cordoned_node_is_not_proven_and_one_that_is_not_ready_is_waited_for() -> None:
    s = Stand(nodes=["x", "y"], work={"mode": "nothing"})
    s.add_nodes("x", "y", "z")
    s.edit("x", spec={"unschedulable": True})
    s.ready("y", "False")
    s.write(proof_only=True)
    s.run(60)
    assert s.document.failed == ("x",) and s.state("y") == SETTLING
    s.ready("y")
    s.run(120)
    assert s.document.phase is RunPhase.FINISHED and s.document.given_back == {"y": "proven"}
    assert s.node("x").spec.unschedulable
