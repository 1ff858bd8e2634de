"""The node lifecycle controller: monitor passes, node workers, the NoExecute (or classic eviction)
loop.

Follows pkg/controller/nodelifecycle/node_lifecycle_controller.go; which release, the profile says.
A pass looks only at nodes that changed or whose time may be over (`health.py` says why that is the
same), so a quiet cluster of thousands costs nothing. Left out on purpose: listing errors (the cache
cannot fail).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from typing import Any, Final, cast

from kubectl_nodelife.controllers.nodelifecycle import eviction, monitor
from kubectl_nodelife.controllers.nodelifecycle.memory import NODE_WORKERS, Memory, take_over
from kubectl_nodelife.controllers.nodelifecycle.taints import no_schedule_pass, reconcile_labels
from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions, TurnPart
from kubectl_nodelife.engine.dependent_writes import fails_deletion
from kubectl_nodelife.engine.engine import QUARANTINED
from kubectl_nodelife.engine.events import NO_ANSWER, Change, Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TimedValue
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE

EVICTION_LOOP_PERIOD_NS: Final = 100 * MILLISECOND_NS
_UPDATE_RETRY_NS: Final = 20 * MILLISECOND_NS
_UPDATE_TRIES: Final = 7
_POD_RETRY_NS: Final = 5 * MILLISECOND_NS
_POD_RETRY_MOST_NS: Final = 1_000_000 * MILLISECOND_NS

_MONITOR: Final = "monitor"
_END_OF_PASS: Final = "end-of-pass"
_EVICTION_LOOP: Final = "eviction-loop"
_WORKED: Final = "worked"


class NodeLifecycleController:
    """Judges nodes by their heartbeats, taints them, and limits how fast each zone is tainted.

    `pass_drift_ns`: by how much each monitor pass begins late, as real ones do. `awaits_writes`: a
    pass counts its zones once more when the driver says that its writes have ended (`end_pass_at`),
    without the nodes that could not be written. Upstream counts only then; ours has counted before,
    so that no node is tainted at a rate that is over while many writes are on their way.
    """

    name = "node-lifecycle"
    watches = frozenset({"Node", "Pod", "Heartbeat"})
    reads_conditions_of: frozenset[str] = frozenset()
    reads_success = False

    def __init__(self, settings: Settings, *, pass_drift_ns: int = 0) -> None:
        self.settings = settings
        self.memory = Memory(settings, pass_drift_ns)
        self.next_pass_ns: int | None = None
        self.awaits_writes = self._pass_is_open = False
        self._retrying: set[str] = set()
        self._update_tries: dict[str, int] = {}
        self._pod_tries: dict[tuple[str, str], int] = {}
        self._worked: dict[str, Node] = {}
        self._to_work: dict[str, actions.Action | None] = {}
        self._working: set[str] = set()
        self._loop_began_ns = 0
        self._joined_pass_ns: int | None = None

    # The engine's side

    def fork(self, cache: Cache) -> NodeLifecycleController:
        """Another one with the same memory."""
        other = copy(self)
        other.memory = self.memory.fork()
        other._update_tries, other._pod_tries = dict(self._update_tries), dict(self._pod_tries)
        other._retrying = set(self._retrying)
        other._to_work, other._working = dict(self._to_work), set(self._working)
        self._worked, other._worked = fork_dict(self._worked)
        return other

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Node workers take every node, and the first monitor pass begins."""
        self._loop_began_ns = now_ns
        self.memory.look_at.update(cache.nodes)
        self._to_work.update(dict.fromkeys(sorted(cache.nodes)))
        yield from self._work(cache, now_ns)
        yield from self.reconcile(_MONITOR, cache, now_ns)

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """Take over from a running controller, see `memory.py`. NoSchedule taints that are not
        those of their node's state, as right after an uncordon, are seen to by the first pass.
        """
        self._loop_began_ns = now_ns
        for name, node in cache.nodes.items():
            marked = node.spec.taints or node.spec.unschedulable
            if marked and any(no_schedule_pass(node, now_ns, None)):
                self.memory.unworked.add(name)
        take_over(self.memory, cache, now_ns)
        self._joined_pass_ns = self.memory.joined_pass_ns
        yield from self.reconcile(_MONITOR, cache, now_ns)

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Node workers and the pods' queue; heartbeats only mark the node for the next pass."""
        if change.kind == "Pod":
            return self._pod_changed(change, cache, now_ns)
        monitor.note(self.memory, change, now_ns)
        if change.new is None:
            self._worked.pop(change.old.name if change.old is not None else "", None)
        elif change.kind == "Node":
            node = cache.node(change.new.name)
            # several changes at one instant are one in the queue
            if node is not None and self._worked.get(node.name) is not node:
                self._worked[node.name] = node
                self._to_work.setdefault(node.name, change.cause)
                return self._work(cache, now_ns)
        return ()

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """A monitor pass, a round of the eviction loop, or a retry."""
        if key == _MONITOR:
            if self.memory.open_pass is None:
                self.next_pass_ns = now_ns + self.period_ns
                self._update_tries.clear()
                self._retrying.clear()
                yield from self._work_again(cache, now_ns)
                yield from monitor.monitor_node_health(self.memory, cache, now_ns)
        elif key == _END_OF_PASS:
            self._pass_is_open = False
            yield monitor.count_zones(self.memory, cache, now_ns)
        elif key == _EVICTION_LOOP:
            if self.memory.loop_zone is None:
                yield from eviction.eviction_pass(self.memory, cache, now_ns)
        else:
            yield from self._go_on(cast("tuple[str, ...]", key), cache, now_ns)
        yield from self._wake_eviction_loop(now_ns)

    def _go_on(self, key: tuple[str, ...], cache: Cache, now_ns: int) -> Actions:
        """Writes are done that a pass, the eviction loop or a node worker waited for; or a retry is
        due.
        """
        kind, *rest = key
        if kind == monitor.CHECKED:
            open_pass = self.memory.open_pass
            if open_pass is not None and rest[0] not in self._retrying:
                monitor.worker_is_free(self.memory, rest[0], cache)
                yield from monitor.continue_pass(self.memory, cache, now_ns)
        elif kind == monitor.PASS_ENDED:
            yield monitor.count_zones(self.memory, cache, now_ns)
            self.memory.open_pass = None
            self._pass_is_open = self.awaits_writes
            at_ns, self._joined_pass_ns = self._joined_pass_ns, None
            yield self.pass_at(now_ns + self.period_ns if at_ns is None else at_ns)
        elif kind == eviction.EVICTED:
            yield from eviction.eviction_pass(self.memory, cache, now_ns)
            if self.memory.loop_zone is None:
                self._loop_began_ns = now_ns  # it sleeps for a period after its writes
        elif kind == _WORKED:
            self._working.discard(rest[0])
            yield from self._work(cache, now_ns)
        else:
            yield from self._try_again(key, cache, now_ns)

    def _try_again(self, key: tuple[str, ...], cache: Cache, now_ns: int) -> Actions:
        """A retry, of a pod or a node."""
        kind, *rest = key
        self._retrying.discard(rest[0])
        if kind == "pod":
            pod = cache.pod(rest[0], rest[1])
            if pod is not None:
                decided = self.process_pod(pod, cache, now_ns)
                yield TurnPart(self.name, ("Pod", pod.key), decided)
        elif (node := cache.node(rest[0])) is not None:
            if self.memory.zones.place(node) in self.memory.zones.queues:
                yield monitor.check_again(self.memory, node, cache, now_ns)
            else:  # relabelled since the pass; the next one makes a queue for a new zone
                self.memory.look_at.add(node.name)

    def rests(self, key: Hashable) -> bool:
        """True if no node is to be looked at in any pass."""
        return key == _MONITOR and self.memory.rests

    @property
    def period_ns(self) -> int:
        """From the end of one pass to the beginning of the next."""
        return self.settings.node_monitor_period_ns + self.memory.drift_ns

    def pass_at(self, at_ns: int) -> actions.Requeue:
        """The next monitor pass begins then, as that of a controller that was joined, or once the
        writes of the one before it have ended.
        """
        self.next_pass_ns = at_ns
        return actions.Requeue(self.name, _MONITOR, at_ns)

    @property
    def may_end_pass(self) -> bool:
        """True if a pass only waits for its writes, and no node of it for its next try."""
        return self._pass_is_open and not self._retrying

    def end_pass_at(self, at_ns: int) -> actions.Requeue:
        """The writes of the pass have ended: its zones are counted then."""
        return actions.Requeue(self.name, _END_OF_PASS, at_ns)

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """Take back what a failed write was taken for, and try again as upstream does."""
        action = outcome.action
        if outcome.code == QUARANTINED and not isinstance(action, actions.MarkPodNotReady):
            self._put_off(action, cache)
            return ()
        if isinstance(action, actions.SetNodeConditions):
            return self._update_failed(action, outcome.code, cache, now_ns)
        if isinstance(action, actions.MarkPodNotReady) and outcome.code != 404:
            return self._mark_failed(action, cache, now_ns)
        if isinstance(action, (actions.DeletePod, actions.SetPodReason)):
            return self._deletion_failed(action, outcome.code, cache, now_ns)
        if isinstance(action, actions.SetNodeLabels):
            self.memory.unworked.add(action.node)
        if isinstance(action, (actions.AddTaints, actions.RemoveTaints)):
            self.memory.look_at.add(action.node)
            if any(t.effect != NO_EXECUTE for t in action.taints):
                self.memory.unworked.add(action.node)
            elif isinstance(action, actions.AddTaints):
                return self._requeue_node(action.node, now_ns)
        return ()

    # Pods

    def _pod_changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Only a pod that came to a node is of interest. Follows `podUpdated`."""
        old: Any = change.old
        pod: Any = change.new
        if pod is None or not pod.spec.node_name:
            return ()
        if old is not None and old.spec.node_name == pod.spec.node_name:
            return ()
        return list(self.process_pod(pod, cache, now_ns))

    def process_pod(
        self, pod: Pod, cache: Cache, now_ns: int
    ) -> Iterator[actions.Action | actions.Requeue]:
        """A pod on a node that is known not ready is marked soon after it appears. While that node
        is gone and its health still known, the pod is tried again.

        Follows `processPod`, which takes a node that the lister does not find for an error.
        """
        if not self.memory.retries_pods:
            return
        memory = self.memory
        node, health = cache.node(pod.spec.node_name), memory.health.get(pod.spec.node_name)
        if health is None:
            return
        if node is None:
            yield self._work_pod_again(pod, now_ns)
            return
        if health.ready is None:
            return
        status = health.ready.status
        if not self.settings.taint_mode:
            yield from eviction.evict_or_cancel(
                memory, node, health, status, [pod], cache, now_ns, by_pod_worker=True
            )
        if status != "True":
            cause = memory.ready_cause.get(node.name)
            yield from monitor.mark_pods_not_ready(
                memory, [pod], node.name, now_ns, cause, by_pod_worker=True
            )

    # The node workers

    def _work(self, cache: Cache, now_ns: int) -> Iterator[TurnPart]:
        """Let idle node workers take nodes from their queue: one node is never with two of them.

        Follows `doNodeProcessingPassWorker`.
        """
        while len(self._working) < NODE_WORKERS:
            name = next((name for name in self._to_work if name not in self._working), None)
            if name is None:
                return
            cause = self._to_work.pop(name)
            if (node := cache.node(name)) is not None:
                decided = list(self.process_node(node, now_ns, cause))
                if decided:
                    self._working.add(name)
                    decided.append(actions.AfterWrites(controller=self.name, key=(_WORKED, name)))
                yield monitor.part(name, decided)

    def process_node(
        self, node: Node, now_ns: int, cause: actions.Action | None
    ) -> Iterator[actions.Action]:
        """NoSchedule taints, then labels. Follows `doNodeProcessingPassWorker`."""
        profile = self.settings.profile
        if self.settings.gate("TaintNodesByCondition") or not profile.has("noschedule_gate"):
            yield from no_schedule_pass(node, now_ns, cause)
        yield from reconcile_labels(node, profile.has("beta_labels_are_truth"), cause)

    def _work_again(self, cache: Cache, now_ns: int) -> Iterator[TurnPart]:
        """Nodes of which a NoSchedule taint or a label could not be written.

        Upstream drops them, and waits for the node's next event ("TODO: Add nodeName back to the
        queue"), which a dead kubelet never causes.
        """
        unworked, self.memory.unworked = self.memory.unworked, set()
        for name in sorted(unworked):
            self._to_work.setdefault(name, None)
        yield from self._work(cache, now_ns)

    # What came of it

    def _put_off(self, action: actions.Action, cache: Cache) -> None:
        """Leave the action to a later pass, since an object that it needs is in quarantine: no
        token of the zone is spent on the node until then.
        """
        if not isinstance(action, actions.NodeAction):
            return
        name = action.node
        self.memory.unworked.add(name)
        if isinstance(action, actions.SetNodeLabels):
            return
        health, node = self.memory.health.get(name), cache.node(name)
        self.memory.look_at.add(name)
        if (
            isinstance(action, actions.SetNodeConditions)
            and health is not None
            and node is not None
        ):
            health.ready = node.ready()
        for queue in self.memory.zones.queues.values():
            queue.remove(name)

    def _update_failed(
        self, action: actions.SetNodeConditions, code: int, cache: Cache, now_ns: int
    ) -> Actions:
        """Try again within 100 ms as `PollImmediate(20ms, 100ms)` does, else in the next pass.

        That calls seven times: at once, at each of five ticks, and once more when the time is over;
        but only once where nothing answers, since the read between two tries fails as well.
        """
        name = action.node
        health, node = self.memory.health.get(name), cache.node(name)
        if health is not None and node is not None:
            health.ready = node.ready()
        if node is not None and node.is_ready:
            # upstream's pass queues it only once that is written
            zone = self.memory.zones.place(node)
            yield from eviction.leave_queue(
                self.memory, node, zone, "its status could not be written"
            )
        self.memory.look_at.add(name)
        self.memory.unconfirmed.add(name)  # it may have been done, and the answer got lost
        tries = self._update_tries.get(name, 0) + 1
        self._update_tries[name] = tries
        if tries < _UPDATE_TRIES and code != NO_ANSWER:
            self._retrying.add(name)
            last = tries == _UPDATE_TRIES - 1
            yield actions.Requeue(
                self.name, ("node", name), now_ns + (1 if last else _UPDATE_RETRY_NS)
            )
        else:
            self.memory.zones.leave_out(name)

    def _mark_failed(self, action: actions.MarkPodNotReady, cache: Cache, now_ns: int) -> Actions:
        """A pass marks the node's pods in the next one, a pod worker tries again by itself."""
        pod = cache.pod(action.namespace, action.pod)
        if pod is None or not self.memory.retries_pods:
            return
        if action.by_pod_worker:
            yield self._work_pod_again(pod, now_ns)
        else:
            self.memory.retry.add(pod.spec.node_name)

    def _deletion_failed(
        self, action: actions.DeletePod | actions.SetPodReason, code: int, cache: Cache, now_ns: int
    ) -> Actions:
        """Where `DeletePods` ends with an error, the node of the loop's turn goes back into its
        queue, and a pod worker tries again by itself; a pass does so in the next one.
        """
        pod = cache.pod(action.namespace, action.pod)
        if not fails_deletion(action, code):
            return
        if action.by_pod_worker:
            if pod is not None:
                yield self._work_pod_again(pod, now_ns)
        elif pod is None or pod.spec.node_name == self.memory.evicting:
            evicting, self.memory.evicting = self.memory.evicting, ""
            yield from self._requeue_node(evicting, now_ns)

    def _work_pod_again(self, pod: Pod, now_ns: int) -> actions.Requeue:
        """Follows `AddRateLimited` of the pods' queue."""
        tries = self._pod_tries.get(pod.key, 0)
        self._pod_tries[pod.key] = tries + 1
        delay_ns = min(_POD_RETRY_NS << min(tries, 20), _POD_RETRY_MOST_NS)
        return actions.Requeue(self.name, ("pod", *pod.key), now_ns + delay_ns)

    def _requeue_node(self, name: str, now_ns: int) -> Actions:
        """A node's turn in its queue came to nothing: it goes back, due at once."""
        node = self.memory.known.get(name)
        zone = self.memory.zones.key(node) if node is not None else None
        queue = self.memory.zones.queues.get(zone) if zone is not None else None
        if queue is None or zone is None or name not in queue or queue.is_waiting(name):
            return
        self.memory.zones.evictions[zone] -= 1
        uid = node.uid if node is not None else ""
        entry = TimedValue(name, uid, now_ns, now_ns, standing=self.memory.requeues_untainted)
        queue.put_back(entry, now_ns + 1)
        yield from self._wake_eviction_loop(now_ns)

    def _wake_eviction_loop(self, now_ns: int) -> Iterator[actions.Requeue]:
        """Sleep through the rounds of the loop in which no limiter would give a token."""
        if self.memory.loop_zone is not None:
            return
        queues = self.memory.zones.queues.values()
        accepted = [queue.limiter.next_accept(now_ns) for queue in queues if queue]
        at = min((at for at in accepted if at is not None), default=None)
        if at is None:
            return
        period = EVICTION_LOOP_PERIOD_NS
        rounds = -(-(at - self._loop_began_ns) // period)
        due = self._loop_began_ns + rounds * period
        yield actions.Requeue(self.name, _EVICTION_LOOP, due if due > now_ns else due + period)
