"""A joined controller whose first pass leaves out the nodes at rest decides as one that looks at
all of them, whatever happens later: on small random clusters, some of whose nodes are in trouble.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Lease, Node, Taint
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.events import (
    ConnectionEvent,
    CordonEvent,
    KubeletEvent,
    LeaseTouchEvent,
    LeaseViewEvent,
    ReportedCondition,
    ScenarioEvent,
    TaintEvent,
    Targets,
)
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate, generate, with_leases
from kubectl_nodelife.sim.present import Present, join
from kubectl_nodelife.sim.timeline import Record

NOW_NS = 1_800_000_000 * SECOND_NS + 123_456_789
KINDS = ("Node", "Pod", "Lease", "DaemonSet", "ControllerRevision", "ReplicaSet")
FLAGS = (
    {},
    {},
    {"node-monitor-grace-period": "12s"},
    {"node-monitor-grace-period": "25s", "node-monitor-period": "2s"},
)


def _objects(chance: random.Random, seed: int) -> Iterator[KubeObject]:
    wanted = Generate(
        zones=chance.randint(1, 3), nodes_per_zone=chance.randint(2, 6), seed=seed,
        pods_per_node=3, daemon_sets=1,
    )  # fmt: skip
    for obj in with_leases(generate(wanted, NOW_NS, "newest"), NOW_NS):
        luck = chance.random()
        if isinstance(obj, Node) and luck < 0.08:
            taint = Taint("node.kubernetes.io/not-ready", effect=chance.choice(("NoExecute", "x")))
            yield replace(obj, spec=replace(obj.spec, taints=(taint,)))
        elif isinstance(obj, Node) and luck < 0.16:
            since, status = Time(NOW_NS - 300 * SECOND_NS), chance.choice(("False", "Unknown"))
            conditions = [
                replace(c, status=status, last_transition_time=since) if c.type == "Ready" else c
                for c in obj.status.conditions
            ]
            yield replace(obj, status=replace(obj.status, conditions=tuple(conditions)))
        elif isinstance(obj, Lease) and luck < 0.05:
            continue
        elif isinstance(obj, Lease) and luck < 0.25:
            renewed = (obj.spec.renew_time or 0) - chance.choice((0, 5, 12, 30)) * SECOND_NS
            seconds = chance.choice((8, 40, 120))
            spec = replace(obj.spec, renew_time=renewed, lease_duration_seconds=seconds)
            yield replace(obj, spec=spec)
        else:
            yield obj


def _events(chance: random.Random, nodes: list[str]) -> Iterator[ScenarioEvent]:
    for _ in range(chance.randint(1, 8)):
        at_ns = chance.choice((0, chance.randrange(4 * MINUTE_NS)))
        targets = Targets(nodes=tuple(chance.sample(nodes, 1)))
        what = chance.choice(
            (
                *[KubeletEvent(targets, heartbeats="stop")] * 4,
                KubeletEvent(targets, heartbeats="start"),
                KubeletEvent(targets, conditions={"Ready": ReportedCondition("False")}),
                TaintEvent(targets, add=(Taint("a", effect="NoExecute"),)),
                CordonEvent(targets, chance.random() < 0.5),
                LeaseTouchEvent(targets),
                LeaseViewEvent(chance.random() < 0.7),
                ConnectionEvent(chance.random() < 0.5),
            )
        )
        yield ScenarioEvent(at_ns, what, FieldPath("the test", ""))


def _played(present: Present, events: list[ScenarioEvent], forks: bool) -> list[Record]:
    branch = present.begin(8 * MINUTE_NS)
    if forks:
        branch.step()
        branch = branch.fork()
    branch.add(events)
    branch.play()
    return branch.records()


@pytest.mark.parametrize("seed", range(60))
def test_nodes_at_rest_need_no_first_look(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    cluster = Cache()
    cluster.fill(_objects(chance, seed), NOW_NS)
    settings = make_settings(chance.choice(("newest", "v1.28", "v1.20")), chance.choice(FLAGS))
    present = join(cluster, settings, NOW_NS, KINDS)
    events = list(_events(chance, sorted(cluster.nodes)))
    forks = chance.random() < 0.5
    some_at_rest = _played(present, events, forks)
    with monkeypatch.context() as patched:
        patched.setattr(Cache, "renew_for_ever", lambda cache: {})
        assert _played(present, events, forks) == some_at_rest
    assert some_at_rest or not any(isinstance(e.what, KubeletEvent) for e in events)
