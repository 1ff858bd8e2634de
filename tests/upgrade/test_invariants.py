"""Upgrades under seeded faults: what section 8 of docs/upgrade.md promises holds whatever happens.

CI plays 500 seeds, `bin/test` a few. By hand: `pytest tests/upgrade/test_invariants.py --seeds
10000 -n 4`; a failure names its seed.
"""

import pytest

from tests.upgrade.fault_plan import Plan, plan_of
from tests.upgrade.fleet_objects import NODES
from tests.upgrade.judges import mark_of
from tests.upgrade.simulation import Fleet, faults_found

_STEP_OF_DEATHS = 12
"""The leader dies at each so-many-th action; at each, where CI asks for more seeds."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each of some actions at which a leader dies."""
    if "action" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--seeds")
        metafunc.parametrize("action", range(1, 170, 1 if asked > 60 else _STEP_OF_DEATHS))


def test_the_invariants_hold(seeds: range) -> None:
    for seed in seeds:
        plan = plan_of(seed)
        assert faults_found(plan) == [], f"seed {seed}: {plan}"


def test_a_leader_may_die_at_any_action(action: int) -> None:
    assert faults_found(Plan(dies_at=(action,))) == []


def test_without_faults_all_are_done_and_nothing_is_left() -> None:
    fleet = Fleet(Plan())
    fleet.play()
    assert fleet.phase() == "Finished"
    nodes = fleet.world.api.store.nodes
    assert fleet.judges.leftovers(dict(nodes), released=True) == []
    assert not any(mark_of(node) for node in nodes.values())
    seen = fleet.judges.seen
    assert seen["taken"] == len(NODES), "a judge that saw nothing has judged nothing"
    assert seen["evicted"] >= 10 and seen["Proving"] == len(NODES)
    assert fleet.judges.faults == []


def test_a_patch_whose_effect_a_cordon_hides_is_no_longer_under_way() -> None:
    """The leader is told late of its own `OpenForProof` and of a cordon that came after it, both at
    once: the node never shows as opened, and must not be waited for as if it would (seed 710).
    """
    told_late, cordons = (14, 120), tuple((15, "cordon", name) for name in NODES)
    assert faults_found(Plan(policy={"zones": 1}, lags=(told_late,), people=cordons)) == []
