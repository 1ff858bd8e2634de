"""From a lost node to its taint: nodes are queued by zone, and tainted, evicted or released at the
rate that the state of their zone allows.

Follows `processTaintBaseEviction`, `processNoTaintBaseEviction`, `markNodeForTainting`,
`markNodeAsReachable`, `doNoExecuteTaintingPass` and `doEvictionPass` of
pkg/controller/nodelifecycle, in a loop of 100 ms; the older eviction without taints, which deletes
the pods of a node that was lost for pod-eviction-timeout, also `DeletePods` and
`SetPodTerminationReason` of v1.16's pkg/controller/util/node. No release has that since 1.27.

The rates follow `handleDisruption` of node_lifecycle_controller.go, which judges the zones at the
end of a monitor pass, with the case that all zones are fully disrupted. The taints that go then are
taken off before (`monitor.continue_pass`), since that takes its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.health import HealthUpdate, NodeHealth
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import (
    CONTROLLER,
    NO_EXECUTE_TAINTS,
    NOT_READY,
    UNREACHABLE,
    remove_taints,
    swap_taints,
    why,
)
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    INITIAL,
    PARTIAL,
)
from kubectl_nodelife.engine.actions import (
    Action,
    AfterWrites,
    DeletePod,
    QueueNode,
    RecordEvent,
    Requeue,
    SetPodReason,
    SetZoneState,
    UnqueueNode,
    of_node,
    of_object,
    of_pod,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import TurnPart
from kubectl_nodelife.engine.workqueue import TimedValue
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint, zone_display
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MILLISECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NODE_LOST
from kubectl_nodelife.kube.workload import DaemonSet

EVICTED: Final = "evicted"
"""The key of the turn in which the writes of the loop are done."""

ALL_DARK: Final = "no zone has a single ready node: the fault may be this side's, evictions stop"

_NO_READY_RETRY_NS: Final = 50 * MILLISECOND_NS
_AFTER_BUG_NS: Final = 60_000 * MILLISECOND_NS


def taint_or_release(
    memory: Memory, node: Node, zone: str, verdict: HealthUpdate, now_ns: int
) -> Iterable[Action]:
    """The decision after the health update. Follows `processTaintBaseEviction`."""
    on_current = memory.decides_on_current
    deciding = verdict.current if on_current else verdict.observed
    assert deciding is not None
    status = deciding.status
    if status == "True":
        return mark_reachable(memory, node, zone, "the node is Ready")
    taints = NO_EXECUTE_TAINTS.get(status)
    if taints is None:
        return ()
    wanted, other = taints
    if node.has_taint(other.key, other.effect):
        because = f"Ready turned {status}: the taint is exchanged at once, whatever the rate"
        cause = memory.ready_cause.get(node.name)
        swapped = swap_taints(node, (wanted,), (), now_ns, because, cause)
        return [*swapped, *_take_off(memory, node, other, because, cause)]
    return _queue_for_tainting(memory, node, zone, wanted, status, now_ns)


def _queue_for_tainting(
    memory: Memory, node: Node, zone: str, wanted: Taint, status: str, now_ns: int
) -> Iterator[Action]:
    """Later releases queue a node anew while it lacks its taint. Follows `markNodeForTainting`."""
    queue = memory.zones.queues[zone]
    waited = queue.is_waiting(node.name)
    anew = memory.requeues_untainted and not node.has_taint(wanted.key, wanted.effect)
    if anew:
        queue.remove(node.name)
    earlier_ns = memory.zones.queued_earlier_ns(zone, node.name)
    standing = anew and not earlier_ns
    if queue.add(node.name, node.uid, now_ns - earlier_ns, standing=standing) and not waited:
        because = (
            f"Ready is {status}: it waits for its zone's rate limiter "
            f"({memory.zones.rate(zone):g} nodes a second in {zone_display(zone) or 'no zone'})"
        )
        yield _queued(memory, node, zone, because)


def _queued(memory: Memory, node: Node, zone: str, because: str) -> QueueNode:
    """The node has come into the queue: that is the cause of what comes of it."""
    cause = memory.ready_cause.get(node.name)
    queued = QueueNode(**why(because, cause), **of_node(node), zone=zone)
    memory.queued_cause[node.name] = queued
    return queued


def mark_reachable(memory: Memory, node: Node, zone: str, because: str) -> list[Action]:
    """Take off both NoExecute taints and leave the queue. Follows `markNodeAsReachable`.

    `zone`: the node's present one.
    """
    decided: list[Action] = []
    if memory.settings.taint_mode and node.spec.taints:
        cause = memory.ready_cause.get(node.name)
        for taint in (UNREACHABLE, NOT_READY):
            decided += _take_off(memory, node, taint, because, cause)
    memory.evicted_nodes.discard(node.metadata.name)
    decided += leave_queue(memory, node, zone, because)
    return decided


def leave_queue(memory: Memory, node: Node, zone: str, because: str) -> tuple[Action, ...]:
    """Take the node out of the queue of its present zone, if it is there."""
    queue, name = memory.zones.queues.get(zone), node.metadata.name
    if queue is None or name not in queue:
        return ()
    waited = queue.is_waiting(name)
    queue.remove(name)
    return (_unqueue(memory, name, node.uid, zone, because),) if waited else ()


def _take_off(
    memory: Memory, node: Node, taint: Taint, because: str, cause: Action | None
) -> Iterator[Action]:
    """Remove a NoExecute taint that the cache shows, once in a pass.

    Upstream asks for it up to three times, and finds in each but the first that the API server
    shows it no more.
    """
    if (node.name, taint.key) in memory.taken_off or not node.has_taint(taint.key, taint.effect):
        return
    memory.taken_off.add((node.name, taint.key))
    yield from remove_taints(node, (taint,), because, cause)


def _unqueue(memory: Memory, node: str, uid: str, zone: str, because: str) -> UnqueueNode:
    cause = memory.ready_cause.get(node)
    return UnqueueNode(**why(because, cause), node=node, node_uid=uid, zone=zone)


def eviction_pass(
    memory: Memory, cache: Cache, now_ns: int
) -> Iterator[Action | Requeue | TurnPart]:
    """One round of the 100 ms loop: NoExecute taints, or the classic eviction.

    Follows `doNoExecuteTaintingPass` and `doEvictionPass`: what is written about one node is done
    before the next one's turn, in the zone `loop_zone`. A node at which we fail leaves its queue
    for a minute: put back at once it would take each token before the others.
    """
    begun, memory.loop_zone = memory.loop_zone, None
    _end_turn(memory, cache)
    for zone, queue in sorted(memory.zones.queues.items()):
        if begun is not None and zone < begun:
            continue
        actions: list[Action | Requeue | TurnPart] = []
        act_on = partial(_act_on, memory, zone, cache, actions)
        if queue.try_(act_on, lambda: now_ns, until=partial(_writes, actions)):
            memory.loop_zone = zone
            yield from (a for a in actions if isinstance(a, TurnPart))
            alone = [a for a in actions if not isinstance(a, TurnPart)]
            wait = AfterWrites(controller=CONTROLLER, key=(EVICTED, ""))
            yield TurnPart(CONTROLLER, ("Zone", ("", zone)), [*alone, wait])
            return
        yield from actions


def _act_on(
    memory: Memory,
    zone: str,
    cache: Cache,
    out: list[Action | Requeue | TurnPart],
    entry: TimedValue,
    now_ns: int,
) -> tuple[bool, int]:
    """One node's turn in the queue of its zone."""
    act = _taint_node if memory.settings.taint_mode else _evict_node
    decided: list[Action] = []
    try:
        answer = act(memory, entry, zone, cache, now_ns, decided)
    except Exception as error:
        name = entry.value
        out.append(TurnPart(CONTROLLER, ("Node", ("", name)), fail(error)))
        out.append(Requeue(CONTROLLER, ("node", name), now_ns + _AFTER_BUG_NS))
        return True, 0
    out += decided
    return answer


