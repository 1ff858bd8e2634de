"""The monitor pass: which nodes are new, gone, silent or back, and what follows for each.

Follows `monitorNodeHealth`, `classifyNodes` and `handleDisruption` of
pkg/controller/nodelifecycle/node_lifecycle_controller.go. A pass looks only at nodes that changed
or whose time may be over; `health.py` says why that is the same as looking at all. Each node is a
part of its own: one at which we fail is looked at again in the next pass, and the others go on.

The pods of a lost node get the condition Ready=False, as `MarkPodsNotReady` of
pkg/controller/util/node/controller_utils.go does it: phase and termination do not matter there, and
a pod without the condition is not touched.

At the end of a pass `eviction.py` judges the zones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from heapq import heappop
from typing import Final, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle import eviction
from kubectl_nodelife.controllers.nodelifecycle.health import (
    HealthUpdate,
    NodeHealth,
    posted,
    update_node_health,
)
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory, OpenPass
from kubectl_nodelife.controllers.nodelifecycle.taints import (
    CONTROLLER,
    NOT_READY,
    UNREACHABLE,
    why,
)
from kubectl_nodelife.engine.actions import (
    Action,
    AfterWrites,
    MarkPodNotReady,
    ReadLeases,
    RecordEvent,
    SetNodeConditions,
    of_node,
    of_object,
    of_pod,
)
from kubectl_nodelife.engine.cache import Cache, ListFailed
from kubectl_nodelife.engine.controller import TurnPart
from kubectl_nodelife.engine.events import Change
from kubectl_nodelife.engine.heartbeat import Heartbeat
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import format_duration, whole_seconds
from kubectl_nodelife.kube.wellknown import NO_EXECUTE

CHECKED: Final = "checked"
"""With a node's name the key of the turn in which the writes about it are done."""
PASS_ENDED: Final = "pass-ended"

_PAUSE_AFTER: Final = 64
"""Of so many nodes at which nothing is decided one is yielded: a live driver may pause there."""


def note(memory: Memory, change: Change, now_ns: int) -> None:
    """Mark a node for the next pass."""
    obj = change.new or change.old
    if obj is None:
        return
    if change.new is None:
        memory.gone.add(obj.name)
        memory.unseen_since.setdefault(obj.name, now_ns)
        memory.retry.discard(obj.name)
        memory.unconfirmed.discard(obj.name)
        memory.evicted_nodes.discard(obj.name)
        return
    memory.look_at.add(obj.name)
    if change.kind == "Node" and change.cause is not None:
        old, new = cast("Node | None", change.old), cast(Node, change.new)
        if _ready_status(old) != _ready_status(new):
            memory.ready_cause[obj.name] = memory.last_loss = change.cause


def monitor_node_health(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action | TurnPart]:
    """One monitor pass, as far as it gets before it must wait for writes (`continue_pass`).

    Follows `monitorNodeHealth`.
    """
    yield from _begin_pass(memory, cache, now_ns)
    yield from continue_pass(memory, cache, now_ns)


