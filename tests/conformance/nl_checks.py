"""What node lifecycle vectors expect of the world, key by key."""

from collections.abc import Callable
from typing import Any

from kubectl_nodelife.controllers.nodelifecycle.zones import is_excluded
from kubectl_nodelife.kube.node import Node, Taint
from tests.conformance.nl_world import World
from tests.conformance.world import decode, seconds, whole_seconds


def check(world: World, expect: dict[str, Any]) -> None:
    """Hold the world against expectations; an unknown key raises KeyError."""
    for key, wanted in expect.items():
        EXPECTATIONS[key](world, wanted)


def short(taint: Taint) -> str:
    return f"{taint.key}:{taint.effect}"


def _check_taints(world: World, wanted: dict[str, Any]) -> None:
    for name, lists in wanted.items():
        have = {short(t) for t in world.nodes[name].spec.taints}
        for how, names in lists.items():
            assert how in ("present", "absent", "exact"), how
            if how == "present":
                assert have >= set(names), (name, have)
            elif how == "absent":
                assert not have & set(names), (name, have)
            else:
                assert have == set(names), (name, have)


def _check_status_writes(world: World, wanted: list[dict[str, Any]]) -> None:
    """The API stores whole seconds (`metav1.Time`); vectors may name fractions."""
    assert [w["node"] for w in wanted] == [name for name, _ in world.status_writes]
    for write_, (name, node) in zip(wanted, world.status_writes, strict=True):
        raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status = decode(raw | {"status": whole_seconds(write_["status"])}, Node).status
        assert node.status == status


def _check_events(world: World, wanted: list[dict[str, Any]]) -> None:
    assert len(world.events) == len(wanted), world.events
    for event, want in zip(world.events, wanted, strict=True):
        assert {k: event[k] for k in want} == want


def _check_events_contain(world: World, wanted: list[dict[str, Any]]) -> None:
    for want in wanted:
        assert any({k: e[k] for k in want} == want for e in world.events), (want, world.events)


def _check_health(world: World, wanted: dict[str, Any]) -> None:
    for name, want in wanted.items():
        health = world.controller.memory.health[name]
        have = {"probe": health.probe_ns, "ready_transition": health.ready_transition_ns}
        for key, value in want.items():
            assert seconds(have[key]) == value, (name, key)


def _check_saved_ready(world: World, wanted: dict[str, Any]) -> None:
    for name, want in wanted.items():
        ready = world.controller.memory.health[name].ready
        assert (ready.status if ready else None) == want


def _check_queues(world: World, wanted: dict[str, Any]) -> None:
    queues = world.controller.memory.zones.queues
    for zone, names in wanted.items():
        assert sorted(queues[zone].waiting() if zone in queues else []) == sorted(names)


def _skipped(world: World) -> list[str]:
    """The nodes that count in no zone, though none is excluded."""
    memory = world.controller.memory
    return sorted(n for n in world.cache.nodes if not memory.zones.is_counted(n))


def _equal(read: Callable[[World], Any]) -> Callable[[World, Any], None]:
    def compare(world: World, wanted: Any) -> None:
        assert read(world) == wanted

    return compare


def _pod_reasons(world: World, wanted: dict[str, str]) -> None:
    reasons = {p.name: p.status.reason for p in world.cache.pods.values()}
    assert {name: reasons.get(name, "") for name in wanted} == wanted


def _labels(world: World, wanted: dict[str, Any]) -> None:
    assert {name: world.nodes[name].metadata.labels for name in wanted} == wanted


def _evictions(world: World, wanted: dict[str, int]) -> None:
    have = world.controller.memory.zones.evictions
    assert {zone: have.get(zone, 0) for zone in wanted} == wanted


EXPECTATIONS: dict[str, Callable[[World, Any], None]] = {
    "zone_states": _equal(lambda w: w.controller.memory.zones.states),
    "node_status_writes": _check_status_writes,
    "pod_status_written": _equal(lambda w: w.pod_writes > 0),
    "pod_status_write_count": _equal(lambda w: w.pod_writes),
    "pods_evicted": _equal(lambda w: bool(w.deleted)),
    "pods_deleted": _equal(lambda w: w.deleted),
    "pod_reasons": _pod_reasons,
    "node_taints": _check_taints,
    "node_labels": _labels,
    "zone_queue_exists": lambda w, z: _assert(set(z) <= set(w.controller.memory.zones.queues)),
    "zone_queue_contains": _check_queues,
    "evictions": _evictions,
    "events": _check_events,
    "events_contain": _check_events_contain,
    "health": _check_health,
    "saved_ready_status": _check_saved_ready,
    "lease_gets": _equal(lambda w: w.controller.memory.lease_reads),
    "skipped": lambda w, names: _assert(sorted(names) == _skipped(w)),
    "remembered": lambda w, names: _assert(sorted(names) == sorted(w.controller.memory.health)),
    "excluded": _equal(lambda w: is_excluded(next(iter(w.nodes.values())), w.settings)),
}


def _assert(condition: bool) -> None:
    assert condition
