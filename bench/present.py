"""The joined present of a cluster with Services and budgets, and the futures forked from it.

This measures the start of the present: the world, its controllers joined, the first tick. Given
separately: the cost of one fork, and of ten minutes after the loss of one node (`coldSeconds`
before the lists of candidate nodes are shared, `warmSeconds` after), and of a zone.
"""

from __future__ import annotations

import gc
import time

from bench import Stopwatch
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.present import Branch, join
from kubectl_nodelife.sim.scenario import Scenario, assemble

NODES = 5000
PODS = 150_000
ZONES = 3
HORIZON_NS = 10 * MINUTE_NS


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """A Service for as many workloads as there are nodes, and a budget for every fifth of them."""
    wanted = Generate(
        zones=ZONES,
        nodes=nodes,
        pods_per_node=pods // nodes,
        seed=seed,
        services=nodes,
        budgets=nodes // 5,
    )
    setting = assemble(Scenario(file="bench", name="present", generate=wanted))
    settings = make_settings(setting.profile, {})
    present = join(setting.cluster, settings, setting.start_ns, setting.kinds_read)
    gc.collect()
    gc.freeze()
    with stopwatch:
        base = present.begin(HORIZON_NS)
        base.step()
    zone = [name for name in setting.cluster.nodes if name.startswith("a")]
    fork_seconds, cold_seconds = _future(base, ["b1"])
    base.prepare()
    warm_seconds = min(_future(base, [name])[1] for name in ("b1", "b2", "b3"))
    return {
        "services": wanted.services,
        "budgets": wanted.budgets,
        "forkSeconds": round(fork_seconds, 6),
        "coldSeconds": round(cold_seconds, 6),
        "warmSeconds": round(warm_seconds, 6),
        "zoneSeconds": round(_future(base, zone)[1], 6),
    }


def _future(base: Branch, lost: list[str]) -> tuple[float, float]:
    """Seconds of a fork, and of playing it on without these nodes."""
    began = time.process_time()
    branch = base.fork()
    forked = time.process_time()
    stop = KubeletEvent(Targets(nodes=tuple(lost)), "stop")
    branch.add([ScenarioEvent(0, stop, FieldPath("bench"))])
    branch.play()
    return forked - began, time.process_time() - forked
