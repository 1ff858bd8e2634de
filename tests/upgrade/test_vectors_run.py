"""The decision vectors of upgrades, of whole runs: soaking, failures, steps, leaders, abort.

A number is the vector's row. Unless a test says otherwise: a pool of one zone, growth over, the
defaults of the policy, phase Running, no gate, each node Ready and drainable.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.engine.upgrade_actions import NodeMarkPatch
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
    s.wish("abort")
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


def test_54_what_a_dry_run_decides_is_what_a_run_decides() -> None:
    s = stand(2)
    s.settle()
    assert all(isinstance(a, NodeMarkPatch) for a in s.did if type(a).__name__ == "ClaimNode")
    assert s.claimed()
