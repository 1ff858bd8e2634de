"""Checks by hand of an upgrade's length and of how low the cluster gets, by run and by plan.

14 minutes pass from claim to release, and one of watching, which holds no slot: n nodes of which k
may be out at once take ceil(n / k) rounds of 14 minutes, and a minute. A growth step takes its
rounds, the minute, and the soak; between two zones there is a soak.
"""

from typing import Any

import pytest

from bench.upgrade import make_plan, make_setting
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.counts import CLUSTER
from kubectl_nodelife.engine.actions import NodeMarkPatch
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.run import Run, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Setting
from kubectl_nodelife.upgrade.answers import decider_for

OVERHEAD_NS = 74 * SECOND_NS
"""What a node needs besides its work: Ready for a minute, then 14 s of proof."""

CASES = [
    # Zones of 167, 167 and 166; 50 at once, soak 5. Growth 1 + 2 + 4 + 8 + 16 + 32 = 63 nodes in
    # 6 x (15 + 5) = 120 minutes; the other 104 of zone a go in 3 rounds = 43, those of b and c in
    # 4 each = 57; two soaks between zones: 120 + 43 + 5 + 57 + 5 + 57 = 287.
    pytest.param(500, {}, 287, 450, id="500-nodes", marks=pytest.mark.deep("many nodes")),
    # Zones of 20, all of them at once; 15 out at once, of one zone 9, for with a tenth and one
    # accident 11 of 20 would be down; soak 2. Growth 3 + 6 + 12 = 21 nodes in 3 x (15 + 2) = 51
    # minutes, zone a's brake lets 3 of the 12 be of zone b; the other 39 in 3 rounds = 43: 94.
    pytest.param(
        60,
        {"maxUnavailable": "25%", "canary": 3, "soak": "2m", "zones": 0},
        94,
        45,
        id="all-zones-at-once",
    ),
    # Zones of 34, 33 and 33; 20 at once, but 90 must be available: 10; soak 5. Growth 1 + 2 + 4 + 8
    # in 4 x (15 + 5) = 80 minutes, then 16 in 2 rounds = 29 + 5; the last 3 of zone a = 15, zones b
    # and c in 4 rounds each = 57: 80 + 34 + 15 + 5 + 57 + 5 + 57 = 253.
    pytest.param(100, {"maxUnavailable": "20%", "minAvailable": 90}, 253, 90, id="a-floor"),
    # Zones of 10; 5 at once, 2 of a zone; soak 3. Growth 1 + 2 in 2 x (15 + 3) = 36 minutes, then 4
    # in 2 rounds = 29 + 3; the last 3 of zone a in 2 rounds = 29, zones b and c in 5 rounds each
    # = 71: 36 + 32 + 29 + 3 + 71 + 3 + 71 = 245.
    pytest.param(
        30, {"maxUnavailable": 5, "maxPerZone": 2, "soak": "3m"}, 245, 28, id="two-of-a-zone"
    ),
]


def play(setting: Setting) -> Run:
    settings = make_settings(setting.profile, {})
    names = ("node-lifecycle",)
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    decider = decider_for(settings)
    return run(
        setting,
        controllers,
        make_decider=decider,
        until_upgraded=lambda done: None,
    )


def setting_of(nodes: int, policy: dict[str, Any]) -> Setting:
    work_ns = 14 * MINUTE_NS - OVERHEAD_NS
    return make_setting(nodes, 0, 1, work_ns=work_ns, daemon_sets=0, policy=policy)


@pytest.mark.parametrize(("nodes", "policy", "minutes", "lowest"), CASES)
def test_the_run_takes_what_one_calculates(
    nodes: int, policy: dict[str, Any], minutes: int, lowest: int
) -> None:
    setting = setting_of(nodes, policy)
    came = play(setting)
    assert came.upgrade is not None
    claimed, took = {}, []
    for at_ns, action in came.timeline.entries:
        if isinstance(action, NodeMarkPatch) and action.word == "ClaimNode":
            claimed[action.node] = at_ns
        elif isinstance(action, NodeMarkPatch) and action.word == "ReleaseNode":
            took.append(at_ns - claimed[action.node])
    assert len(took) == nodes
    assert abs(max(took) - 14 * MINUTE_NS) <= 5 * SECOND_NS, max(took) / SECOND_NS
    assert came.upgrade["lowestAvailable"]["all"] == lowest
    until_first_claim = (min(claimed.values()) - setting.start_ns) // SECOND_NS - 1
    assert round((came.upgrade["seconds"] - until_first_claim) / 60) == minutes


@pytest.mark.parametrize(("nodes", "policy", "minutes", "lowest"), CASES)
def test_the_plan_says_what_one_calculates(
    nodes: int, policy: dict[str, Any], minutes: int, lowest: int
) -> None:
    setting = setting_of(nodes, policy)
    _, planned = make_plan(setting, make_settings(setting.profile, {}))
    assert len(planned.done) == nodes
    assert planned.course.lowest[CLUSTER].available == lowest
    # The plan allows for two seconds more of a node's checks, in each of some twenty rounds.
    assert minutes <= planned.course.end_ns / MINUTE_NS <= minutes + 1
