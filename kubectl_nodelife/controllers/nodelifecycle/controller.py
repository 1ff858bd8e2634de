"""The node lifecycle controller: monitor passes, node workers, the NoExecute (or classic eviction)
loop.

Follows pkg/controller/nodelifecycle/node_lifecycle_controller.go; which release, the profile says.
A pass looks only at nodes that changed or whose time may be over (`health.py` tells why that is the
same), so a quiet cluster of thousands costs nothing. Left out on purpose: listing errors (the cache
cannot fail), the eight workers and their races, and the lease circuit breaker of unreleased
versions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, cast

from kubectl_nodelife.controllers.nodelifecycle.classic import delete_pods
from kubectl_nodelife.controllers.nodelifecycle.disruption import handle_disruption
from kubectl_nodelife.controllers.nodelifecycle.eviction import (
    evict_or_cancel,
    eviction_pass,
    mark_reachable,
    taint_or_release,
)
from kubectl_nodelife.controllers.nodelifecycle.health import (
    NodeHealth,
    Verdict,
    posted,
    update_node_health,
)
from kubectl_nodelife.controllers.nodelifecycle.join import take_over
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.pods import mark_pods_not_ready
from kubectl_nodelife.controllers.nodelifecycle.taints import no_schedule_pass, reconcile_labels
from kubectl_nodelife.controllers.nodelifecycle.zones import Sample, is_excluded
from kubectl_nodelife.engine.actions import (
    Action,
    DeletePod,
    MarkPodNotReady,
    RecordEvent,
    Requeue,
    SetNodeConditions,
    SetPodReason,
)
from kubectl_nodelife.engine.cache import Cache, Heartbeat, ListFailed
from kubectl_nodelife.engine.controller import Actions
from kubectl_nodelife.engine.events import Change, Outcome
from kubectl_nodelife.engine.ratelimit import Entry
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.timers import Timers
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS

EVICTION_LOOP_PERIOD_NS: Final = 100 * MILLISECOND_NS
_UPDATE_RETRY_NS: Final = 20 * MILLISECOND_NS
_UPDATE_TRIES: Final = 5
_POD_RETRY_NS: Final = 5 * MILLISECOND_NS
_POD_RETRY_MOST_NS: Final = 1_000_000 * MILLISECOND_NS

_MONITOR: Final = "monitor"
_EVICTION_LOOP: Final = "eviction-loop"


class NodeLifecycleController:
    """See the module.

    `pass_drift_ns`: by how much each monitor pass begins late, as real ones do.
    """

    name = "node-lifecycle"
    watches = frozenset({"Node", "Pod", "Heartbeat"})

    def __init__(self, settings: Settings, *, pass_drift_ns: int = 0) -> None:
        self.settings = settings
        self.memory = Memory(settings)
        self.next_pass_ns: int | None = None
        self._drift_ns = pass_drift_ns
        self._leases = settings.gate("NodeLease") or not settings.profile.has("lease_gate")
        self._gone: set[str] = set()
        self._expiry = Timers()
        self._retry: set[str] = set()
        self._tries: dict[Hashable, int] = {}
        self._loop_began_ns = 0

    # The engine's side

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Node workers take every node, and the first monitor pass begins."""
        self._loop_began_ns = now_ns
        self.memory.look_at.update(cache.nodes)
        for node in sorted(cache.nodes.values(), key=lambda n: n.name):
            yield from self.process_node(node, now_ns, None)
        yield from self.reconcile(_MONITOR, cache, now_ns)

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """Take over from a running controller, see `join.py`."""
        self._loop_began_ns = now_ns
        self.memory.look_at.update(cache.nodes)
        take_over(self.memory, cache, now_ns)
        yield from self.reconcile(_MONITOR, cache, now_ns)

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Node workers and the pod workers' queue;

        heartbeats only mark the node for the next pass.
        """
        if change.kind == "Pod":
            return self._pod_changed(change, cache, now_ns)
        self.note(change)
        if change.kind == "Node" and change.new is not None:
            node, old = cast(Node, change.new), cast("Node | None", change.old)
            if old is None or _workers_see(old) != _workers_see(node):
                return self.process_node(node, now_ns, change.cause)
        return ()

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """A monitor pass, a round of the eviction loop, or a retry."""
        if key == _MONITOR:
            self.next_pass_ns = now_ns + self.settings.node_monitor_period_ns + self._drift_ns
            yield from self.monitor_node_health(cache, now_ns)
            yield Requeue(self.name, _MONITOR, self.next_pass_ns)
        elif key == _EVICTION_LOOP:
            yield from eviction_pass(self.memory, cache, now_ns)
        else:
            kind, *rest = cast("tuple[str, ...]", key)
            if kind == "pod":
                pod = cache.pod(rest[0], rest[1])
                if pod is not None:
                    yield from self.process_pod(pod, cache, now_ns)
            elif (node := cache.node(rest[0])) is not None:
                yield from self._check_node(node, cache, now_ns)
        yield from self._wake_eviction_loop(now_ns)

    def failed(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """Take back what a failed write was taken for, and try again as upstream does."""
        action = outcome.action
        if isinstance(action, SetNodeConditions):
            return self._update_failed(action, cache, now_ns)
        if isinstance(action, MarkPodNotReady) and outcome.code != 404:
            return self._mark_failed(action, cache, now_ns)
        if isinstance(action, (DeletePod, SetPodReason)) and outcome.code != 404:
            pod = cache.pod(action.namespace, action.pod)
            return self._requeue_node(pod.spec.node_name if pod else "", now_ns)
        name = action.target[1][1]
        self.memory.look_at.add(name)
        return self._requeue_node(name, now_ns) if action.target[0] == "Node" else ()

    # The monitor pass

    def note(self, change: Change) -> None:
        """Mark a node for the next pass."""
        obj = change.new or change.old
        if obj is None:
            return
        if change.new is None:
            self._gone.add(obj.name)
            self._retry.discard(obj.name)
            return
        self.memory.look_at.add(obj.name)
        if change.kind == "Node" and change.cause is not None:
            old, new = cast("Node | None", change.old), cast(Node, change.new)
            if _ready_status(old) != _ready_status(new):
                self.memory.ready_cause[obj.name] = self.memory.last_loss = change.cause

    def monitor_node_health(self, cache: Cache, now_ns: int) -> Iterator[Action]:
        """One monitor pass. Follows `monitorNodeHealth`."""
        self.memory.passes.begin(now_ns)
        look_at = self.memory.look_at | self._retry | set(self._expired(now_ns))
        yield from self._classify(cache, now_ns)
        for queue in self.memory.zones.queues.values():
            queue.renew(now_ns)
        self.memory.look_at = set()
        for name in sorted(look_at):
            node = cache.node(name)
            if node is not None:
                yield from self._check_node(node, cache, now_ns)
        yield from handle_disruption(self.memory, cache, now_ns)

    def _expired(self, now_ns: int) -> Iterator[str]:
        """Nodes that a pass beginning now, strictly after their time, must look at."""
        return cast("Iterator[str]", self._expiry.pop_due(now_ns - 1))

    def _classify(self, cache: Cache, now_ns: int) -> Iterator[Action]:
        """Follows `classifyNodes` and what `monitorNodeHealth` does with its three lists."""
        for name in self.memory.look_at:
            if (node := cache.node(name)) is not None:
                self.memory.zones.place(node)
        added = sorted(
            n for n in self.memory.look_at if n not in self.memory.known and n in cache.nodes
        )
        deleted = sorted(n for n in self._gone if n in self.memory.known and n not in cache.nodes)
        self._gone = set()
        for name in deleted:
            self.memory.zones.forget(name)
        for zone in self.memory.zones.stateless():
            self.memory.zones.ensure(zone)
        for name in added:
            node = cache.nodes[name]
            yield self._node_event(node, "RegisteredNode", f"Registered Node {name} in Controller")
            self.memory.known[name] = node
            yield from mark_reachable(
                self.memory, node, now_ns, "a new node starts without such taints"
            )
        for name in deleted:
            node = self.memory.known.pop(name)
            self._expiry.drop(name)
            yield self._node_event(node, "RemovingNode", f"Removing Node {name} from Controller")

    def _check_node(self, node: Node, cache: Cache, now_ns: int) -> Iterator[Action]:
        """One node's part of the pass: health, zone sample, taint or evict, pods."""
        heartbeat = cache.heartbeat(node.name) if self._leases else None
        health, verdict = update_node_health(
            node,
            self.memory.health.get(node.name),
            heartbeat,
            self.memory.passes,
            now_ns,
            self.settings.node_monitor_grace_period_ns,
            self.settings.node_startup_grace_period_ns,
        )
        self.memory.health[node.name] = health
        lost: Action | None = None
        if verdict.write:
            lost = self._set_conditions(node, verdict, heartbeat)
            posted(health, verdict.current, now_ns)
            self.memory.ready_cause[node.name] = self.memory.last_loss = lost
            yield lost
        self._plan_next_look(node.name, health, verdict, heartbeat)
        zone = self.memory.zones.place(node)
        current = verdict.current
        if is_excluded(node, self.settings):
            self.memory.zones.sample(node.name, None)
        else:
            ready = current is not None and current.status == "True"
            self.memory.zones.sample(node.name, Sample(zone, ready))
        if current is None:
            return
        turned = current.status != "True" and verdict.observed.status == "True"
        try:
            pods = cache.pods_on(node.name) if turned or node.name in self._retry else []
        except ListFailed:
            if turned and self.settings.profile.has("pod_retry"):
                self._retry.add(node.name)
            return
        if self.settings.taint_mode:
            yield from taint_or_release(self.memory, node, zone, verdict, now_ns)
        else:
            yield from evict_or_cancel(self.memory, node, zone, health, verdict, now_ns)
        yield from self._mark_pods(node, verdict, lost, pods, now_ns)

    def _plan_next_look(
        self, name: str, health: NodeHealth, verdict: Verdict, heartbeat: Heartbeat | None
    ) -> None:
        """Set when a pass must look at this node again, if nothing happens before."""
        if verdict.look_again:
            self.memory.look_at.add(name)
        expires = verdict.expires_ns
        if expires is not None and heartbeat is not None and heartbeat.renews_for_ever():
            schedule = heartbeat.schedule
            slack_ns = 2 * (self.settings.node_monitor_period_ns + self._drift_ns)
            if schedule is not None and schedule.every_ns + slack_ns < verdict.grace_ns:
                expires = None
        if not self.settings.taint_mode and verdict.current is not None:
            timeout_ns = self.settings.pod_eviction_timeout_ns
            if verdict.current.status == "Unknown":
                evicts = health.probe_ns + timeout_ns
                expires = evicts if expires is None else min(expires, evicts)
            elif verdict.current.status == "False":
                evicts = health.ready_transition_ns + timeout_ns
                expires = evicts if expires is None else min(expires, evicts)
        if expires is None:
            self._expiry.drop(name)
        else:
            self._expiry.set(name, expires)

    def _set_conditions(
        self, node: Node, verdict: Verdict, heartbeat: Heartbeat | None
    ) -> SetNodeConditions:
        silent, grace = format_duration(verdict.silent_ns), format_duration(verdict.grace_ns)
        if node.ready() is None:
            which = "node-startup-grace-period"
            because = f"the kubelet has never posted a status, {silent} after the node was created"
        else:
            which = "node-monitor-grace-period"
            because = f"no sign of life for {silent}"
        return SetNodeConditions(
            controller=self.name,
            because=f"{because}, longer than {which} {grace}",
            cause=heartbeat.cause if heartbeat is not None else None,
            node=node.name,
            node_uid=node.uid,
            conditions=verdict.write,
        )

    # Pods

    def _mark_pods(
        self, node: Node, verdict: Verdict, lost: Action | None, pods: list[Pod], now_ns: int
    ) -> Iterator[Action]:
        """Mark the node's pods in the pass that took Ready from True.

        Follows `monitorNodeHealth`.
        """
        observed, current = verdict.observed.status, verdict.current
        assert current is not None
        if current.status != "True" and observed == "True":
            because = f"Ready of node {node.name} turned {current.status}"
            message = f"Node {node.name} status is now: NodeNotReady"
            yield self._node_event(node, "NodeNotReady", message, because, lost, bare=True)
        elif observed == "True":
            pods = []
        self._retry.discard(node.name)
        cause = lost or self.memory.ready_cause.get(node.name)
        yield from self._mark(pods, node.name, now_ns, cause)

    def _mark(
        self, pods: Iterable[Pod], node: str, now_ns: int, cause: Action | None
    ) -> Iterator[Action]:
        return mark_pods_not_ready(
            pods,
            node,
            now_ns,
            with_event=self.settings.profile.has("pod_not_ready_event"),
            because=f"node {node} is not Ready",
            cause=cause,
        )

    def _pod_changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Only a pod that came to a node is of interest. Follows `podUpdated`."""
        pod, old = cast("Pod | None", change.new), cast("Pod | None", change.old)
        if pod is None or not pod.spec.node_name:
            return ()
        if old is not None and old.spec.node_name == pod.spec.node_name:
            return ()
        return self.process_pod(pod, cache, now_ns)

    def process_pod(self, pod: Pod, cache: Cache, now_ns: int) -> Iterator[Action]:
        """A pod on a node that is known not ready is marked soon after it appears.

        Follows `processPod`.
        """
        if not self.settings.profile.has("pod_retry"):
            return
        node = pod.spec.node_name
        health = self.memory.health.get(node)
        if health is None or health.ready is None or cache.node(node) is None:
            return
        cause = self.memory.ready_cause.get(node)
        if node in self.memory.evicted_nodes:
            because = f"the pods of node {node} were evicted before"
            yield from delete_pods(node, cache.node(node), [pod], cache, because, cause)
        if health.ready.status != "True":
            yield from self._mark([pod], node, now_ns, cause)

    # The node workers

    def process_node(self, node: Node, now_ns: int, cause: Action | None) -> Iterator[Action]:
        """NoSchedule taints, then labels. Follows `doNodeProcessingPassWorker`."""
        profile = self.settings.profile
        if self.settings.gate("TaintNodesByCondition") or not profile.has("noschedule_gate"):
            yield from no_schedule_pass(node, now_ns, cause)
        yield from reconcile_labels(node, profile.has("beta_labels_are_truth"), cause)

    # What came of it

    def _update_failed(self, action: SetNodeConditions, cache: Cache, now_ns: int) -> Actions:
        name = action.node
        health, node = self.memory.health.get(name), cache.node(name)
        if health is not None and node is not None:
            health.ready = node.ready()
        self.memory.look_at.add(name)
        tries = self._tries.get(name, 0) + 1
        self._tries[name] = 0 if tries >= _UPDATE_TRIES else tries
        if tries < _UPDATE_TRIES:
            yield Requeue(self.name, ("node", name), now_ns + _UPDATE_RETRY_NS)

    def _mark_failed(self, action: MarkPodNotReady, cache: Cache, now_ns: int) -> Actions:
        pod = cache.pod(action.namespace, action.pod)
        if pod is None or not self.settings.profile.has("pod_retry"):
            return
        self._retry.add(pod.spec.node_name)
        key = ("pod", action.namespace, action.pod)
        tries = self._tries.get(key, 0)
        self._tries[key] = tries + 1
        delay_ns = min(_POD_RETRY_NS << min(tries, 20), _POD_RETRY_MOST_NS)
        if tries or action.cause is None:
            yield Requeue(self.name, key, now_ns + delay_ns)

    def _requeue_node(self, name: str, now_ns: int) -> Actions:
        """A node's turn in its queue came to nothing:

        it goes back, due at once, with the next token.
        """
        node = self.memory.known.get(name)
        zone = self.memory.zones.key(node) if node is not None else None
        queue = self.memory.zones.queues.get(zone) if zone is not None else None
        if queue is None or zone is None or name not in queue or queue.is_waiting(name):
            return
        self.memory.zones.evictions[zone] -= 1
        queue.put_back(Entry(name, node.uid if node else "", now_ns, now_ns), now_ns + 1)
        yield from self._wake_eviction_loop(now_ns)

    def _wake_eviction_loop(self, now_ns: int) -> Iterator[Requeue]:
        """Sleep through the rounds of the loop in which no limiter would give a token."""
        at: int | None = None
        for queue in self.memory.zones.queues.values():
            if len(queue):
                accepts = queue.limiter.next_accept(now_ns)
                if accepts is not None:
                    at = accepts if at is None else min(at, accepts)
        if at is None:
            return
        period = EVICTION_LOOP_PERIOD_NS
        rounds = -(-(at - self._loop_began_ns) // period)
        due = self._loop_began_ns + rounds * period
        yield Requeue(self.name, _EVICTION_LOOP, due if due > now_ns else due + period)

    def _node_event(
        self,
        node: Node,
        reason: str,
        message: str,
        because: str = "",
        cause: Action | None = None,
        *,
        bare: bool = False,
    ) -> RecordEvent:
        return RecordEvent(
            controller=self.name,
            because=because or message,
            cause=cause,
            kind="Node",
            name=node.name,
            object_uid=node.uid,
            reason=reason,
            message=message if bare else f"Node {node.name} event: {message}",
        )


def _ready_status(node: Node | None) -> str:
    ready = node.ready() if node is not None else None
    return ready.status if ready is not None else ""


def _workers_see(node: Node) -> tuple[object, ...]:
    """What the node workers' decisions hang on."""
    conditions = tuple((c.type, c.status) for c in node.status.conditions)
    return (conditions, node.spec.unschedulable, node.spec.taints, node.metadata.labels)
