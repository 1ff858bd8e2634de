"""The cluster of the benches of forecasts: zones, Services, budgets, and spread heartbeats."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.question import Question
from kubectl_nodelife.sim.generate import Generate, generate, with_leases
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS

_ZONES = 3


def served_cluster(nodes: int, pods: int, seed: int, zones: int = _ZONES) -> Generate:
    """A cluster with one Service per node, and one budget per five nodes."""
    return Generate(
        zones=zones,
        nodes_per_zone=nodes // zones,
        pods_per_node=max(1, pods // nodes),
        seed=seed,
        services=nodes,
        budgets=nodes // 5,
    )


def question(
    nodes: int, pods: int, seed: int, acts: Sequence[Act], until_s: int, zones: int = _ZONES
) -> Question:
    """The question about such a cluster."""
    cluster = Cache()
    made = generate(served_cluster(nodes, pods, seed, zones), DEFAULT_TIME_NS, "newest")
    cluster.fill(with_leases(made, DEFAULT_TIME_NS), DEFAULT_TIME_NS)
    gc.collect()
    gc.freeze()
    read = frozenset(kind.name for kind in KINDS)
    settings = make_settings("newest")
    return Question(cluster, settings, DEFAULT_TIME_NS, read, acts, until_s * SECOND_NS)
