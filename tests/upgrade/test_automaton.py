"""The automaton of a node in an upgrade is one table, and runs make no other transitions."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from kubectl_nodelife.controllers.upgrade.automaton import (
    TRANSITIONS,
    NodeEvent,
    states_with,
    transition,
)
from kubectl_nodelife.controllers.upgrade.marks import IN_FLIGHT, NodeState
from tests.upgrade.fault_plan import Plan
from tests.upgrade.fleet_objects import NODES
from tests.upgrade.judges import MAY_FOLLOW
from tests.upgrade.simulation import Fleet

DOCUMENT = Path(__file__).parents[2] / "docs" / "upgrade.md"


def test_the_table_says_what_the_observers_allow() -> None:
    follows: dict[str, set[str]] = defaultdict(set)
    for row in TRANSITIONS:
        follows[str(row.state or "")].add(str(row.to or ""))
    assert follows == MAY_FOLLOW


def test_an_event_leads_a_state_to_one_other() -> None:
    pairs = [(row.state, row.event) for row in TRANSITIONS]
    assert len(set(pairs)) == len(pairs)
    assert {row.event for row in TRANSITIONS} == set(NodeEvent)


def test_every_state_is_reached_and_left() -> None:
    assert {row.to for row in TRANSITIONS} - {None} == set(NodeState)
    assert {row.state for row in TRANSITIONS} - {None} == set(NodeState)


def test_what_was_not_worked_on_cannot_fail() -> None:
    assert states_with(NodeEvent.FAILED) == IN_FLIGHT - {NodeState.DRAINING}


def test_an_event_that_a_state_does_not_have_is_a_bug() -> None:
    with pytest.raises(KeyError):
        transition(NodeState.DONE, NodeEvent.DRAINED)


def test_the_documentation_has_the_table() -> None:
    text = DOCUMENT.read_text()
    section = text[text.index("### Which state follows which") :].split("\n#", 1)[0]
    rows = re.findall(r"^\| (\w+|none) \| (.*) \| (\w+|none) \|$", section, re.MULTILINE)
    told = [(str(t.state or "none"), str(t.event), str(t.to or "none")) for t in TRANSITIONS]
    assert rows == [("state", "event", "next"), *told]


def test_an_observer_sees_a_transition_that_is_not_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MAY_FOLLOW, "Settling", MAY_FOLLOW["Settling"] - {"Proving"})
    fleet = Fleet(Plan())
    fleet.play()
    faults = [fault for fault in fleet.judges.faults if fault.startswith("I10")]
    assert len(faults) == len(NODES)
    assert all(fault.endswith("goes from Settling to Proving") for fault in faults)
