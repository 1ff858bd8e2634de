"""The status managers of all kubelets, as one controller of the virtual cluster.

A kubelet that lives looks every 10 s (`SYNC_PERIOD_NS`, counted from its first heartbeat) whether
somebody changed what it had reported, and sets that right: so pods that were marked not ready
become ready again when their node returns. What it believes of a pod is what the pod showed before
the first foreign change. Kubelets of releases before 1.18 are taken to be asked for their pods
between any two batches, as every metrics agent does, which blinds them (PR 77661): their pods stay
not ready.

A cluster's own kubelets do this; next to one this controller has nothing to do and is not run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.pod_status.calls import (
    Answer,
    ApiCall,
    CallRefused,
    GetPodCall,
    PatchPodStatusCall,
)
from kubectl_nodelife.controllers.pod_status.machine import (
    SYNC_PERIOD_NS,
    PodStatusMachine,
    containers_are_stopped,
)
from kubectl_nodelife.controllers.pod_status.releases import rules_for
from kubectl_nodelife.engine.actions import Action, Requeue, SetPodCondition
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.controller import Actions
from kubectl_nodelife.engine.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.engine.events import Change, Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus

_KUBELETS = frozenset({"cluster", "pod-status"})
"""Who writes in a kubelet's name."""


class _Foreign(msgspec.Struct, frozen=True, gc=False):
    """What a kubelet believes of a pod whose status others changed, and what the last of them did.

    `cause` None: its own write failed.
    """

    believed: PodStatus
    cause: Action | None


class PodStatusController:
    """See the module."""

    name = "pod-status"
    watches = frozenset({"Pod", "Heartbeat"})
    reads_pod_conditions = True

    def __init__(self, settings: Settings) -> None:
        self._rules = rules_for(settings.profile)
        self._changed: dict[str, dict[Key, _Foreign]] = {}

    def fork(self, cache: Cache) -> PodStatusController:
        """Another one with the same memory."""
        other = copy(self)
        self._changed, other._changed = fork_dict(self._changed, copy_of_dict)
        return other

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Nothing: what pods show at first is what their kubelets believe."""
        return ()

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """As `start`."""
        return ()

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Keep what a kubelet believes of a pod whose status somebody else changed."""
        if change.kind == "Heartbeat":
            return self._wake(change.new.name, cache, now_ns) if change.new is not None else ()
        old: Any = change.old
        new: Any = change.new
        if old is None or (new is not None and new.status is old.status):
            return ()
        node, cause = old.spec.node_name, change.cause
        batch = self._changed.get(node)
        its_own = cause is None or cause.controller in _KUBELETS
        if its_own or not node or new is None or new.metadata.uid != old.metadata.uid:
            if batch:
                batch.pop(old.key, None)
            return ()
        key = old.key
        if not batch:
            self._changed[node] = {key: _Foreign(old.status, cause)}
            return self._wake(node, cache, now_ns)
        before = batch.get(key)
        batch[key] = _Foreign(old.status if before is None else before.believed, cause)
        return ()  # the node's kubelet is to be woken already, or will be when it returns

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """The batch of one kubelet."""
        node = cast(str, key)
        if self._alive_since(node, cache, now_ns) is None:
            return
        for pod_key, foreign in self._changed.pop(node, {}).items():
            pod = cache.pods.get(pod_key)
            if pod is not None:
                yield from self._sync(pod, foreign.believed, foreign.cause, now_ns)

    def failed(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """The next batch tries again."""
        action = outcome.action
        pod = cache.pods.get(action.target[1])
        if isinstance(action, SetPodCondition) and pod is not None and outcome.code != 404:
            believed = _with_condition(pod.status, action.condition)
            batch = self._changed.setdefault(pod.spec.node_name, {})
            batch.setdefault(pod.key, _Foreign(believed, None))
            return self._wake(pod.spec.node_name, cache, now_ns)
        return ()

    def _wake(self, node: str, cache: Cache, now_ns: int) -> Iterator[Requeue]:
        """The next batch of a kubelet that lives and has something to look at."""
        since_ns = self._alive_since(node, cache, now_ns)
        if since_ns is not None and self._changed.get(node):
            batches = (now_ns - since_ns) // SYNC_PERIOD_NS + 1
            yield Requeue(self.name, node, since_ns + max(1, batches) * SYNC_PERIOD_NS)

    def _alive_since(self, node: str, cache: Cache, now_ns: int) -> int | None:
        heartbeat = cache.heartbeat(node)
        schedule = heartbeat.schedule if heartbeat is not None else None
        if schedule is None or (schedule.stop_ns is not None and schedule.stop_ns <= now_ns):
            return None
        return schedule.first_ns

    def _sync(
        self, pod: Pod, believed: PodStatus, cause: Action | None, now_ns: int
    ) -> Iterator[Action]:
        """One pod's part of a batch, by the machine that kubelets run."""
        machine = PodStatusMachine(self._rules, _Kubelet())
        before = _with_status(pod, believed)
        machine.observe(before)
        machine.set_pod_status(before, believed, now_ns)
        machine.requests.clear()
        machine.api_versions[pod.uid] = machine.statuses[pod.uid].version
        machine.observe(pod)
        machine.list_pods()
        calls = machine.sync_batch(now_ns)
        answer: Answer | None = None
        while True:
            try:
                call = next(calls) if answer is None else calls.send(answer)
            except StopIteration:
                return
            if isinstance(call, PatchPodStatusCall):
                yield from self._patched(pod, call.status, cause)
            answer = _answer(call, pod)

    def _patched(self, pod: Pod, status: PodStatus, cause: Action | None) -> Iterator[Action]:
        """A patch of the status, as one record a condition that it changes."""
        for condition in status.conditions:
            if pod.status.condition(condition.type) == condition:
                continue
            yield SetPodCondition(
                controller=self.name,
                because=f"the kubelet of {pod.spec.node_name} sees that {condition.type} is not "
                "what it had reported, and sets it right",
                cause=cause,
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                condition=condition,
            )


class _Kubelet:
    """What a simulated kubelet answers: containers run until their pod's status says otherwise."""

    def could_have_running_containers(self, pod: Pod) -> bool:
        """Whether something of the pod could still run."""
        return not containers_are_stopped(pod.status)

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        """Never: pods that end are taken out by the simulated kubelet itself."""
        return False


def _answer(call: ApiCall, pod: Pod) -> Answer:
    if isinstance(call, GetPodCall):
        return pod
    if isinstance(call, PatchPodStatusCall):
        return _with_status(pod, call.status)
    return CallRefused()


def _with_status(pod: Pod, status: PodStatus) -> Pod:
    return Pod(metadata=pod.metadata, spec=pod.spec, status=status)


def _with_condition(status: PodStatus, condition: PodCondition) -> PodStatus:

    kept = tuple(condition if c.type == condition.type else c for c in status.conditions)
    return replace(status, conditions=kept)