def _begin_pass(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action | TurnPart]:
    """What the pass must look at."""
    memory.passes.begin(now_ns)
    memory.taken_off.clear()
    memory.doubts.clear()
    silent = set(memory.silent)
    look_at = memory.look_at | memory.retry | set(_expired(memory, now_ns))
    if memory.reads_leases and cache.leases_seen_until() is not None:
        look_at |= silent  # a GET of their Leases shows writes that the watch does not
    unplaced = _place(memory, cache)
    look_at |= memory.zones.nodes_of_stateless()
    changed = sorted(look_at | memory.gone)
    added = yield from _classify(memory, cache)
    for queue in memory.zones.queues.values():
        queue.renew(now_ns, apart_from=changed)
    memory.look_at = set(unplaced)
    for name, error in unplaced.items():
        yield part(name, eviction.fail(error))
    names = sorted(look_at - unplaced.keys())
    open_pass = memory.open_pass = OpenPass(cache.nodes.copy(), added, names)
    if memory.is_held_up(cache):
        open_pass.held_up_from = ""
        memory.passes.leave_out_last()
    elif memory.reads_leases:  # those that are not looked at, since their answers cannot differ
        more = len(silent - look_at)
        memory.lease_reads += more
        shares = [(more + n) // memory.workers for n in range(memory.workers)]
        open_pass.only_read = [share for share in shares if share]


def continue_pass(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action | TurnPart]:
    """Go on with the pass that is open: new nodes one after another, then all, as many at once as
    there are workers; a worker is busy until the writes about its node are done. Then the zones.

    A node is looked at when its turn comes, in a long pass much later than it began. Follows
    `updateNodeFunc` of `monitorNodeHealth`.
    """
    open_pass = memory.open_pass
    if open_pass is None:
        return
    while open_pass.added and not open_pass.busy:
        node = memory.known.get(open_pass.added.pop(0))
        if node is not None:
            yield _worker(open_pass, node.name, list(_register(memory, node)))
    if open_pass.added or open_pass.ended:
        return
    if open_pass.names or open_pass.looked_at:
        memory.look_at.update(_expired(memory, now_ns))
        memory.look_at -= open_pass.include(memory.look_at)
    bugs, names, idle = cache.quarantine.bugs, open_pass.names, memory.workers - len(open_pass.busy)
    while names and idle:
        name = open_pass.looked_at = heappop(names)
        open_pass.taken += 1
        node = cache.nodes.get(name)
        if node is not None:
            if memory.taken_off:
                node = _as_listed(memory, open_pass, node)
            decided = check_apart(memory, node, cache, now_ns)
            if decided or bugs or open_pass.taken % _PAUSE_AFTER == 0:
                yield _worker(open_pass, name, decided)
                idle = memory.workers - len(open_pass.busy)
    while open_pass.only_read and not open_pass.names and len(open_pass.busy) < memory.workers:
        reads = ReadLeases(controller=CONTROLLER, count=open_pass.only_read.pop())
        yield _worker(open_pass, f"/{len(open_pass.only_read)}", [reads])
    if not open_pass.names and not open_pass.busy:
        yield from _end_pass(memory, cache, now_ns)


def _as_listed(memory: Memory, open_pass: OpenPass, node: Node) -> Node:
    """The node with which its turn begins. One that this pass registers is looked at as it was
    listed, with the NoExecute taint that was taken off it since: that one is exchanged at once.
    """
    taken_off = any((node.name, t.key) in memory.taken_off for t in (NOT_READY, UNREACHABLE))
    return open_pass.nodes.get(node.name, node) if taken_off else node


def worker_is_free(memory: Memory, node: str, cache: Cache) -> None:
    """The writes about the node are done, and its Lease is read: where that was one which the watch
    has yet to show, nodes whose turn has not come are held up, and those that others look at
    meanwhile are not. Follows `EnsureReady`, which each node asks first.
    """
    open_pass = memory.open_pass
    assert open_pass is not None
    open_pass.busy.discard(node)
    version = open_pass.owing.pop(node, 0)
    if not version:
        return
    memory.owe((version,))
    is_over = not (open_pass.names or open_pass.only_read)
    if not is_over and open_pass.held_up_from is None and memory.is_held_up(cache):
        open_pass.held_up_from = open_pass.looked_at


def _worker(open_pass: OpenPass, node: str, decided: Iterable[Action]) -> TurnPart:
    """What is decided about a node, and a wake-up when that is written if anything is."""
    if type(decided) is list and any(_takes_time(a) for a in decided):
        open_pass.busy.add(node)
        decided = [*decided, AfterWrites(controller=CONTROLLER, key=(CHECKED, node))]
    return part(node, decided)


def _takes_time(action: Action) -> bool:
    """True if a worker is busy with it."""
    if action.writes:
        return type(action) is not RecordEvent
    return type(action) is ReadLeases


def check_again(memory: Memory, node: Node, cache: Cache, now_ns: int) -> TurnPart:
    """The next try for a node whose status could not be written: its worker stays busy with it."""
    decided = check_apart(memory, node, cache, now_ns)
    open_pass = memory.open_pass
    if open_pass is None or node.name not in open_pass.busy:
        return part(node.name, decided)
    if type(decided) is list:
        decided = [*decided, AfterWrites(controller=CONTROLLER, key=(CHECKED, node.name))]
    return part(node.name, decided)


def _end_pass(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action | TurnPart]:
    """The zones are judged: where no zone is well, all taints go first that the nodes had when the
    pass began.
    """
    open_pass = memory.open_pass
    assert open_pass is not None
    open_pass.ended = True
    memory.owe(open_pass.owing.values())
    if open_pass.held_up_from is not None:
        _skip_after(memory, cache, open_pass.held_up_from)
    decided: list[Action] = []
    if eviction.all_turn_dark(memory):
        for name in sorted(open_pass.nodes):
            node = open_pass.nodes[name]
            if name in cache.nodes:
                place = memory.zones.place(cache.nodes[name])
                decided += eviction.mark_reachable(memory, node, place, eviction.ALL_DARK)
                memory.look_at.add(name)  # the next pass queues the lost ones anew
    wait = AfterWrites(controller=CONTROLLER, key=(PASS_ENDED, ""))
    yield TurnPart(CONTROLLER, "zones", [*decided, wait])


def _skip_after(memory: Memory, cache: Cache, name: str) -> None:
    """The nodes after that one are not looked at in this pass, and count in no zone."""
    for other in cache.nodes:
        if other > name:
            memory.zones.leave_out(other)
            memory.look_at.add(other)


def count_zones(memory: Memory, cache: Cache, now_ns: int) -> TurnPart:
    """The end of the pass: the zones as its nodes were found."""
    return TurnPart(CONTROLLER, "zones", eviction.handle_disruption(memory, cache, now_ns))


def part(node: str, actions: Iterable[Action]) -> TurnPart:
    """The actions decided about one node, apart from those about others."""
    return TurnPart(CONTROLLER, ("Node", ("", node)), actions)


def check_apart(memory: Memory, node: Node, cache: Cache, now_ns: int) -> Iterable[Action]:
    """One node, unless it is in quarantine; one at which we fail is looked at in the next pass.

    What fails is raised once the actions decided before it have been taken.
    """
    if cache.is_quarantined("Node", ("", node.name)):
        memory.look_at.add(node.name)
        return ()
    if memory.owed is not None and memory.is_held_up(cache):
        memory.zones.leave_out(node.name)
        memory.look_at.add(node.name)
        return ()
    decided: list[Action] = []
    try:
        check_node(memory, node, cache, now_ns, decided)
    except Exception as error:
        memory.look_at.add(node.name)
        return eviction.fail(error, decided)
    return decided


def _expired(memory: Memory, now_ns: int) -> Iterator[str]:
    """Nodes that a pass beginning now, strictly after their time, must look at."""
    return cast("Iterator[str]", memory.expiry.pop_due(now_ns - 1))


def _place(memory: Memory, cache: Cache) -> dict[str, Exception]:
    """Note the zones of nodes that are to be looked at. The nodes at which we fail, and how: they
    stay out of this pass, and the next one looks at them again.
    """
    failed: dict[str, Exception] = {}
    for name in memory.look_at:
        if (node := cache.node(name)) is not None:
            try:
                memory.zones.place(node)
            except Exception as error:
                failed[name] = error
    memory.look_at -= failed.keys()
    return failed


def _classify(memory: Memory, cache: Cache) -> Generator[Action | TurnPart, None, list[str]]:
    """Follows `classifyNodes` and what `monitorNodeHealth` does with its three lists. Returns the
    names of new nodes.
    """
    added = sorted(n for n in memory.look_at if n not in memory.known and n in cache.nodes)
    deleted = sorted(n for n in memory.gone if n in memory.known and n not in cache.nodes)
    memory.gone = set()
    for name in deleted:
        memory.zones.forget(name)
    for name in added:
        memory.zones.ensure(memory.zones.place(cache.nodes[name]))
    memory.zones.ensure_stateless(cache.nodes)
    for name in added:
        memory.known[name] = cache.nodes[name]
    for name in deleted:
        node = memory.known.pop(name)
        memory.expiry.drop(name)
        memory.silent.discard(name)
        if memory.forgets_deleted:
            memory.health.pop(name, None)
            memory.unseen_since.pop(name, None)
        yield _node_event(node, "RemovingNode", f"Removing Node {name} from Controller")
    return added


def _register(memory: Memory, node: Node) -> Iterator[Action]:
    """A node that no pass has seen before."""
    yield _node_event(node, "RegisteredNode", f"Registered Node {node.name} in Controller")
    zone = memory.zones.place(node)
    yield from eviction.mark_reachable(memory, node, zone, "a new node starts without such taints")


def check_node(
    memory: Memory, node: Node, cache: Cache, now_ns: int, decided: list[Action]
) -> None:
    """One node's part of the pass: health, zone sample, taint or evict, pods. Adds to `decided`."""
    name, settings = node.name, memory.settings
    heartbeat = cache.heartbeat(name)
    health, verdict = _update_health(memory, node, heartbeat, now_ns)
    if verdict.expired:
        if memory.reads_leases:
            decided.append(ReadLeases(controller=CONTROLLER))
        if not memory.confirm_silence(name, health, cache, now_ns):
            return
    elif name in memory.silent:
        memory.silent.discard(name)
    lost: Action | None = None
    if verdict.write:
        lost = _set_conditions(node, verdict, heartbeat)
        posted(health, node, verdict.current, heartbeat, now_ns)
        memory.ready_cause[name] = memory.last_loss = lost
        decided.append(lost)
        node = _read_anew(memory, node)
    _plan_next_look(memory, name, health, verdict, heartbeat)
    current = verdict.current
    zone = memory.zones.count(node, current)
    if current is None:
        return
    turned = current.status != "True" and verdict.observed.status == "True"
    if name in memory.unconfirmed:
        memory.unconfirmed.discard(name)
        if verdict.observed.status == "Unknown":  # no kubelet says that of itself
            memory.retry.add(name)
    marks = turned or name in memory.retry
    try:
        pods = cache.pods_on(name) if marks or name in memory.evicted_nodes else []
    except ListFailed:
        if turned and memory.retries_pods:
            memory.retry.add(name)
        return
    if settings.taint_mode:
        decided += eviction.taint_or_release(memory, node, zone, verdict, now_ns)
    else:
        observed = verdict.observed.status
        decided += eviction.evict_or_cancel(memory, node, health, observed, pods, cache, now_ns)
    if marks:
        decided += _mark_pods(memory, node, verdict, lost, pods, now_ns)


def _update_health(
    memory: Memory, node: Node, heartbeat: Heartbeat | None, now_ns: int
) -> tuple[NodeHealth, HealthUpdate]:
    """Look at the node, and remember what was found."""
    name, settings = node.name, memory.settings
    health, verdict = update_node_health(
        node,
        memory.health.get(name),
        heartbeat,
        memory.passes_that_saw(name, now_ns),
        now_ns,
        settings.node_monitor_grace_period_ns,
        settings.node_startup_grace_period_ns,
        leases_count=memory.leases_count,
    )
    memory.health[name] = health
    return health, verdict


def _read_anew(memory: Memory, node: Node) -> Node:
    """The node with which the pass goes on after it has written a status.

    Where it took a taint off the node before (`markNodeAsReachable` of a node that it registers),
    the status update meets a conflict, and upstream reads the node for its next try: without that
    taint, so that the other one is not exchanged for it but waits for the rate limiter.
    """
    taints = tuple(
        t
        for t in node.spec.taints
        if t.effect != NO_EXECUTE or (node.name, t.key) not in memory.taken_off
    )
    if len(taints) == len(node.spec.taints):
        return node
    return replace(node, spec=replace(node.spec, taints=taints))


def _plan_next_look(
    memory: Memory,
    name: str,
    health: NodeHealth,
    verdict: HealthUpdate,
    heartbeat: Heartbeat | None,
) -> None:
    """Set when a pass must look at this node again, if nothing happens before."""
    if verdict.look_again:
        memory.look_at.add(name)
    expires = verdict.expires_ns
    if expires is not None and heartbeat is not None:
        every_ns = heartbeat.beats_for_ever(memory.leases_count)
        if every_ns is not None and every_ns + memory.slack_ns < verdict.grace_ns:
            expires = None
    status = verdict.current.status if verdict.current is not None else ""
    if not memory.settings.taint_mode and status in ("False", "Unknown"):
        since_ns = health.ready_transition_ns if status == "False" else health.probe_ns
        evicts = since_ns + memory.settings.pod_eviction_timeout_ns
        expires = evicts if expires is None else min(expires, evicts)
    if expires is None:
        memory.expiry.drop(name)
    else:
        memory.expiry.set(name, expires)


def _set_conditions(
    node: Node, verdict: HealthUpdate, heartbeat: Heartbeat | None
) -> SetNodeConditions:
    silent, grace = format_duration(verdict.silent_ns), format_duration(verdict.grace_ns)
    if node.ready() is None:
        which = "node-startup-grace-period"
        because = f"the node has no Ready condition and gave no sign of life for {silent}"
    else:
        which = "node-monitor-grace-period"
        because = f"no sign of life for {silent}"
    origin = why(f"{because}, longer than {which} {grace}", heartbeat.cause if heartbeat else None)
    return SetNodeConditions(**origin, **of_node(node), conditions=verdict.write)


def _mark_pods(
    memory: Memory,
    node: Node,
    verdict: HealthUpdate,
    lost: Action | None,
    pods: list[Pod],
    now_ns: int,
) -> list[Action]:
    """Mark the node's pods in the pass that took Ready from True.

    Follows `monitorNodeHealth`.
    """
    observed, current = verdict.observed.status, verdict.current
    assert current is not None
    events: list[Action] = []
    if current.status != "True" and observed == "True":
        because = f"Ready of node {node.name} turned {current.status}"
        message = f"Node {node.name} status is now: NodeNotReady"
        events.append(_node_event(node, "NodeNotReady", message, because, lost, bare=True))
    elif observed == "True":
        pods = []
    memory.retry.discard(node.name)
    cause = lost or memory.ready_cause.get(node.name)
    return events + mark_pods_not_ready(memory, pods, node.name, now_ns, cause)


def _node_event(
    node: Node,
    reason: str,
    message: str,
    because: str = "",
    cause: Action | None = None,
    *,
    bare: bool = False,
) -> RecordEvent:
    """An event on the node. `bare`: the message stands alone, without "Node NAME event"."""
    return RecordEvent(
        **why(because or message, cause),
        kind="Node",
        name=node.name,
        object_uid=node.uid,
        reason=reason,
        message=message if bare else f"Node {node.name} event: {message}",
    )


def _ready_status(node: Node | None) -> str:
    ready = node.ready() if node is not None else None
    return ready.status if ready is not None else ""


def mark_pods_not_ready(
    memory: Memory,
    pods: Iterable[Pod],
    node: str,
    now_ns: int,
    cause: Action | None,
    *,
    by_pod_worker: bool = False,
) -> list[Action]:
    """Set Ready=False on each pod of the node that has the condition with another status."""
    with_event = memory.settings.profile.has("pod_not_ready_event")
    because, now = f"node {node} is not Ready", whole_seconds(now_ns)
    marks: list[Action] = []
    before, condition = PodCondition(), PodCondition()
    for pod in pods:
        ready = pod.status.condition("Ready")
        if ready is None or ready.status == "False" or pod.spec.node_name != node:
            continue
        if ready is not before:
            before, condition = ready, replace(ready, status="False", last_transition_time=now)
        marked = MarkPodNotReady(
            controller=CONTROLLER,
            because=because,
            cause=cause,
            **of_pod(pod),
            condition=condition,
            by_pod_worker=by_pod_worker,
        )
        marks.append(marked)
        if with_event:
            marks.append(
                RecordEvent(
                    controller=CONTROLLER,
                    because=because,
                    cause=marked,
                    kind="Pod",
                    **of_object(pod),
                    type="Warning",
                    reason="NodeNotReady",
                    message="Node is not ready",
                )
            )
    return marks
