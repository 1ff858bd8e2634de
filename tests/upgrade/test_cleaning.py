"""What `upgrade clean` finds on nodes and beside them, and what it does about it."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.leaving import Leftover, left_objects, leftovers
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.node import Node
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import RUN
from tests.upgrade.vector_cases import (
    DONE,
    DRAINING,
    FAILED,
    HELD,
    PROVING,
    SETTLING,
    SOAKING,
    WORKING,
    working,
)


def cleaned(s: Stand, **how: bool) -> tuple[Leftover, Node]:
    """What is found on x, and x as the write leaves it."""
    (left,) = leftovers([s.node("x")], **how)
    after = left.patch.effect(left.node, 0) if left.patch is not None else left.node
    assert isinstance(after, Node)
    return left, after


def marked(state: Any, **fields: Any) -> Stand:
    s = Stand(nodes=["x"])
    s.add_nodes("x")
    s.mark("x", state, **fields)
    return s


def test_a_node_whose_proof_was_given_up_is_left_as_the_run_before_had_left_it() -> None:
    earlier = marks.NodeMark(run="r0", state=FAILED, cordon=marks.CordonOwner.OURS, reason="flaps")
    s = marked(SETTLING, cordon=marks.CordonOwner.THEIRS, earlier=earlier)
    left, after = cleaned(s, proof_only=True)
    assert marks.mark_of(after) == earlier and after.spec.unschedulable and left.stays
    _, after = cleaned(s, proof_only=True, release_failed=True)
    assert marks.mark_of(after) is None and not after.spec.unschedulable


@pytest.mark.parametrize("state", [DRAINING, SOAKING, DONE])
def test_what_is_drained_or_proven_is_given_back(state: Any) -> None:
    left, after = cleaned(marked(state))
    assert not after.spec.unschedulable and marks.mark_of(after) is None and not left.stays


@pytest.mark.parametrize("state", [WORKING, SETTLING, PROVING])
def test_what_is_not_proven_stays_out_of_service_as_failed(state: Any) -> None:
    left, after = cleaned(marked(state))
    mark = marks.mark_of(after)
    assert after.spec.unschedulable and mark is not None and mark.state == FAILED and left.stays
    assert not [taint for taint in after.spec.taints if taint.key.startswith("nodelife.dev")]
    (again,) = leftovers([after])
    assert again.patch is None, "a second clean has nothing to write"
    (released,) = leftovers([after], release_failed=True)
    assert released.patch is not None
    gone = released.patch.effect(after, 0)
    assert isinstance(gone, Node) and not gone.spec.unschedulable and marks.mark_of(gone) is None


@pytest.mark.parametrize("state", [WORKING, SETTLING])
def test_a_cordon_that_a_person_took_off_is_not_put_on_again(state: Any) -> None:
    s = marked(state)
    s.edit("x", spec={"unschedulable": False})
    _, after = cleaned(s)
    mark = marks.mark_of(after)
    assert (
        not after.spec.unschedulable and mark is not None and mark.cordon == marks.CordonOwner.NONE
    )


def test_a_failed_node_is_not_outdated_any_more() -> None:
    s = marked(FAILED)
    s.edit("x", spec={"taints": (*s.node("x").spec.taints, marks.outdated(RUN))})
    left, after = cleaned(s)
    assert marks.outdated(RUN) not in after.spec.taints and left.stays
    assert after.spec.unschedulable and marks.mark_of(after) == s.mark_of("x")


def test_the_cordon_of_a_held_node_that_a_person_opened_and_closed_again_is_his() -> None:
    s = Stand(nodes=["x", "y"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.mark("x", DRAINING)
    s.mark("y", DRAINING)
    s.settle()
    s.edit("x", spec={"unschedulable": False})
    s.settle()
    assert s.state("x") == HELD
    s.edit("x", spec={"unschedulable": True})
    _, after = cleaned(s, release_failed=True)
    assert after.spec.unschedulable, "the person's cordon stays"


def test_the_document_keeps_who_was_left_when_the_run_ended() -> None:
    s = working()
    s.edit("x", spec={"unschedulable": False})
    s.settle()
    assert s.document.phase is RunPhase.FINISHED and s.document.left == ("x",)
    assert s.went_through("x")[-1] == HELD
    assert s.state("x") == "", "it carries neither a cordon of ours nor our taint"


@pytest.mark.parametrize("kind, line", [("Pod", "pod c"), ("Job", "job c")])
def test_what_was_made_for_a_node_is_found_by_label_and_owner(kind: str, line: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "uid-x"}
    meta = {"name": "c", "namespace": "ops", "uid": "u", "labels": {marks.LABEL_RUN: RUN}}
    spec = {"template": {"spec": {"containers": [{"name": "c"}]}}} if kind == "Job" else {}
    made = decode(
        kind, {"kind": kind, "metadata": {**meta, "ownerReferences": [owner]}, "spec": spec}
    )
    pod_of_job = {**meta, "ownerReferences": [{**owner, "kind": "Job"}]}
    found = list(left_objects([made, decode("Pod", {"metadata": pod_of_job})]))
    assert [left.by_hand for left in found] == [f"kubectl delete {line} -n ops"]
    assert found[0].deletion.uid == "u", "under its uid"


def test_the_lines_for_a_failed_node_leave_nothing_of_ours() -> None:
    s = marked(FAILED, shield=("karpenter.sh/do-not-disrupt",))
    left, _ = cleaned(s)
    assert left.by_hand == (
        "kubectl nodelife upgrade prove x",
        "kubectl annotate node x nodelife.dev/upgrade- karpenter.sh/do-not-disrupt-",
        "kubectl label node x nodelife.dev/upgrade-state-",
        "kubectl uncordon x",
    )
