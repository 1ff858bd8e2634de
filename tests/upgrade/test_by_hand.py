"""The check by hand of an upgrade's length: 500 nodes in 287 minutes, never below 450.

One pool in three zones of 167, 167 and 166 nodes, at most 10 % unavailable, 14 minutes from claim
to release and one of watching. Growth takes 1 + 2 + 4 + 8 + 16 + 32 = 63 nodes in six steps of 15
minutes and a soak of 5: 120 minutes. The other 104 of zone a go in three rounds, 43 minutes, those
of b and c in four each, 57; and a soak before each of these two.
"""

from __future__ import annotations

from bench.upgrade import make_setting
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import ClaimNode, ReleaseNode
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.run import PASS_DRIFT_NS, Run, run
from kubectl_nodelife.sim.scenario import Setting
from kubectl_nodelife.upgrade.simulated import decider_for

OVERHEAD_NS = 74 * SECOND_NS
"""What a node needs besides its work: Ready for a minute, then 14 s of proof."""


def play(setting: Setting) -> Run:
    settings = make_settings(setting.profile, {})
    names = ("node-lifecycle",)
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    decider = decider_for(settings)
    return run(setting, controllers, make_decider=decider, until_upgraded=True)


def test_500_nodes_in_287_minutes_and_never_fewer_than_450() -> None:
    setting = make_setting(500, 0, 1, work_ns=14 * MINUTE_NS - OVERHEAD_NS, daemon_sets=0)
    came = play(setting)
    assert came.upgrade is not None
    claimed, took = {}, []
    for at_ns, action in came.timeline.entries:
        if isinstance(action, ClaimNode):
            claimed[action.node] = at_ns
        elif isinstance(action, ReleaseNode):
            took.append(at_ns - claimed[action.node])
    assert len(took) == 500
    assert abs(max(took) - 14 * MINUTE_NS) <= 5 * SECOND_NS, max(took) / SECOND_NS
    assert came.upgrade["lowestAvailable"]["all"] == 450
    until_first_claim = (min(claimed.values()) - setting.start_ns) // SECOND_NS - 1
    assert round((came.upgrade["seconds"] - until_first_claim) / 60) == 287