def _writes(decided: Iterable[Action | Requeue | TurnPart]) -> bool:
    """True if the loop goes on only once something is written."""
    return any(isinstance(a, Action) and a.writes for a in decided)


def fail(error: Exception, decided: Iterable[Action] = ()) -> Iterator[Action]:
    """A part of the turn that could not be taken, or not beyond what is decided."""
    yield from decided
    raise error


def _taint_node(
    memory: Memory, entry: TimedValue, zone: str, cache: Cache, now_ns: int, out: list[Action]
) -> tuple[bool, int]:
    node = cache.node(entry.value)
    if node is None:
        out.append(_unqueue(memory, entry.value, entry.uid, zone, "the node is gone"))
        return True, 0
    ready = _ready_as_written(memory, node)
    if ready is None:
        return False, _NO_READY_RETRY_NS
    taints = NO_EXECUTE_TAINTS.get(ready.status)
    if taints is None:
        because = f"its turn came, and Ready is {ready.status}"
        out.append(_unqueue(memory, node.name, node.uid, zone, because))
    else:
        wanted, other = taints
        because = (
            f"Ready is {ready.status} and the limiter of {zone_display(zone) or 'its zone'} "
            f"gave a token ({memory.zones.rate(zone):g} nodes a second)"
        )
        cause = memory.queued_cause.get(node.name)
        out += swap_taints(node, (wanted,), (other,), now_ns, because, cause)
        present = memory.zones.key(node)  # it may have left the zone of this queue
        memory.zones.evictions[present] = memory.zones.evictions.get(present, 0) + 1
    return True, 0


