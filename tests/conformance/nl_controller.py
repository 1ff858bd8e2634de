"""Node lifecycle vectors that drive the controller, step by step."""

from collections.abc import Callable
from typing import Any

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.eviction import eviction_pass
from kubectl_nodelife.controllers.nodelifecycle.monitor import monitor_node_health
from kubectl_nodelife.controllers.nodelifecycle.taints import no_schedule_pass, reconcile_labels
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.node import Node, Taint
from tests.conformance.nl_checks import check
from tests.conformance.nl_world import Tireless, World
from tests.conformance.world import decode, instant_ns


def _patch_status(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}, "status": step["status"]}
    status = decode(raw, Node).status
    world.nodes[step["node"]] = msgspec.structs.replace(node, status=status)


def _set_labels(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    metadata = msgspec.structs.replace(node.metadata, labels=step["labels"])
    world.nodes[step["node"]] = msgspec.structs.replace(node, metadata=metadata)


def _remove_taint(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    taint = Taint(key=step["taint"]["key"], effect=step["taint"]["effect"])
    kept = tuple(t for t in node.spec.taints if not t.matches(taint))
    spec = msgspec.structs.replace(node.spec, taints=kept)
    world.nodes[step["node"]] = msgspec.structs.replace(node, spec=spec)


def _fail_next(world: World, step: dict[str, Any]) -> None:
    if step["call"] == "list_pods_on_node":
        world.cache.failing_lists = step["times"]
    else:
        assert step["call"] in ("update_pod_status", "delete_pod"), step["call"]
        world.fail[step["call"]] = step["times"]


def _node_worker(part: str) -> Callable[[World, dict[str, Any]], None]:
    def run(world: World, step: dict[str, Any]) -> None:
        node = world.cache.node(step["node"])
        if node is None:
            return
        beta = world.settings.profile.has("beta_labels_are_truth")
        if part == "labels":
            world.carry_out(reconcile_labels(node, beta, None))
        else:
            world.carry_out(no_schedule_pass(node, world.now_ns, None))

    return run


def _process_pod(world: World, step: dict[str, Any]) -> None:
    pod = world.cache.pod(step["namespace"], step["pod"])
    if pod is not None:
        world.carry_out(world.controller.process_pod(pod, world.cache, world.now_ns))


def _eviction(taint_mode: bool) -> Callable[[World, dict[str, Any]], None]:
    def run(world: World, _: dict[str, Any]) -> None:
        assert world.settings.taint_mode is taint_mode
        memory = world.controller.memory
        for queue in memory.zones.queues.values():
            if isinstance(queue.limiter, TokenBucket) and queue.limiter.qps >= 10_000:
                queue.limiter = Tireless(queue.limiter.qps, 1)
        world.carry_out(eviction_pass(memory, world.cache, world.now_ns))

    return run


OPERATIONS: dict[str, Callable[[World, dict[str, Any]], None]] = {
    "set_time": lambda w, s: setattr(w, "now_ns", instant_ns(s["t"])),
    "sync_nodes": lambda w, s: w.sync_nodes(),
    "monitor": lambda w, s: w.carry_out(
        monitor_node_health(w.controller.memory, w.cache, w.now_ns)
    ),
    "noexecute_pass": _eviction(True),
    "evict_pass": _eviction(False),
    "noschedule_pass": _node_worker("taints"),
    "reconcile_labels": _node_worker("labels"),
    "process_pod": _process_pod,
    "put_node_status": _patch_status,
    "put_node": lambda w, s: w.put_node(s["node"]),
    "delete_node": lambda w, s: w.nodes.pop(s["node"]) and None,
    "set_node_labels": _set_labels,
    "remove_taint": _remove_taint,
    "set_leases": lambda w, s: w.set_leases(s["leases"]),
    "set_live_leases": lambda w, s: w.set_live_leases(s["leases"], s.get("errors")),
    "set_lease_store_version": lambda w, s: w.set_lease_store_version(s["version"]),
    "fail_next": _fail_next,
    "expect": lambda w, s: check(w, s["expect"]),
}


def run(case: dict[str, Any]) -> None:
    """Drive one vector; one of profile `any` in the oldest and the newest behaviour."""
    if case["profile"] != "any":
        run_in(case)
        return
    run_in(case | {"profile": "current"})
    if not case.get("requires"):
        run_in(case | {"profile": "v1.16"})


def run_in(case: dict[str, Any]) -> None:
    """Drive one vector in its one profile."""
    world = World(case)
    for step in case.get("steps", []):
        OPERATIONS[step["op"]](world, step)
    check(world, case["expect"])
    check(world, case.get("expect_derived", {}))


TOPICS: dict[str, Callable[[dict[str, Any]], None]] = {
    **dict.fromkeys(
        (
            "monitor-zone-states",
            "node-status-updates",
            "pods-not-ready",
            "health-entry",
            "node-events",
            "disruption-exclusion",
            "noexecute-taints",
            "classic-eviction",
            "classic-eviction-disruption",
            "noschedule-taints",
            "label-reconcile",
        ),
        run,
    ),
}
