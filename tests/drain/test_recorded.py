"""Every recorded drain is planned right: verdict, who goes, how long, and which gate refuses."""

from collections import Counter
from functools import cache

import pytest

from kubectl_nodelife.drain.results import DrainPlan
from tests.drain.recorded import (
    DRAINS,
    GATES,
    Recorded,
    alike,
    counted,
    evicted_by_plan,
    expected_verdicts,
    full_name,
    read,
    widest,
)

# The kubelet of a1 was stopped between the snapshot and the drain: its Lease is as fresh as those
# of the other nodes, its Ready condition True, and the objects are those of a healthy cluster. No
# plan can know; test_gates has a Lease that ran out. tests/sim/test_recorded_drains.py is told that
# the kubelet stops, and ends as the recording does.
UNKNOWABLE = {"dead-kubelet"}

NAMES = sorted(folder.name for folder in DRAINS.iterdir() if (folder / "outcome.json").exists())
CASES = [
    pytest.param(
        name,
        marks=[pytest.mark.xfail(strict=True, reason="nothing in the objects shows it")]
        if name in UNKNOWABLE
        else [],
    )
    for name in NAMES
]


@cache
def planned(name: str) -> tuple[Recorded, DrainPlan]:
    recorded = read(DRAINS / name)
    return recorded, recorded.plan()


def test_there_are_recorded_drains() -> None:
    assert len(NAMES) >= 14


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    recorded, plan = planned(name)
    assert plan.verdict in expected_verdicts(recorded)


@pytest.mark.parametrize("name", NAMES)
def test_who_is_evicted(name: str) -> None:
    recorded, plan = planned(name)
    accepted = [accepted["pod"] for accepted in recorded.outcome["accepted"]]
    assert counted(recorded, evicted_by_plan(plan)) == counted(recorded, accepted)


@pytest.mark.parametrize("name", CASES)
def test_seconds(name: str) -> None:
    recorded, plan = planned(name)
    if recorded.outcome["exitCode"] != 0:
        assert plan.estimate is None
        return
    assert plan.estimate is not None
    assert plan.estimate.low <= recorded.outcome["seconds"] <= plan.estimate.high
    assert plan.estimate.high - plan.estimate.low <= widest(plan)


@pytest.mark.parametrize("name", NAMES)
def test_gates(name: str) -> None:
    recorded, plan = planned(name)
    planned_gates = Counter((alike(recorded, full_name(p)), p.gate) for p in plan.pods())
    for refused in recorded.outcome["refused"]:
        like = alike(recorded, refused["pod"])
        gates = {gate for (other, gate), _ in planned_gates.items() if other == like}
        assert gates & GATES[refused["code"]], refused