def _ready_as_written(memory: Memory, node: Node) -> NodeCondition | None:
    """The condition Ready as the pass wrote it, where the cache is yet to show that: else a token
    would be spent on a node that looks as if it were Ready. A newer heartbeat means that it is.
    """
    shown, health = node.ready(), memory.health.get(node.name)
    is_ours = health is not None and health.posted_uid == node.uid
    written = health.ready if health is not None and is_ours else None
    if shown is None or written is None:
        return shown
    return written if written.last_heartbeat_time == shown.last_heartbeat_time else shown


def evict_or_cancel(
    memory: Memory,
    node: Node,
    health: NodeHealth,
    status: str,
    pods: Iterable[Pod],
    cache: Cache,
    now_ns: int,
    *,
    by_pod_worker: bool = False,
) -> Iterable[Action]:
    """Queue a node that is lost for long enough, and delete `pods` once its turn was: in each pass,
    or by a pod's worker. Follows `processNoTaintBaseEviction` and `evictPods`.
    """
    zone = memory.zones.key(node)
    if status == "True":
        return mark_reachable(memory, node, zone, "the node is Ready")
    timeout_ns = memory.settings.pod_eviction_timeout_ns
    since_ns = health.ready_transition_ns if status == "False" else health.probe_ns
    if status not in ("False", "Unknown") or now_ns <= since_ns + timeout_ns:
        return ()
    if node.name in memory.evicted_nodes:
        because = f"the pods of node {node.name} were evicted before"
        cause = memory.ready_cause.get(node.name)
        return delete_pods(
            node.name, node, pods, cache, because, cause, by_pod_worker=by_pod_worker
        )
    queue = memory.zones.queues.get(zone)  # a pod's worker may be ahead of a new zone's first pass
    if queue is not None and queue.add(node.name, node.uid, now_ns):
        because = (
            f"Ready is {status} for {format_duration(now_ns - since_ns)}, "
            f"longer than pod-eviction-timeout {format_duration(timeout_ns)}"
        )
        return (_queued(memory, node, zone, because),)
    return ()


def _evict_node(
    memory: Memory, entry: TimedValue, zone: str, cache: Cache, now_ns: int, out: list[Action]
) -> tuple[bool, int]:
    node = cache.node(entry.value)
    because = f"the eviction queue of {zone_display(zone) or 'its zone'} reached the node"
    cause = memory.queued_cause.get(entry.value)
    pods = cache.pods_on(entry.value)
    out += delete_pods(entry.value, node, pods, cache, because, cause)
    if node is not None:
        memory.zones.evictions[zone] = memory.zones.evictions.get(zone, 0) + 1
    memory.evicting = entry.value
    if not _writes(out):
        _end_turn(memory, cache)
    return True, 0


def _end_turn(memory: Memory, cache: Cache) -> None:
    """The pods of the node whose turn it was are deleted, unless a write has failed: then no status
    is set, and the node is in its queue again.
    """
    evicted, memory.evicting = memory.evicting, ""
    if evicted in cache.nodes and memory.settings.profile.has("evicted_node_map"):
        memory.evicted_nodes.add(evicted)


def delete_pods(
    name: str,
    node: Node | None,
    pods: Iterable[Pod],
    cache: Cache,
    because: str,
    cause: Action | None,
    *,
    by_pod_worker: bool = False,
) -> Iterator[Action]:
    """Give every pod of the node the reason NodeLost, and delete those that no DaemonSet wants
    there.

    Follows `DeletePods`. Pods that terminate already are not deleted again. What is left out where
    a write fails says `engine.dependent_writes`.
    """
    here = [pod for pod in pods if pod.spec.node_name == name]
    if here:
        yield RecordEvent(
            **why(because, cause),
            kind="Node",
            name=name,
            object_uid=node.uid if node else "",
            reason="DeletingAllPods",
            message=f"Node {name} event: Deleting all Pods from Node {name}.",
        )
    for pod in here:
        yield from _delete_pod(pod, name, cache, because, cause, by_pod_worker)


