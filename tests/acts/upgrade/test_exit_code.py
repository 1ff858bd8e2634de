"""With which exit code a leader ends."""

from typing import Any

import pytest

from kubectl_nodelife.acts.upgrade.leader import exit_code
from kubectl_nodelife.controllers.upgrade.document import RunDocument, RunPhase, Step, StepNode
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeMark, NodeState, encode_mark
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node

PAUSED, FINISHED = RunPhase.PAUSED, RunPhase.FINISHED


def mark(state: NodeState) -> NodeMark:
    return NodeMark(run="r1", state=state)


def code(run: RunDocument, state: NodeState | None = None, **more: Any) -> int | None:
    """The code of a run of which node b0 is in that state."""
    notes = {ANNOTATION: encode_mark(mark(state))} if state else {}
    node = Node(metadata=ObjectMeta(name="b0", uid="b0", annotations=notes))
    known = {"is_cleared": True, "interrupted": False, "tolerated": 0} | more
    return exit_code(run, {"b0": node}, **known)


def run(phase: RunPhase, **more: Any) -> RunDocument:
    return RunDocument(run="r1", phase=phase, **more)


@pytest.mark.parametrize(
    ("document", "state", "expected"),
    [
        (run(FINISHED), None, 0),
        (run(FINISHED, left=("b0",)), NodeState.FAILED, 1),
        (run(RunPhase.RUNNING), None, None),
        (run(PAUSED), None, None),
        (run(PAUSED, failed=("b0",)), NodeState.FAILED, 1),
        (run(PAUSED, failed=("b1",)), NodeState.PROVING, None),
    ],
)
def test_the_phase_and_the_nodes_say_how_it_ended(
    document: RunDocument, state: NodeState | None, expected: int | None
) -> None:
    assert code(document, state) == expected


def test_a_run_has_not_ended_before_what_goes_with_its_end_has_gone() -> None:
    assert code(run(FINISHED), is_cleared=False) is None


@pytest.mark.parametrize("phase", [FINISHED, RunPhase.ABORTED])
def test_a_node_that_failed_and_bears_no_mark_is_a_failure(phase: RunPhase) -> None:
    """Its object is gone, or it was left in service."""
    assert code(run(phase, failed=("b7",))) == 1


def test_an_interrupted_leader_waits_for_newcomers() -> None:
    gone = StepNode(uid="b7", zone="a", pool="blue", mark=mark(NodeState.WORKING))
    paused = run(PAUSED, step=Step(nodes={"b7": gone}))
    assert code(paused, interrupted=True) is None
    assert code(run(PAUSED, step=Step(nodes={"b7": gone}), failed=("b7",)), interrupted=True) == 130
    assert code(run(PAUSED), interrupted=True) == 130


def test_a_mark_that_somebody_else_wrote_keeps_no_leader() -> None:
    """A kubelet says that its node is in work; the leader has told so, and leaves it alone."""
    paused = run(PAUSED, failed=("b1",))
    assert code(paused, NodeState.WORKING) is None
    assert code(paused, NodeState.WORKING, foreign={"b0": "its mark was changed"}) == 1
