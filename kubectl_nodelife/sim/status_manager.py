"""The pod status managers of simulated kubelets: the statuses that each caches and sends, and when.

Each kubelet has one for as long as the simulation lasts (`kubelet/machine`). Every 10 s, counted
from the kubelet's first heartbeat, its batch checks if another client changed what it had reported,
and corrects that: so pods that were marked not ready become ready again when their node returns.
What the kubelet itself has to report is sent at once. A kubelet whose heartbeats have stopped is
cut off: it goes on counting versions and sends nothing until it is back.

A pod enters its kubelet's machine at the first event about it: the status that it had until then is
the cached one, version 1. So a large cluster costs only what happens in it. Scenario events about
containers and about a pod's remaining resources are in `container_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action, SetPodCondition, of_pod
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.pod import Pod, PodStatus, is_mirror_pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.conditions import shared_types
from kubectl_nodelife.kubelet.machine import (
    CALL_WORDS,
    SYNC_PERIOD_NS,
    Answer,
    ApiCall,
    Calls,
    GetPodCall,
    PatchPodStatusCall,
    PodStatusMachine,
    static_pod_of,
)
from kubectl_nodelife.kubelet.reclaim import HOLDS, ReclaimTerms, containers_are_stopped, what_holds
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.kubelet.status import with_conditions_of_others
from kubectl_nodelife.sim.api import Api, ForkedWorld, deletion, event_record
from kubectl_nodelife.sim.kubelet import Kubelets
from kubectl_nodelife.sim.owners import delete_stopped
from kubectl_nodelife.sim.timeline import KUBELET, Agenda

HOUSEKEEPING_NS = 2 * SECOND_NS
"""How long after a pod is gone its kubelet removes the cached status of it."""

NAME = "pod-status"
"""The controller name in records of what a status manager sends."""

Injected = Callable[[Action], bool]
"""True if a fault of the simulation hits the call that this action stands for."""


class StatusManager:
    """One kubelet's: its machine, and the surroundings that the scenario gives it.

    `changed`: pods that the machine does not have yet and others have changed, as they were before,
    with the last cause; the next batch takes them in. `failing`: API calls ("get", "patch",
    "delete") that fail now. `left`: pod's uid -> which resources of it the node still has.
    `goes_on_ns`: when the client has a token again and the rest is sent.
    `watched`: pods with recorded steps. `stopped`: uids of deleted pods whose time is over.
    """

    def __init__(self, rules: StatusRules, reclaim: ReclaimTerms) -> None:
        self.machine = PodStatusMachine(rules, self)
        self.reclaim = reclaim
        self.changed: dict[Key, tuple[Pod, Action | None]] = {}
        self.news: dict[str, PodNews] = {}
        self.failing: frozenset[str] = frozenset()
        self.left: dict[str, tuple[str, ...]] = {}
        self.watched: set[str] = set()
        self.stopped: set[str] = set()
        self.held: dict[str, list[str]] = {}
        self.batch_at_ns: int | None = None
        self.goes_on_ns = 0
        self.pending_deletions: list[Pod] = []

    def fork(self) -> StatusManager:
        """A copy with the same cached statuses."""
        other = copy(self)
        other.machine = self.machine.fork(other)
        other.changed, other.left = dict(self.changed), dict(self.left)
        other.news = {uid: copy(news) for uid, news in self.news.items()}
        other.watched, other.stopped = set(self.watched), set(self.stopped)
        other.held, other.pending_deletions = dict(self.held), list(self.pending_deletions)
        return other

    def could_have_running_containers(self, pod: Pod) -> bool:
        """True if something of the pod could still run."""
        cached = self.machine.pod_status(pod.uid)
        return not containers_are_stopped(cached or pod.status)

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        """True if nothing is left of a pod that was stopped; the objects of others are deleted by
        the simulated kubelet itself."""
        return pod.uid in self.stopped and not self.holds(pod.uid, status)

    def holds(self, uid: str, status: PodStatus) -> list[str]:
        """The resources that hold the object of the pod."""
        return what_holds(self.left.get(uid, ()), status, self.reclaim, self.machine.rules)


@dataclass(eq=False)
class StatusManagers:
    """Those of all kubelets, by node name."""

    api: Api
    agenda: Agenda
    kubelets: Kubelets
    rules: StatusRules
    injected: Injected
    _managers: dict[str, StatusManager] = field(default_factory=dict)

    def fork(self, world: ForkedWorld) -> StatusManagers:
        """The same for a fork of the world."""
        other = copy(self)
        other.api, other.agenda = world.api, world.agenda
        other.kubelets = world.agenda.own(self.kubelets)
        other.injected = world.agenda.mine(self.injected)
        self._managers, other._managers = fork_dict(self._managers, StatusManager.fork)
        return other

    def begin(self) -> None:
        """Start to manage statuses."""
        self.api.on_pod(self._pod_changed)
        self.api.on_pod_conditions(self._conditions_changed)
        self.kubelets.attend(on_start=self.wake)

    def end(self) -> None:
        """Remove the reference cycles between machines and their kubelets."""
        for manager in self._managers.values():
            del manager.machine
        self._managers.clear()
        del self.injected

    def of(self, node: str) -> StatusManager:
        """The manager of that node's kubelet."""
        manager = self._managers.get(node)
        if manager is None:
            terms = self.kubelets.terms
            reclaim = ReclaimTerms(terms.keep_terminated_pod_volumes, terms.cgroups_per_qos)
            manager = self._managers[node] = StatusManager(self.rules, reclaim)
        return manager

    def restart(self, node: str) -> None:
        """Drop the cached statuses of that node's kubelet: its machine has rebooted."""
        manager = self._managers.pop(node, None)
        if manager is not None:
            del manager.machine

    def know(self, pod: Pod) -> Pod:
        """Add the pod to the kubelet's machine; returns the pod as the machine has it, for a mirror
        its static pod. The cached status is the one before others changed it, with what the pod's
        sync has taken over since."""
        manager = self.of(pod.spec.node_name)
        machine = manager.machine
        uid = machine.pods.translate_uid(pod.uid)
        if uid in machine.statuses and (known := machine.pods.by_uid(uid)) is not None:
            return known
        before, cause = manager.changed.pop(pod.key, (pod, None))
        own = pod
        if is_mirror_pod(pod):
            own = static_pod_of(pod)
            machine.observe(pod)
        status = before.status
        if before is not pod:
            status = with_conditions_of_others(status, pod.status, machine.rules)
        machine.adopt(own, status, pod.uid)
        if before is not pod:
            machine.observe(pod)
            manager.news[own.uid] = PodNews(cause=cause)
        return own

    def fails(self, node: str) -> bool:
        """True if calls of that node's kubelet fail now."""
        manager = self._managers.get(node)
        return manager is not None and bool(manager.failing)

    def knows(self, pod: Pod) -> bool:
        """True if the kubelet's manager has the pod, or a change of it, already."""
        manager = self._managers.get(pod.spec.node_name)
        if manager is None:
            return False
        machine = manager.machine
        return pod.key in manager.changed or machine.pods.translate_uid(pod.uid) in machine.statuses

    def accepted(self, pod: Pod, uid: str, because: str, cause: Action | None) -> None:
        """A new version waits to be sent: the sender is woken."""
        node = pod.spec.node_name
        manager = self.of(node)
        manager.news[uid] = PodNews(because, cause)
        if manager.machine.wakes_sender():
            self._send(node, manager.machine.sync_changed(self.api.now_ns))
        self.wake(node)

    def wake(self, node: str) -> None:
        """Set the next batch of a kubelet that is alive and has something to check."""
        manager = self._managers.get(node)
        if manager is None or manager.batch_at_ns is not None:
            return
        if manager.machine.settled and not manager.changed and not manager.pending_deletions:
            return
        since_ns = self.kubelets.alive_since(node)
        if since_ns is not None:
            batches = (self.api.now_ns - since_ns) // SYNC_PERIOD_NS + 1
            manager.batch_at_ns = since_ns + max(1, batches) * SYNC_PERIOD_NS
            self.agenda.add(manager.batch_at_ns, KUBELET, self._batch, node)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        """The kubelet's watch returns a pod. What the kubelet wrote itself is cached already."""
        if new is None or (
            old is not None and old.metadata is not new.metadata and old.uid != new.uid
        ):
            if old is not None:
                self._gone(old)
            return
        node = new.spec.node_name
        if not node or self.kubelets.writes:
            return
        if old is None or not old.spec.node_name:  # first seen when it is bound
            if is_mirror_pod(new) and (manager := self._managers.get(node)) is not None:
                manager.machine.observe(new)
                self.wake(node)
            return
        if new.status is old.status or new.status == old.status:
            if self.knows(new):
                self.of(node).machine.observe(new)
                self.wake(node)
            return
        self._status_changed(((old, new, cause),))

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        """The same for pods of which nothing else changed."""
        if not self.kubelets.writes:
            self._status_changed(changes)

    def _status_changed(self, changes: Sequence[ConditionsChange]) -> None:
        """Another client wrote these pods' statuses; changes of one node come together."""
        node, manager = "", None
        waking: dict[str, None] = {}
        for old, new, cause in changes:
            if manager is None or new.spec.node_name != node:
                node = new.spec.node_name
                manager = self.of(node)
                waking[node] = None
            machine = manager.machine
            statuses = machine.statuses
            if statuses and (uid := machine.pods.translate_uid(new.uid)) in statuses:
                machine.observe(new)
                manager.news.setdefault(uid, PodNews()).cause = cause
            else:
                key = new.key
                before = manager.changed.get(key)
                manager.changed[key] = (old if before is None else before[0], cause)
        for node in waking:
            self.wake(node)

    def _gone(self, pod: Pod) -> None:
        """The watch returns that the pod is gone; its cached status is an orphan now.

        A kubelet that is cut off gets this after its first batch, in which the API server may
        return another pod of that name: the watch is set up anew with a back-off of its own.
        """
        manager = self._managers.get(pod.spec.node_name)
        if manager is None:
            return
        if not self.kubelets.alive(pod.spec.node_name):
            manager.pending_deletions.append(pod)
            return
        machine = manager.machine
        successor = self.api.store.pods.get(pod.key)
        if successor is None or successor.uid == pod.uid:
            manager.changed.pop(pod.key, None)
        machine.forget(pod)
        for by_uid in (manager.left, manager.held, manager.news):
            by_uid.pop(pod.uid, None)
        manager.stopped.discard(pod.uid)
        if is_mirror_pod(pod) or pod.uid not in machine.statuses:
            manager.watched.discard(pod.uid)
        elif pod.uid in manager.watched:
            at_ns = self.api.now_ns + HOUSEKEEPING_NS
            self.agenda.add(at_ns, KUBELET, self._clean_up, pod)
        else:
            machine.remove_orphaned_statuses(machine.statuses.keys() - {pod.uid})

    def _clean_up(self, pod: Pod, at_ns: int) -> None:
        """Follows `removeOrphanedPodStatuses` in `HandlePodCleanups`."""
        manager = self.of(pod.spec.node_name)
        machine = manager.machine
        cached = machine.statuses.get(pod.uid)
        manager.watched.discard(pod.uid)
        if cached is not None:
            machine.remove_orphaned_statuses(machine.statuses.keys() - {pod.uid})
            why = f"the pod is gone: its kubelet drops its cached status, version {cached.version}"
            self.api.note(event_record(pod, "OrphanedStatusRemoved", why))

    def _batch(self, node: str, at_ns: int) -> None:
        manager = self.of(node)
        manager.batch_at_ns = None
        if not self.kubelets.alive(node):
            return  # its next start sets one
        for key in list(manager.changed):
            if (pod := self.api.store.pods.get(key)) is not None:
                self.know(pod)
            else:
                del manager.changed[key]  # it is gone; the watch has yet to return that
        self._sync_pods(manager, at_ns)
        if self.kubelets.terms.pods_listed is not False:
            manager.machine.list_pods()
        goes_on = self._send(node, manager.machine.sync_batch(at_ns))
        pending_deletions, manager.pending_deletions = manager.pending_deletions, []
        for pod in pending_deletions:
            self._gone(pod)
        for pod in manager.machine.pods:
            self.record_holds(manager, pod)
        if goes_on or manager.pending_deletions:  # else the next one finds as little
            self.wake(node)

    def _sync_pods(self, manager: StatusManager, at_ns: int) -> None:
        """The pods' own syncs take over what others wrote, which is a change where the kubelet
        shares the condition and has none yet. A sync comes at once with a deletion, else within a
        minute and a half; here it has come before the batch.
        """
        machine = manager.machine
        shared = shared_types(machine.rules)
        for uid in manager.news:
            pod, cached = machine.pods.by_uid(uid), machine.statuses.get(uid)
            if pod is None or cached is None:
                continue
            own = cached.status
            if any(c.type in shared and not own.condition(c.type) for c in pod.status.conditions):
                status = with_conditions_of_others(own, pod.status, machine.rules)
                machine.set_pod_status(pod, status, at_ns)

    def _send(self, node: str, calls: Calls) -> bool:
        """True if a call wrote or failed, or one waits for its token: then the rest is sent later,
        as a batch finds it. What a batch has only read, the next one reads as well: upstream's goes
        on every 10 s, without consequence, where an end of DisruptionTarget is not the kubelet's.
        """
        manager = self.of(node)
        answer: Answer = None
        consequence = False
        if manager.goes_on_ns > self.api.now_ns:
            return True
        while True:
            try:
                call = calls.send(answer)
            except StopIteration:
                return consequence
            if type(call) is GetPodCall:
                at_ns = self.kubelets.clients.next_token(node, self.api.now_ns)
                if at_ns > self.api.now_ns:
                    manager.goes_on_ns = at_ns
                    self.agenda.add(at_ns, KUBELET, self._go_on, node)
                    return True
            self.kubelets.clients.request(node, self.api.now_ns)
            answer = self._answer(manager, call) if self.kubelets.alive(node) else None
            consequence |= type(call) is not GetPodCall or answer is None

    def _go_on(self, node: str, at_ns: int) -> None:
        """The client has a token: what waits is sent."""
        manager = self._managers.get(node)
        if manager is not None and self.kubelets.alive(node):
            machine, by_request = manager.machine, self.rules.request_per_change
            self._send(node, (machine.sync_batch if by_request else machine.sync_changed)(at_ns))

    def _answer(self, manager: StatusManager, call: ApiCall) -> Answer:
        """The API server's answer to a call."""
        pod = self.api.store.pods.get((call.namespace, call.name))
        word = CALL_WORDS[type(call)]
        if word in manager.failing:
            about = pod or ("Pod", call.namespace, call.name)
            why = f"the API server fails to {word} the pod: the next batch tries again"
            self.api.note(event_record(about, "StatusSendFailed", why, warning=True))
            return None
        if pod is None or isinstance(call, GetPodCall):
            return pod
        if call.uid and call.uid != pod.uid:
            return None
        if isinstance(call, PatchPodStatusCall):
            return self._patch(manager, pod, call.status)
        return self._delete(manager, pod)

    def _patch(self, manager: StatusManager, pod: Pod, status: PodStatus) -> Answer:
        """A patch of the status: one record for each condition that it changes."""
        if status == pod.status:
            return pod
        uid = manager.machine.pods.translate_uid(pod.uid)
        news = manager.news.get(uid) or PodNews()
        actions = list(patch_actions(pod, status, news, manager.machine.statuses[uid].version))
        if any(self.injected(action) for action in actions):
            return None
        for action in actions:
            self.api.note(action)
        patched = replace(pod, status=status)
        self.kubelets.write(patched, actions[-1])
        manager.machine.observe(patched)
        manager.news.pop(uid, None)
        return patched

    def _delete(self, manager: StatusManager, pod: Pod) -> Answer:
        news = manager.news.get(pod.uid) or PodNews()
        stopped = f"the kubelet of {pod.spec.node_name} has stopped the pod"
        because = f"{stopped}, and nothing of it is left on the node"
        delete_stopped(self.api, pod, deletion(pod, because, news.cause, 0))
        return pod

    def record_holds(self, manager: StatusManager, pod: Pod) -> None:
        """A record where resources hold a stopped pod's object, once for each set of them."""
        if pod.uid not in manager.stopped:
            return
        status = manager.machine.pod_status(pod.uid) or pod.status
        holds = manager.holds(pod.uid, status)
        if holds and holds != manager.held.get(pod.uid):
            manager.held[pod.uid] = holds
            words = "; ".join(HOLDS[word] for word in holds)
            why = f"its kubelet cannot let the object go: {words}"
            self.api.note(event_record(pod, "PodHeld", why, warning=True))


class PodNews(msgspec.Struct):
    """The cause of the version of a pod that is to be sent: the sentence, and the record."""

    because: str = ""
    cause: Action | None = None


def patch_actions(pod: Pod, status: PodStatus, news: PodNews, version: int) -> Iterator[Action]:
    """The patch, one action for each condition; the phase goes with the first."""
    phase = status.phase if status.phase != pod.status.phase else ""
    sees = f"the kubelet of {pod.spec.node_name} sees that"
    mends = "is not what it had reported, and sets it right"
    for condition in status.conditions:
        if pod.status.condition(condition.type) == condition:
            continue
        yield SetPodCondition(
            controller=NAME,
            because=news.because or f"{sees} {condition.type} {mends}",
            cause=news.cause,
            **of_pod(pod),
            condition=condition,
            phase=phase,
        )
        phase = ""
    if phase or all(c in pod.status.conditions for c in status.conditions):
        why = news.because or f"{sees} the status {mends}"
        because = f"{why} (version {version})"
        record = event_record(pod, "StatusPatched", because, cause=news.cause)
        yield replace(record, controller=NAME)
