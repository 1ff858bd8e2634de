"""A leader that dies while a command runs costs the node no try where `--rerun-safe` was given."""

from typing import Any

from kubectl_nodelife.controllers.upgrade.marks import WorkMark
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from tests.upgrade.fault_plan import Plan
from tests.upgrade.simulation import faults_found
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import FAILED, HELD, REBOOTED, SETTLING, TARGET, WORKING, words

SAFE = {"mode": "run", "command": "true", "rerunSafe": True}


def died_with_it(**policy: Any) -> Stand:
    """A second leader, which finds a node at work."""
    s = Stand(nodes=["x"], maxUnavailable=5, retries=0, work=SAFE, **policy)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    s.lead(2)
    return s


def test_without_a_target_it_is_run_again_at_once_as_the_same_try() -> None:
    s = died_with_it()
    s.run(29 * 60, every=30)
    assert words(s.did).count("StartWork") == 1 and s.mark_of("x").try_ == 1
    s.ends("x", 0)
    s.settle()
    assert s.state("x") == SETTLING


def test_with_a_target_it_is_run_again_at_the_deadline_with_the_whole_time_of_a_try() -> None:
    s = died_with_it(**TARGET)
    s.run(29 * 60, every=30)
    assert "StartWork" not in words(s.did)
    s.run(2 * 60, every=30)
    assert words(s.did).count("StartWork") == 1 and s.mark_of("x").try_ == 1
    s.run(27 * 60, every=30)
    assert s.state("x") == WORKING and "StopWork" not in words(s.did)
    s.edit("x", node_info=REBOOTED)
    s.ends("x", 255)
    s.settle()
    assert s.state("x") == SETTLING


def test_a_command_that_was_run_again_and_does_not_end_is_a_failed_try() -> None:
    s = died_with_it(**TARGET)
    s.run(62 * 60, every=30)
    assert words(s.did).count("StartWork") == 1 and s.state("x") == FAILED


def test_a_leader_that_slept_knows_of_the_command_that_it_began() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.settle()
    wake_up(s)
    s.run(60)
    assert s.state("x") == WORKING and words(s.did).count("StartWork") == 1
    s.ends("x", 0)
    s.settle()
    assert s.state("x") == SETTLING


def test_a_leader_that_slept_before_the_deed_begins_the_command_that_it_meant_to() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    while s.state("x") != WORKING:
        s.react()
        s.step()
    assert "StartWork" not in words(s.did)
    wake_up(s)
    s.settle()
    assert s.state("x") == WORKING and words(s.did).count("StartWork") == 1


def test_a_leader_that_slept_does_not_take_another_ones_command_for_its_own() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.settle()
    s.mark("x", WORKING, work=WorkMark(started=format_time(s.now_ns + SECOND_NS)))
    wake_up(s)
    s.settle()
    assert s.state("x") == HELD and s.mark_of("x").reason == "unknown whether it ran"


def wake_up(s: Stand) -> None:
    """The same process leads in another epoch."""
    before = s.controller
    s.lead(s.epoch + 1)
    s.controller.take_over(before)


def test_the_same_try_is_run_again_for_each_leader_that_dies() -> None:
    s = died_with_it()
    for epoch in (3, 4, 5):
        s.settle()
        s.lead(epoch)
    s.settle()
    assert words(s.did).count("StartWork") == 4 and s.mark_of("x").try_ == 1
    assert s.state("x") == WORKING and not s.document.failed


def test_leaders_that_die_at_many_actions_fail_no_node_though_each_has_one_try() -> None:
    plan = Plan(dies_at=(40, 60, 80, 100), policy={"retries": 0})
    assert faults_found(plan) == []
