"""One burst of events through the engine: every third node gets a NoExecute taint by hand that no
pod tolerates.

This measures the decisions of all controllers and the texts of their records, each with its whole
chain of causes walked to its root; not the cluster around them.
"""

from __future__ import annotations

import gc

from msgspec.structs import replace

from bench import Stopwatch
from bench.zone_outage import make_setting
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import AddTaints
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.timeline import Record, Timeline

TAINT = Taint(key="bench.example/gone", effect="NoExecute")


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Decide, write the texts, and walk the causes."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    engine = Engine(
        make_controllers(settings, setting.scenario.controllers), setting.cluster.copy()
    )
    for _ in engine.step(setting.start_ns, ()):
        pass
    now_ns = setting.start_ns + SECOND_NS
    timeline = Timeline(setting.start_ns)
    chosen = list(setting.cluster.nodes.values())[::3]
    events: list[Event] = []
    for node in chosen:
        taint = AddTaints(controller="user", because="by hand", node=node.name, taints=(TAINT,))
        timeline.write(now_ns, taint)
        events.append(Put("Node", tainted(node), taint))
    gc.collect()
    gc.freeze()
    with stopwatch:
        for action in engine.step(now_ns, events):
            timeline.write(now_ns, action)
        records = timeline.records()
        longest = max(len(chain(records, i)) for i in range(len(records)))
    rooted = sum(records[chain(records, i)[-1]].controller == "user" for i in range(len(records)))
    return {
        "taintedNodes": len(chosen),
        "records": len(records),
        "recordsWithRoot": rooted,
        "longestChain": longest,
        "recordsPerSecond": round(len(records) / stopwatch.wall_seconds),
    }


def tainted(node: Node) -> Node:
    """The node with the taint."""
    return replace(node, spec=replace(node.spec, taints=(*node.spec.taints, TAINT)))


def chain(records: list[Record], index: int) -> list[int]:
    """The record and all records that led to it, the root last."""
    found = [index]
    cause = records[index].cause
    while cause is not None:
        found.append(cause)
        cause = records[cause].cause
    return found
