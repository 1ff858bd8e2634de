"""The cluster of the benches of `what-if`: zones, Services, budgets, and spread heartbeats."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.question import Question
from kubectl_nodelife.sim.generate import Generate, generate
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS

_ZONES = 3
_MILLIS = 1_000_000


def question(
    nodes: int, pods: int, seed: int, acts: Sequence[Act], until_s: int, zones: int = _ZONES
) -> Question:
    """What is asked of a cluster with a Service a node, and a budget for five nodes."""
    wanted = Generate(
        zones=zones,
        nodes_per_zone=nodes // zones,
        pods_per_node=max(1, pods // nodes),
        seed=seed,
        services=nodes,
        budgets=nodes // 5,
    )
    cluster = Cache()
    cluster.fill(_objects(wanted), DEFAULT_TIME_NS)
    gc.collect()
    gc.freeze()
    read = frozenset(kind.name for kind in KINDS)
    settings = make_settings("newest")
    return Question(cluster, settings, DEFAULT_TIME_NS, read, acts, until_s * SECOND_NS)


def _objects(wanted: Generate) -> Iterator[KubeObject]:
    number = 0
    for obj in generate(wanted, DEFAULT_TIME_NS, "newest"):
        if not isinstance(obj, Node):
            yield obj
            continue
        number += 1
        age_ns = (1000 + number * 7919 % 8999) * _MILLIS
        yield _posted(obj, DEFAULT_TIME_NS - age_ns - SECOND_NS)
        renewed = format_micro_time(DEFAULT_TIME_NS - age_ns)
        spec = {"holderIdentity": obj.name, "leaseDurationSeconds": 40, "renewTime": renewed}
        meta = {"name": obj.name, "namespace": "kube-node-lease"}
        yield decode("Lease", {"kind": "Lease", "metadata": meta, "spec": spec})


def _posted(node: Node, at_ns: int) -> Node:
    conditions = tuple(replace(c, last_heartbeat_time=Time(at_ns)) for c in node.status.conditions)
    return replace(node, status=replace(node.status, conditions=conditions))
