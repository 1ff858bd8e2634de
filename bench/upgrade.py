"""An upgrade of a whole cluster in three zones, from its claim of the first node to its end.

Measured is the simulated run: 10 % of the nodes at once, 14 minutes from claim to release, a
growth step after the other. `seconds` is how long the upgrade takes there, `boundSeconds` the least
that the limits allow: rounds of as many nodes as may be out of service. `planSeconds` is the wall
time of making the plan of the same run, `plannedSeconds` how long the upgrade takes by that plan.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bench import Stopwatch
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.policy import Duration, policy_from
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.events import ScenarioEvent, UpgradeEvent, WorkAssumptions
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting, assemble
from kubectl_nodelife.upgrade.answers import decider_for
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan

NODES = 500
PODS_PER_NODE = 30
ZONES = 3
WORK_NS = 8 * MINUTE_NS


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Run the upgrade until it is over."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    controllers = make_controllers(
        settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS
    )
    gc.collect()
    gc.freeze()
    plan_seconds, planned = make_plan(setting, settings)
    with stopwatch:
        done = simulate(
            setting,
            controllers,
            make_decider=decider_for(settings),
            until_upgraded=lambda done: None,
        )
    came = done.upgrade
    assert came is not None and planned.estimate is not None
    decided = sum(action.controller == "upgrade" for _, action in done.timeline.entries)
    longest = sum(
        came["longestState"].get(s, 0.0) for s in ("Draining", "Working", "Settling", "Proving")
    )
    return {
        "planSeconds": round(plan_seconds, 3),
        "plannedSeconds": round(planned.estimate.expected, 1),
        "seconds": came["seconds"],
        "boundSeconds": -(-nodes // (nodes // 10)) * longest,
        "doneNodes": len(came["done"]),
        "lowestAvailableNodes": came["lowestAvailable"]["all"],
        "evictions": came["evictions"],
        "actions": len(done.timeline.entries),
        "decisionsPerSecond": round(decided / stopwatch.wall_seconds),
    }


def make_plan(setting: Setting, settings: Settings) -> tuple[float, UpgradePlan]:
    """The plan of the run, and how many seconds of wall time it took."""
    event = setting.scenario.events[0].what
    assert isinstance(event, UpgradeEvent)
    policy = replace(event.policy, expect_work_ns=Duration(event.work.duration_ns))
    kinds = (store for kind, store in setting.cluster.objects.items() if kind != "Lease")
    objects: list[KubeObject] = [*setting.cluster.nodes.values(), *setting.cluster.pods.values()]
    objects += [obj for store in kinds for obj in store.values()]
    began = time.perf_counter()
    made = make_upgrade_plan(PlanSnapshot(objects, setting.start_ns), policy, settings)
    return time.perf_counter() - began, made


def make_setting(
    nodes: int,
    pods: int,
    seed: int,
    *,
    work_ns: int = WORK_NS,
    daemon_sets: int = 3,
    policy: Mapping[str, Any] | None = None,
) -> Setting:
    """A cluster of so many nodes in three zones, and its upgrade, of 10 % at once or `policy`."""
    mapping = {
        "selector": "kubernetes.io/os=linux",
        "maxUnavailable": "10%",
        "target": ["bootID=changed"],
        "work": {"mode": "run", "command": "-"},
        "drain": {"force": True},
        **(policy or {}),
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
