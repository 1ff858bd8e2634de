"""An upgrade of a whole cluster in three zones, from its claim of the first node to its end.

Measured is the simulated run: 10 % of the nodes at once, 14 minutes from claim to release, a
growth step after the other. `seconds` is how long the upgrade takes there, `boundSeconds` the least
that the limits allow: rounds of as many nodes as may be out of service.
"""

from __future__ import annotations

import gc

from bench import Stopwatch
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.run import PASS_DRIFT_NS
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import Scenario, Setting, assemble
from kubectl_nodelife.sim.upgrade_reading import CANARY_IMAGE, UpgradeEvent, WorkAssumptions
from kubectl_nodelife.upgrade.simulated import decider_for

NODES = 500
PODS = 15_000
ZONES = 3
WORK_NS = 8 * MINUTE_NS


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """The upgrade, until it is over."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    controllers = make_controllers(
        settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS
    )
    gc.collect()
    gc.freeze()
    with stopwatch:
        done = simulate(
            setting, controllers, make_decider=decider_for(settings), until_upgraded=True
        )
    came = done.upgrade
    assert came is not None
    decided = sum(action.controller == "upgrade" for _, action in done.timeline.entries)
    longest = sum(
        came["longestState"].get(s, 0.0) for s in ("Draining", "Working", "Settling", "Proving")
    )
    return {
        "seconds": came["seconds"],
        "boundSeconds": -(-nodes // (nodes // 10)) * longest,
        "doneNodes": len(came["done"]),
        "lowestAvailableNodes": came["lowestAvailable"]["all"],
        "evictions": came["evictions"],
        "actions": len(done.timeline.entries),
        "decisionsPerSecond": round(decided / stopwatch.wall_seconds),
    }


def make_setting(
    nodes: int, pods: int, seed: int, *, work_ns: int = WORK_NS, daemon_sets: int = 3
) -> Setting:
    """A cluster of so many nodes in three zones, and its upgrade."""
    mapping = {
        "selector": "kubernetes.io/os=linux",
        "maxUnavailable": "10%",
        "target": ["bootID=changed"],
        "canaryImage": CANARY_IMAGE,
        "work": {"mode": "run", "command": "-"},
        "drain": {"force": True},
    }
    event = UpgradeEvent(policy_from(mapping), WorkAssumptions(duration_ns=work_ns))
    scenario = Scenario(
        file="bench",
        name="upgrade",
        duration_ns=48 * HOUR_NS,
        generate=Generate(
            zones=ZONES,
            nodes=nodes,
            pods_per_node=pods // nodes,
            daemon_sets=daemon_sets,
            seed=seed,
        ),
        events=(ScenarioEvent(SECOND_NS, event, FieldPath("bench")),),
    )
    return assemble(scenario)
