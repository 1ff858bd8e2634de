"""One of three zones is lost, and the hour after: every action of all controllers, and the
cluster's answers.

The run is measured from the cluster's first tick to its last. Making the cluster is not measured,
nor is writing the records, which is given separately (`recordSeconds`).
"""

from __future__ import annotations

import gc
import time

from bench import Stopwatch
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting, assemble

ZONES = 3
OUTAGE_NS = MINUTE_NS


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Zone a is lost after a minute; another hour is simulated."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    setting = setting.under(settings)  # twenty requests a second of each client
    controllers = make_controllers(
        settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS
    )
    gc.collect()
    gc.freeze()
    with stopwatch:
        done = simulate(setting, controllers)
    began = time.perf_counter()
    records = done.timeline.records(done.failures)
    record_seconds = time.perf_counter() - began
    return {
        "silentNodes": sum(name.startswith("a") for name in setting.cluster.nodes),
        "virtualSeconds": setting.scenario.duration_ns // 10**9,
        "actions": len(done.timeline.entries),
        "records": len(records),
        "recordSeconds": round(record_seconds, 6),
        "actionsPerSecond": round(len(done.timeline.entries) / stopwatch.wall_seconds),
    }


def make_setting(nodes: int, pods: int, seed: int) -> Setting:
    """A cluster of so many nodes in three zones, and what happens to it."""
    lost = Targets(selector=parse_selector("topology.kubernetes.io/zone=a"))
    scenario = Scenario(
        file="bench",
        name="zone-outage",
        duration_ns=OUTAGE_NS + HOUR_NS,
        generate=Generate(zones=ZONES, nodes=nodes, pods_per_node=pods // nodes, seed=seed),
        events=(ScenarioEvent(OUTAGE_NS, KubeletEvent(lost, "stop"), FieldPath("bench")),),
    )
    return assemble(scenario)
