"""Room elsewhere for what leaves a node: row 14 of the decision vectors, and edges."""

from typing import Any

from kubectl_nodelife.upgrade.answers import RoomElsewhere
from tests.drain.build import Json, node, replica_set, snapshot


def cluster(pods: list[Json], nodes: int = 10, **more: Any) -> RoomElsewhere:
    made = [obj for i in range(nodes) for obj in node(f"n{i}", cpu="4", **more)]
    return RoomElsewhere(snapshot(made, pods), 10.0)


def pods_of(name: str, cpu: str, *places: str) -> list[Json]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return replica_set(name, *places, spec={"containers": containers})


def full() -> list[Json]:
    """Ten nodes with 32 cpu requested in all, 3.2 on each, in pods of 0.1."""
    places = [f"n{i}" for i in range(10) for _ in range(32)]
    return pods_of("web", "100m", *places)


def keys(node: int) -> list[tuple[str, str]]:
    return [("default", f"web-{node * 32 + i}") for i in range(32)]


def test_14_low_water_holds_the_second_node() -> None:
    room = cluster(full())
    assert room.shortage("n0", keys(0), {}) == ""
    found = room.shortage("n1", keys(1), {"n0": keys(0)})
    assert found.startswith("0 % of cpu would stay free, --low-water asks for 10 %")


def test_asking_leaves_nothing_behind() -> None:
    room = cluster(full())
    assert room.shortage("n0", keys(0), {}) == ""
    assert room.shortage("n1", keys(1), {}) == "", "what was asked of n0 was a question only"


def test_a_pod_that_fits_nowhere_is_named() -> None:
    pods = pods_of("big", "3", "n0", "n1", "n2")
    room = cluster(pods, nodes=3)
    found = room.shortage("n0", [("default", "big-0")], {})
    assert found.startswith("pod default/big-new-1 finds no node: ")
    assert "Insufficient cpu" in found


def test_a_pod_that_nobody_replaces_needs_no_room() -> None:
    assert cluster([], nodes=2).shortage("n0", [("default", "gone")], {}) == ""
