"""Writes that are refused: a conflict costs nothing but another look, a refusal a minute.

A kubelet's status update changes a node's version at any time, so that every PATCH may meet 409.
"""

import pytest

from kubectl_nodelife.controllers.upgrade.marks import CordonOwner
from kubectl_nodelife.engine.actions import NodeMarkPatch
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import (
    DONE,
    DRAINING,
    FAILED,
    PROVING,
    SETTLING,
    SOAKING,
    WORKING,
    one,
    words,
    working,
)

CONFLICT = (409, "the object has been modified")
HELD = (425, "the ConfigMap kube-system/nodelife-stop is there")


class Once(dict[str, tuple[int, str]]):
    """Answers that are met once."""

    def __getitem__(self, word: str) -> tuple[int, str]:
        return self.pop(word)


def test_a_conflict_at_the_next_try_forgets_nothing_of_this_one() -> None:
    s = working()
    s.ends("x", 1)
    s.refuse = Once(SetUpgradeState=CONFLICT)
    s.settle()
    assert s.state("x") == WORKING and s.mark_of("x").try_ == 2
    assert words(s.did).count("StartWork") == 2


def test_a_conflict_at_the_failure_keeps_its_reason() -> None:
    s = one(SETTLING, policy={"retries": 0})
    s.ready("x", "False")
    s.refuse = Once(FailNode=CONFLICT)
    s.run(15 * 60 + 5)
    assert not s.refuse and s.state("x") == FAILED
    assert "did not come back in time" in s.mark_of("x").reason


@pytest.mark.parametrize("changes_leader", [False, True])
def test_a_node_in_service_is_not_cordoned_below_a_floor_by_a_second_look(
    changes_leader: bool,
) -> None:
    s = Stand(nodes=["x"], maxUnavailable=1, minAvailable=2)
    s.add_nodes("x", "y")
    s.add_daemon_set()
    s.add_pod("d", "x", owner="cni", kind="DaemonSet", ready="False")
    s.mark("x", SOAKING)
    if changes_leader:
        s.write(failed=("x",))
        s.lead(2)
    else:
        s.refuse = Once(FailNode=CONFLICT)
    s.run(60)
    failed = [a for a in s.did if isinstance(a, NodeMarkPatch) and a.word == "FailNode"]
    assert failed and all(a.unschedulable is None for a in failed)
    assert "a cordon would break a floor" in failed[-1].because


def test_a_newcomer_with_pods_is_not_cordoned_by_the_next_leader_either() -> None:
    s = one(SETTLING, cordon=CordonOwner.NONE)
    s.write(failed=("x",))
    s.lead(2)
    s.run(60)
    assert s.went_through("x")[-1] == FAILED
    assert not [a for a in s.did if isinstance(a, NodeMarkPatch) and a.unschedulable]


def test_a_webhook_that_does_not_answer_is_asked_each_minute() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.refuse["ClaimNode"] = (500, "failed calling webhook")
    s.run(125)
    assert len(s.claimed()) == 3
    assert "failed calling webhook" in s.holds["x"][1] or "failed calling webhook" in str(s.holds)


def test_what_a_guard_held_is_decided_anew_soon_and_is_no_refusal_of_the_cluster() -> None:
    s = one(SETTLING)
    s.refuse["CreateCanary"] = HELD
    s.run(90)
    assert s.state("x") == PROVING and "proof" not in s.gates, "the cluster has refused nothing"
    del s.refuse["CreateCanary"]
    s.run(6)
    assert s.cache.pods
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.refuse["ClaimNode"] = HELD
    s.run(20)
    del s.refuse["ClaimNode"]
    s.run(10)
    assert s.state("x"), "and not after a minute only"


def test_no_write_on_a_refused_node_meanwhile_and_others_go_on() -> None:
    s = Stand(nodes=["x", "y"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.mark("x", DRAINING)
    s.mark("y", DRAINING)
    s.settle()
    s.refuse["SetUpgradeState"] = (403, "denied")
    s.ends("x", 0)
    s.settle()
    del s.refuse["SetUpgradeState"]
    before = len(s.did)
    s.ends("y", 0)
    s.run(30)
    patched = {a.node for a in s.did[before:] if isinstance(a, NodeMarkPatch)}
    assert patched == {"y"} and s.holds["x"] == ("refused", "denied")
    s.run(40)
    assert s.state("x") == SETTLING


def test_a_canary_whose_deletion_is_refused_fails_no_node() -> None:
    s = one(SETTLING)
    s.refuse["DeleteCanary"] = (403, "denied by a policy")
    s.run(400)
    assert s.state("x") == PROVING and "denied by a policy" in s.gates["proof"]
    del s.refuse["DeleteCanary"]
    s.run(130)
    assert s.went_through("x")[-1] == DONE
