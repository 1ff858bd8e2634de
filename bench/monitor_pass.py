"""One monitor pass in which every node must be looked at, the costliest that there is, and a quiet
one.

Measured is the full pass: every node has posted its status since the pass before. Zones, health
entries and queues are there already. `quietSeconds` is a pass in which nothing has happened.
"""

from __future__ import annotations

import gc
import time

from bench import Stopwatch
from bench.zone_outage import make_setting
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.monitor import monitor_node_health, note
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import flat
from kubectl_nodelife.engine.events import Change, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.node import Node

PASSES = 5


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """A cluster after its first pass; then full passes, of which the mean is returned as well."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    cache = Cache()
    now_ns = setting.start_ns
    for obj in setting.objects:
        cache.apply(Put(kind_of(obj), obj), now_ns)
    controller = NodeLifecycleController(settings)
    for _ in flat(controller.start(cache, now_ns)):
        pass
    gc.collect()
    gc.freeze()
    full, quiet = [], []
    for _ in range(PASSES):
        now_ns += settings.node_monitor_period_ns
        for node in cache.nodes.values():
            note(controller.memory, Change("Node", node, node), now_ns)
        began = stopwatch.wall_seconds
        with stopwatch:
            decided = sum(1 for _ in flat(monitor_node_health(controller.memory, cache, now_ns)))
        full.append(stopwatch.wall_seconds - began)
        now_ns += settings.node_monitor_period_ns
        start = time.perf_counter()
        for _ in flat(monitor_node_health(controller.memory, cache, now_ns)):
            pass
        quiet.append(time.perf_counter() - start)
    looked_at = sum(isinstance(obj, Node) for obj in cache.all("Node"))
    return {
        "passes": PASSES,
        "nodesLookedAt": looked_at,
        "actionsInLastPass": decided,
        "fullPassSeconds": round(min(full), 6),
        "quietPassSeconds": round(min(quiet), 6),
    }
