"""The wall as a stream: frames judge few nodes and miss none, and deltas add up to them."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bench.status import dump
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import MicroTime, ObjectMeta
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from kubectl_nodelife.outlook.live_wall import LiveFrame, LiveNode, LiveWall, WallZone, delta
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST
from kubectl_nodelife.outlook.status import KINDS
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.works import works_of

SECOND_NS = 10**9
NODES = 40


def view(tmp_path: Path) -> ClusterView:
    """One node in fifty is silent, the others have just renewed their Leases."""
    file = tmp_path / "dump.json"
    file.write_bytes(dump(NODES, 120, 1))
    return view_of_dump(read_dump([str(file)]), KINDS)


def frame(wall: LiveWall, of: ClusterView) -> LiveFrame:
    steps = wall.steps(of)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: LiveFrame = end.value
            return made


def fresh(of: ClusterView, base_ns: int) -> LiveFrame:
    """The frame of one who judges every node."""
    naive = LiveWall()
    naive._base_ns = base_ns
    return frame(naive, of)


def renew(of: ClusterView, name: str) -> None:
    now_ns = of.outlook.now_ns
    metadata = LeaseMeta(name=name, namespace="kube-node-lease")
    lease = Lease(
        metadata=metadata, spec=LeaseSpec(holder_identity=name, renew_time=MicroTime(now_ns))
    )
    of.outlook.cache.set("Lease", ("kube-node-lease", name), lease)
    heartbeat = of.outlook.cache.heartbeat(name)
    assert heartbeat is not None
    heartbeat.observe(now_ns, now_ns)


def change_something(of: ClusterView, chance: random.Random) -> None:
    cache = of.outlook.cache
    name = chance.choice(sorted(cache.nodes))
    node = cache.nodes[name]
    match chance.randrange(4):
        case 0:
            spec = replace(node.spec, unschedulable=not node.spec.unschedulable)
            cache.set("Node", ("", name), replace(node, spec=spec))
        case 1:
            pod = next((pod for pod in cache.pods_on(name)), None)
            if pod is not None:
                cache.set("Pod", pod.key, None)
        case 2:
            metadata = ObjectMeta(name=f"new-{chance.random()}", namespace="default", uid="u")
            pod = Pod(metadata=metadata)
            spec = replace(pod.spec, node_name=name)
            cache.set("Pod", pod.key, replace(pod, spec=spec))
        case 3:
            conditions = tuple(
                replace(c, status=chance.choice(("True", "False", "Unknown")))
                if c.type == "Ready" else c
                for c in node.status.conditions
            )  # fmt: skip
            status = replace(node.status, conditions=conditions)
            cache.set("Node", ("", name), replace(node, status=status))


@pytest.mark.parametrize("seed", range(5))
def test_who_judges_few_nodes_says_the_same_as_who_judges_all(tmp_path: Path, seed: int) -> None:
    of, chance = view(tmp_path), random.Random(seed)
    wall = LiveWall()
    base_ns = of.outlook.now_ns
    silent = set(chance.sample(sorted(of.outlook.cache.nodes), 5))
    told = None
    for _ in range(120):
        made = frame(wall, of)
        assert made == fresh(of, base_ns)
        if told is not None and made.follows(told):
            told, _ = delta(told, made)
            for name, row in made.nodes.items():
                assert row.shows_the_same(told.nodes[name])
        else:
            told = made
        of.outlook.now_ns += chance.randrange(3 * SECOND_NS)
        for name in of.outlook.cache.nodes:
            if name not in silent and chance.random() < 0.3:
                renew(of, name)
        if chance.random() < 0.5:
            change_something(of, chance)


def test_a_quiet_cluster_costs_little(tmp_path: Path) -> None:
    of, wall = view(tmp_path), LiveWall()
    frame(wall, of)
    assert wall.judged == NODES
    for name in of.outlook.cache.nodes:
        renew(of, name)
    frame(wall, of)
    of.outlook.now_ns += SECOND_NS
    frame(wall, of)
    assert wall.judged <= 1  # the silent one
    healthy = sorted(of.outlook.cache.nodes)
    for second in range(60):
        of.outlook.now_ns += SECOND_NS
        for name in healthy[second % 10 :: 10]:
            renew(of, name)
        frame(wall, of)
        assert wall.judged <= 1  # a newer sign of life is no reason to judge
    silent = healthy[7]
    rows = {}
    for second in range(20):
        of.outlook.now_ns += SECOND_NS
        for name in healthy[second % 10 :: 10]:
            if name != silent:
                renew(of, name)
        rows = frame(wall, of).nodes
    assert WORST_FIRST[rows[silent].state] == "silent"  # and none is missed


def rows(*made: LiveNode) -> dict[str, LiveNode]:
    return {row.name: row for row in made}


def framed(nodes: dict[str, LiveNode], now_s: float = 0.0, **more: Any) -> LiveFrame:
    zone = WallZone("r/a", "Normal", 2, 0, 0.55, 0.1, 0, "", "")
    return LiveFrame(now_s, {"context": "here"}, "v1.36", more.get("zones", [zone]), nodes, [])


def test_only_what_differs_is_told() -> None:
    before = framed(rows(LiveNode("a", 0, 9, 3, 0), LiveNode("b", 0, 9, 3, 0)))
    assert delta(before, framed(before.nodes, 1.0))[1] == {}
    lost = LiveNode("a", 0, 1, 3, 2, "DeletePod x/y", 30.0, 30.0)
    after = framed(rows(lost), 2.0)
    known, told = delta(before, after)
    assert told == {"now": 2.0, "nodes": [lost], "gone": ["b"]}
    assert known == after
    assert msgspec.json.encode(lost) == b'["a",0,1,3,2,"DeletePod x/y",30.0,30.0,0]'


def test_small_moves_are_told_when_they_add_up() -> None:
    known = framed(rows(LiveNode("a", 0, 3, 1, 0, "x", 30.0, 31.0)))
    told = []
    for step in range(1, 11):
        moved = LiveNode("a", 0, 3, 1, 0, "x", 30.0 + step / 5, 31.0)
        known, document = delta(known, framed(rows(moved), float(step)))
        told += [node.low_s for node in document.get("nodes", ())]
    assert told == [30.6, 31.2, 31.8]


def test_another_list_of_zones_wants_a_snapshot() -> None:
    before, after = framed({}), framed({}, zones=[])
    assert before.follows(before) and not after.follows(before)
    snapshot = msgspec.json.decode(msgspec.json.encode(before.snapshot()))
    assert snapshot["states"] == list(WORST_FIRST) and snapshot["zones"][0]["notReady"] == 0


def test_works_are_nodes_that_are_emptied_and_sets_that_roll_out(tmp_path: Path) -> None:
    cache: Cache = view(tmp_path).outlook.cache
    assert works_of(cache) == []
    node = cache.nodes[min(cache.nodes)]
    moving = Pod(metadata=ObjectMeta(name="web", namespace="default", uid="u"))
    moving = replace(moving, spec=replace(moving.spec, node_name=node.name))
    cache.set("Pod", moving.key, moving)
    spec = replace(node.spec, unschedulable=True)
    cache.set("Node", ("", node.name), replace(node, spec=spec))
    assert works_of(cache) == []  # cordoned alone is no work in progress
    leaving = replace(moving.metadata, deletion_timestamp=1)
    cache.set("Pod", moving.key, replace(moving, metadata=leaving))
    status = DaemonSetStatus(
        desired_number_scheduled=4, updated_number_scheduled=2, number_available=3
    )
    wanted = DaemonSet(metadata=ObjectMeta(name="agent", namespace="kube-system"), status=status)
    cache.set("DaemonSet", wanted.key, wanted)
    found = {work.kind: work for work in works_of(cache)}
    assert found["DaemonSet"].done == 2 and found["DaemonSet"].total == 4
    assert "no pod left to evict, 1 pod is Terminating" in found["Node"].sentence
    assert isinstance(cache.nodes[node.name], Node)
