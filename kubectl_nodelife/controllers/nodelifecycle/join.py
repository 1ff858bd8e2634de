"""Starts beside a running controller, with the memory that its writes imply (join).

There is no upstream to follow. Nodes already there are known, taints in place are done work, an
Unknown node keeps its state, and zone states are taken over without a transition. What cannot be
seen from outside (tokens, the order of the queue, the phase of the passes) starts at its most
likely value; reports give it as a range.
"""

from __future__ import annotations

from kubectl_nodelife.controllers.nodelifecycle.classic import NODE_LOST
from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import NO_EXECUTE_TAINTS
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, compute_zone_state
from kubectl_nodelife.engine.cache import Cache, ListFailed
from kubectl_nodelife.kube.node import Node


def take_over(memory: Memory, cache: Cache, now_ns: int) -> None:
    """Fill the controller's memory from the cache."""
    zones = memory.zones
    for name, node in sorted(cache.nodes.items()):
        memory.known[name] = node
        ready = node.ready()
        zone = zones.count(node, ready)
        zones.ensure(zone)
        memory.health[name] = _health(node, cache, now_ns, memory)
        if ready is not None and memory.settings.taint_mode:
            taints = NO_EXECUTE_TAINTS.get(ready.status)
            if taints is not None and node.has_taint(taints[0].key, taints[0].effect):
                _turn_has_come(memory, zone, node, now_ns)
        elif ready is not None and ready.status != "True" and _is_evicted(name, cache):
            _turn_has_come(memory, zone, node, now_ns)
            if memory.settings.profile.has("evicted_node_map"):
                memory.evicted_nodes.add(name)
    _take_over_states(memory, now_ns)
    if memory.begins_cold:
        memory.watch_afresh(now_ns)


def _turn_has_come(memory: Memory, zone: str, node: Node, now_ns: int) -> None:
    """The zone's queue remembers the node, and does not hold it."""
    memory.zones.queues[zone].add(node.name, node.uid, now_ns)
    memory.zones.queues[zone].remove_from_queue(node.name)


def _is_evicted(name: str, cache: Cache) -> bool:
    """The classic eviction gives every pod of a node this reason, those of DaemonSets too."""
    try:
        return any(pod.status.reason == NODE_LOST for pod in cache.pods_on(name))
    except ListFailed:
        return False


def _health(node: Node, cache: Cache, now_ns: int, memory: Memory) -> NodeHealth:
    """The entry that a controller which saw every heartbeat in time would hold, if one of its
    passes began now, or then when it is known to begin.
    """
    period_ns = memory.settings.node_monitor_period_ns
    ready = node.ready()
    created = int(node.metadata.creation_timestamp or 0)
    pass_ns = now_ns if memory.joined_pass_ns is None else memory.joined_pass_ns
    if ready is None:
        return NodeHealth(None, created, created)
    heartbeat = cache.heartbeat(node.name)
    renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
    transition = int(ready.last_transition_time or created)
    posted = ready.last_heartbeat_time
    probe = created if posted is None else int(posted)
    if not memory.leases_count:
        return NodeHealth(ready, _noticed_ns(probe, pass_ns, period_ns), transition)
    if renewal is None:
        # Without a lease nothing tells how old the last sign of life is: it may be this moment's.
        return NodeHealth(ready, now_ns, transition)
    renew_ns = renewal[0]
    if renew_ns is not None:
        renewed = min(renew_ns, now_ns)
        probe = renewed if posted is None else max(probe, renewed)
    probe = _noticed_ns(probe, pass_ns, period_ns)
    return NodeHealth(ready, probe, transition, True, renew_ns)


def _noticed_ns(sign_ns: int, pass_ns: int, period_ns: int) -> int:
    """When the first pass begins that notices a sign of life: periods before `pass_ns`, or then."""
    return pass_ns - max(0, pass_ns - sign_ns) // period_ns * period_ns


def _take_over_states(memory: Memory, now_ns: int) -> None:
    """Zone states as the conditions show them, limiters to match."""
    zones = memory.zones
    threshold = memory.settings.unhealthy_zone_threshold
    counts = zones.counts()
    states = {zone: compute_zone_state(*count, threshold) for zone, count in counts.items()}
    dark = bool(states) and all(state == FULL for state in states.values())
    for zone, state in states.items():
        zones.states[zone] = state
        rate = 0.0 if dark else memory.eviction_rate(state, sum(counts[zone]))
        zones.queues[zone].swap_limiter(rate, now_ns)
