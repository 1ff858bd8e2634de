"""The automaton of a node in an upgrade is one table, and runs make no other transitions."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.engine.actions import Action, NodeMarkPatch, RecordEvent
from tests.deep import first_few
from tests.upgrade.fault_plan import Plan, plan_of
from tests.upgrade.fleet_objects import NODES
from tests.upgrade.judges import MAY_FOLLOW
from tests.upgrade.simulation import Fleet
from tests.upgrade.stand import Stand

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "upgrade.md"
PACKAGE = ROOT / "kubectl_nodelife"


def test_the_table_says_what_the_observers_allow() -> None:
    follows: dict[str, set[str]] = defaultdict(set)
    for row in marks.TRANSITIONS:
        follows[str(row.state or "")].add(str(row.to or ""))
    assert follows == MAY_FOLLOW


def test_an_event_leads_a_state_to_one_other() -> None:
    pairs = [(row.state, row.event) for row in marks.TRANSITIONS]
    assert len(set(pairs)) == len(pairs)
    assert {row.event for row in marks.TRANSITIONS} == set(marks.NodeEvent)


def test_every_state_is_reached_and_left() -> None:
    assert {row.to for row in marks.TRANSITIONS} - {None} == set(marks.NodeState)
    assert {row.state for row in marks.TRANSITIONS} - {None} == set(marks.NodeState)


def test_what_was_not_worked_on_cannot_fail() -> None:
    assert marks.states_with(marks.NodeEvent.FAILED) == marks.IN_FLIGHT - {marks.NodeState.DRAINING}


def test_an_event_that_a_state_does_not_have_is_a_bug() -> None:
    with pytest.raises(KeyError):
        marks.transition(marks.NodeState.DONE, marks.NodeEvent.DRAINED)


def test_the_documentation_has_the_table() -> None:
    text = DOCUMENT.read_text()
    section = text[text.index("### Which state follows which") :].split("\n#", 1)[0]
    rows = re.findall(r"^\| (\w+|none) \| (.*) \| (\w+|none) \|$", section, re.MULTILINE)
    told = [(str(t.state or "none"), str(t.event), str(t.to or "none")) for t in marks.TRANSITIONS]
    assert sorted(rows) == sorted([("state", "event", "next"), *told])


def test_an_observer_sees_a_transition_that_is_not_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MAY_FOLLOW, "Settling", MAY_FOLLOW["Settling"] - {"Proving"})
    fleet = Fleet(Plan())
    fleet.play()
    faults = [fault for fault in fleet.judges.faults if fault.startswith("I10")]
    assert len(faults) == len(NODES)
    assert all(fault.endswith("goes from Settling to Proving") for fault in faults)


ROWS = {(str(row.state or ""), str(row.to or ""), row.record) for row in marks.TRANSITIONS}


def strays(made: Iterable[Action]) -> list[str]:
    """Patches of marks that no row of the table makes, and changes that are none of state."""
    return [
        f"{action.word} from {action.from_} to {action.to}"
        for action in made
        if isinstance(action, NodeMarkPatch)
        and (action.from_, action.to, action.word) not in ROWS
        and not (action.word == "MarkNode" and action.from_ == action.to)
    ]


def writes_of(fleet: Fleet) -> list[Action]:
    """What leaders of the run write while it is played."""
    made: list[Action] = []
    judged = fleet.judges.wrote

    def wrote(action: Action, epoch: int, leader: object) -> None:
        made.append(action)
        judged(action, epoch, leader)

    fleet.judges.wrote = wrote  # type: ignore[method-assign]
    fleet.play()
    return made


@pytest.mark.parametrize("seed", first_few(range(12)))
def test_runs_under_faults_make_no_patch_that_is_not_in_the_table(seed: int) -> None:
    fleet = Fleet(plan_of(seed))
    made = writes_of(fleet)
    assert sum(isinstance(action, NodeMarkPatch) for action in made) > 5
    assert strays(made) == []


@pytest.mark.parametrize(
    "earlier", [None, marks.NodeState.FAILED, marks.NodeState.HELD, marks.NodeState.DONE]
)
@pytest.mark.parametrize("state", list(marks.NodeState))
def test_clean_makes_no_patch_that_is_not_in_the_table(
    state: marks.NodeState, earlier: marks.NodeState | None
) -> None:
    """Whatever a kubelet, which may write its own Node, says of an earlier mark."""
    before = marks.NodeMark(run="r0", state=earlier) if earlier else None
    s = Stand(nodes=["x"])
    s.add_nodes("x")
    s.mark("x", state, cordon=marks.CordonOwner.OURS, earlier=before)
    for proof_only, release in product((False, True), repeat=2):
        (left,) = leftovers([s.node("x")], proof_only=proof_only, release_failed=release)
        assert strays([left.patch] if left.patch else []) == []


def test_the_end_of_a_proof_alone_releases_no_node_that_another_run_worked_on() -> None:
    s = Stand(nodes=["x"])
    s.add_nodes("x")
    s.mark("x", marks.NodeState.WORKING, cordon=marks.CordonOwner.OURS)
    (left,) = leftovers([s.node("x")], proof_only=True)
    assert left.stays and left.patch is not None and left.patch.to == "Failed"


def test_only_one_function_makes_a_patch_of_marks() -> None:
    calls = [
        f"{path.name}:{call.lineno}"
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and "NodeMarkPatch" in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))
    ]
    assert len(calls) == 1 and calls[0].startswith("marks.py:")


def test_an_event_says_how_marks_go() -> None:
    gone = {row.event: row.reason for row in marks.TRANSITIONS if row.to is None}
    assert gone.pop(marks.NodeEvent.RUN_OVER) == "UpgradeRunOver"
    assert gone.pop(marks.NodeEvent.PROOF_PASSED) == "UpgradeProven"
    assert set(gone.values()) == {"UpgradeRestoring"}
    assert (
        marks.transition(marks.NodeState.DRAINING, marks.NodeEvent.DRAINED).reason
        == "UpgradeWorking"
    )


def test_a_node_that_is_done_leaves_the_run_with_an_event_that_says_so() -> None:
    fleet = Fleet(Plan())
    made = writes_of(fleet)
    reasons = Counter(action.reason for action in made if isinstance(action, RecordEvent))
    assert reasons["UpgradeRunOver"] == reasons["UpgradeDone"] == len(NODES)
    assert reasons["UpgradeRestoring"] == 0
