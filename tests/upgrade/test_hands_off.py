"""What people take out of a run's hands: it says so, prints what kubectl would do, and lets go."""

import json

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, CordonOwner, WorkMark
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import DONE, DRAINING, HELD, SETTLING, WORKING, one


def test_a_person_who_removes_the_annotation_is_told_what_takes_the_other_marks_off() -> None:
    s = one(SETTLING)
    s.settle()
    node = s.node("x")
    annotations = {k: v for k, v in (node.metadata.annotations or {}).items() if k != ANNOTATION}
    s.put(replace(node, metadata=replace(node.metadata, annotations=annotations)))
    s.run(60)
    told = s.controller.foreign["x"]
    assert f"{ANNOTATION} was removed by another client; the run leaves it alone" in told
    assert "kubectl uncordon x; kubectl annotate node x nodelife.dev/upgrade-" in told
    assert "kubectl label node x nodelife.dev/upgrade-state-" in told
    assert s.node("x").spec.unschedulable and not s.went_through("x")


@pytest.mark.parametrize("how", ["removed", "edited"])
def test_a_leader_that_slept_leaves_alone_what_it_said_it_would(how: str) -> None:
    s = one(SETTLING)
    s.settle()
    node = s.node("x")
    text = json.dumps({**json.loads((node.metadata.annotations or {})[ANNOTATION]), "reason": "me"})
    changed = {**(node.metadata.annotations or {}), ANNOTATION: text}
    if how == "removed":
        del changed[ANNOTATION]
    s.put(replace(node, metadata=replace(node.metadata, annotations=changed)))
    s.run(60)
    told, before = s.controller.foreign["x"], s.controller
    s.lead(s.epoch + 1)
    s.controller.take_over(before)
    s.run(60)
    assert f"was {how} by another client" in told and s.controller.foreign["x"] == told
    found = (s.node("x").metadata.annotations or {}).get(ANNOTATION)
    assert found == changed.get(ANNOTATION) and not s.went_through("x")


def test_an_epoch_that_the_lease_has_not_come_to_ends_no_leader() -> None:
    """A kubelet may write its own Node: each new leader would end by such a mark, for good."""
    s = Stand(nodes=["x", "y"], maxUnavailable=5)
    s.add_nodes("x", "y", "evil")
    s.mark("evil", DONE, epoch=999)
    s.mark("x", SETTLING)
    for epoch in (2, 3):
        s.lead(epoch)
        s.settle()
        assert not s.controller.superseded
    s.mark("x", SETTLING, epoch=999, work=WorkMark(started="2026-01-01T00:00:00Z"))
    s.did.clear()
    s.run(20 * 60)
    assert not s.controller.superseded and s.went_through("y"), "the run goes on"
    assert not s.went_through("x") and not s.went_through("evil"), "and leaves these alone"
    told = s.controller.foreign
    assert "epoch 999, and the run's Lease is at 3: forged" in told["x"]
    assert "kubectl uncordon x" in told["x"], "the cordon of the mark that was ours"
    assert told["evil"].endswith("kubectl annotate node evil nodelife.dev/upgrade-")


def test_a_run_that_leaves_a_forged_mark_behind_names_its_node_as_left() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.mark("x", SETTLING, epoch=999)
    s.settle()
    assert s.document.phase is RunPhase.FINISHED and s.document.left == ("x",)


def test_a_node_that_a_person_uncordoned_loses_its_marks_when_the_run_ends() -> None:
    for state in (DRAINING, WORKING, SETTLING):
        s = Stand(nodes=["x"], maxUnavailable=5)
        s.add_nodes("x", "y")
        s.add_pod("p", "x")
        s.mark("x", state)
        s.edit("x", spec={"unschedulable": False})
        s.step()
        assert s.state("x") == HELD
        s.settle()
        assert s.document.phase is RunPhase.FINISHED and s.state("x") == ""


def test_clean_takes_the_marks_off_a_held_node_that_is_in_service() -> None:
    s = one(SETTLING)
    s.mark("x", HELD, cordon=CordonOwner.OURS)
    (left,) = leftovers([s.node("x")])
    assert left.patch is None and left.state == HELD, "cordoned by us: a person decides"
    s.edit("x", spec={"unschedulable": False})
    (left,) = leftovers([s.node("x")])
    assert left.patch is not None and left.patch.unschedulable is None