def _delete_pod(
    pod: Pod, name: str, cache: Cache, because: str, cause: Action | None, by_pod_worker: bool
) -> Iterator[Action]:
    meta = pod.metadata
    if pod.status.reason != NODE_LOST:
        yield SetPodReason(
            **why(because, cause),
            **of_pod(pod),
            reason=NODE_LOST,
            message=f"Node {name} which was running pod {meta.name} is unresponsive",
            by_pod_worker=by_pod_worker,
        )
    if meta.deletion_grace_period_seconds is not None or belongs_to_daemon_set(pod, cache):
        return
    delete = DeletePod(**why(because, cause), **of_pod(pod), by_pod_worker=by_pod_worker)
    yield delete
    yield RecordEvent(
        **why(because, delete),
        kind="Pod",
        **of_object(pod),
        reason="NodeControllerEviction",
        message=f"Marking for deletion Pod {meta.name} from Node {name}",
    )


def belongs_to_daemon_set(pod: Pod, cache: Cache) -> bool:
    """True if some DaemonSet of the namespace selects the pod. Follows `GetPodDaemonSets`."""
    labels = pod.metadata.labels
    if not labels:
        return False
    for obj in cache.all("DaemonSet"):
        if isinstance(obj, DaemonSet) and obj.namespace == pod.namespace:
            selector = obj.spec.selector
            if selector is None or not (selector.match_labels or selector.match_expressions):
                continue
            if matches(selector, labels):
                return True
    return False


def handle_disruption(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action]:
    """Compare the zones' new states with the old ones and set their rates."""
    zones = memory.zones
    counts, states = zones.counts(), memory.states_of_counts()
    for zone in states:
        zones.states.setdefault(zone, INITIAL)
    all_are = all(state == FULL for state in states.values())
    all_were = all(zones.states[zone] == FULL for zone in states)
    zones.forget_uncounted(counts.keys())
    if all_are and all_were:
        return
    if all_are:
        yield from _stop_everything(memory, states, now_ns)
        return
    for zone in zones.states.keys() - states.keys():
        zones.states[zone] = INITIAL  # of no state that would bring another rate
    if all_were:
        _count_afresh(memory, cache, now_ns)
    for zone, state in states.items():
        if all_were or zones.states[zone] != state:
            rate = memory.eviction_rate(state, sum(counts[zone]))
            zones.queues[zone].swap_limiter(rate, now_ns)
            yield from _set_zone_state(memory, zone, state, _why_state(memory, zone, state))


def all_turn_dark(memory: Memory) -> bool:
    """True if no zone has a ready node any more, while the last pass found one."""
    states = memory.states_of_counts()
    were = (memory.zones.states.get(zone, INITIAL) == FULL for zone in states)
    return all(state == FULL for state in states.values()) and not all(were)


def _stop_everything(memory: Memory, states: dict[str, str], now_ns: int) -> Iterator[Action]:
    """Every zone is dark, so the fault is likely ours: all taints are off, all queues stop."""
    for zone in list(memory.zones.states):
        memory.zones.queues[zone].swap_limiter(0, now_ns)
        if zone in states:
            yield from _set_zone_state(memory, zone, FULL, ALL_DARK)
        else:  # a zone that is not counted, not forgotten yet
            memory.zones.states[zone] = FULL


def _count_afresh(memory: Memory, cache: Cache, now_ns: int) -> None:
    """The full disruption is over: silence in it does not count."""
    for name, health in memory.health.items():
        if name in cache.nodes:
            health.probe_ns = health.ready_transition_ns = now_ns
            memory.look_at.add(name)


def _set_zone_state(memory: Memory, zone: str, state: str, because: str) -> Iterator[Action]:
    before, (ready, not_ready) = memory.zones.states[zone], memory.zones.counts()[zone]
    memory.zones.states[zone] = state
    yield SetZoneState(
        **why(because, memory.last_loss),
        zone=zone,
        from_=before,
        to=state,
        rate=memory.zones.rate(zone),
        not_ready=not_ready,
        nodes=ready + not_ready,
    )


def _why_state(memory: Memory, zone: str, state: str) -> str:
    """The comparison that decided, with its numbers."""
    settings = memory.settings
    ready, not_ready = memory.zones.counts()[zone]
    size = ready + not_ready
    share = f"{not_ready} of {size} nodes not ready"
    threshold = f"unhealthy-zone-threshold {settings.unhealthy_zone_threshold:g}"
    if state == FULL:
        return f"{share}, in other zones some are: nodes are tainted at the normal rate"
    if state == PARTIAL:
        large = settings.large_cluster_size_threshold
        relation = "more than" if size > large else "not more than"
        rate = "the secondary rate" if size > large else "nothing is tainted"
        return (
            f"{share}, at least 3 and a share of {not_ready / size:.2f} against {threshold}; "
            f"{relation} {large} nodes: {rate}"
        )
    return f"{share}, less than 3 or a smaller share than {threshold}"
