"""The pod garbage collector: deletes pods that no other controller would finish.

Follows pkg/controller/podgc/gc_controller.go. Each run takes, in order: terminated pods beyond a
threshold, terminating pods on nodes marked out of service, pods of nodes that are gone, and
terminating pods that were never scheduled. Which pods and nodes these are is kept up to date as
changes come, so that a run over a quiet cluster of 150,000 pods looks at none. That a node is gone
upstream checks with a live GET; here the cache says so, and the writes carry `if_node_gone`, for
which a live executor asks. A run names a pod once, while upstream may delete it by two rules. Left
out on purpose: metrics.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from typing import Any, Final

from kubectl_nodelife.copy_on_write import fork_dict, unchanging
from kubectl_nodelife.engine.actions import (
    Action,
    AfterWrites,
    DeletePod,
    Requeue,
    SetPodCondition,
    SetPodPhase,
    of_pod,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.controller import Actions, TurnPart
from kubectl_nodelife.engine.events import Change, Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition, disruption_target
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import DELETION_BY_POD_GC, TAINT_NODE_OUT_OF_SERVICE

CONTROLLER: Final = "pod-gc"
GC_CHECK_PERIOD_NS: Final = 20 * SECOND_NS
QUARANTINE_NS: Final = 40 * SECOND_NS

# The quarantine ends at the very moment of the second run after the one that announced the node.
# Whether that run still sees it is chance upstream (recorded: it does not); here it never does.
_HANDOVER_NS: Final = 100 * MILLISECOND_NS

_ALIVE_PHASES = frozenset({"Pending", "Running", "Unknown"})
_CONDITION_MESSAGE = "PodGC: node no longer exists"
_RUN: Final = "run"
_DONE: Final = "done"


class PodGCController:
    """Deletes orphaned, unscheduled and terminated pods each 20 s, as `PodGCController`.

    `pass_drift_ns`: by how much each run begins late, as real ones do;
    `period_ns`: from the end of one to the beginning of the next.
    """

    name = CONTROLLER
    watches = frozenset({"Node", "Pod"})
    reads_conditions_of: frozenset[str] = frozenset()
    reads_success = False

    def __init__(self, settings: Settings, *, pass_drift_ns: int = 0) -> None:
        self.settings = settings
        self.period_ns = GC_CHECK_PERIOD_NS + pass_drift_ns
        profile = settings.profile
        self._has_quarantine = profile.has("gc_quarantine")
        self._evicted_first = profile.has("gc_evicted_first")
        self._with_condition = settings.gate("PodDisruptionConditions")
        self._sets_phase = profile.has("gc_always_sets_phase") or (
            profile.has("gc_sets_phase") and self._with_condition
        )
        self.quarantine: dict[str, int] = {}
        """Node name -> end of its quarantine, in ns since the epoch."""
        self._writing = 0
        """Of how many pods the last run's writes are on their way."""
        # What the rules look at, with the action that made it so where that is known.
        self._terminated: dict[Key, None] = {}
        self._unscheduled: dict[Key, Action | None] = {}
        self._out_of_service: dict[str, Action | None] = {}
        self._unknown: dict[str, Action | None] = {}

    def fork(self, cache: Cache) -> PodGCController:
        """Another one with the same memory."""
        other = copy(self)
        self.quarantine, other.quarantine = fork_dict(self.quarantine)
        self._terminated, other._terminated = fork_dict(self._terminated)
        self._unscheduled, other._unscheduled = fork_dict(self._unscheduled)
        self._out_of_service, other._out_of_service = fork_dict(self._out_of_service)
        self._unknown, other._unknown = fork_dict(self._unknown)
        return other

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """The first run is at once."""
        nodes = unchanging(cache.nodes)
        for node in nodes.values():
            if node.spec.taints:
                self._note_node(node, None)
        for pod in cache.unsettled_pods():
            if pod.status.phase not in _ALIVE_PHASES or pod.metadata.deletion_timestamp:
                self._note_pod(pod.key, pod, None)
        for name in cache.nodes_with_pods():
            if name not in nodes:
                self._unknown[name] = None
        yield from self.reconcile(_RUN, cache, now_ns)

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """As a start: nothing shows when the other one runs, nor its quarantines."""
        return self.start(cache, now_ns)

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Only take note; decisions wait for the next run."""
        old: Any = change.old
        new: Any = change.new
        if change.kind == "Pod":
            pod: Pod = new or old
            self._note_pod(pod.key, new, change.cause)
            name = pod.spec.node_name
            if new is not None and name and name not in cache.nodes:
                self._unknown.setdefault(name, change.cause)
        elif new is not None:
            self._unknown.pop(new.name, None)
            self._note_node(new, change.cause)
        elif old is not None:
            self._out_of_service.pop(old.name, None)
            if old.name in cache.nodes_with_pods():
                self._unknown[old.name] = change.cause
        return ()

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """One run, or the end of what it writes: the next one begins a period after that, as
        `wait.UntilWithContext` has it. Follows `gc`.
        """
        if key == _RUN and not self._writing:
            yield from self._run(cache, now_ns)
        elif key != _RUN:
            self._writing -= 1
        elif self._writing:
            return
        if not self._writing:
            yield self.pass_at(now_ns + self.period_ns)

    def _run(self, cache: Cache, now_ns: int) -> Iterator[TurnPart]:
        taken: set[Key] = set()
        for rule in (
            self.gc_terminated,
            self.gc_terminating,
            self.gc_orphaned,
            self.gc_unscheduled_terminating,
        ):
            for pod, actions in rule(cache, now_ns):
                if pod.key not in taken:
                    taken.add(pod.key)
                    yield TurnPart(self.name, ("Pod", pod.key), self._awaited(actions))

    def _awaited(self, actions: Iterable[Action]) -> Iterator[Action]:
        """The actions, and a wake-up when they are done, which a bug in them does not prevent."""
        self._writing += 1
        try:
            yield from actions
        finally:
            yield AfterWrites(controller=self.name, key=(_DONE, ""))

    def rests(self, key: Hashable) -> bool:
        """True if no rule has a pod to look at."""
        threshold = self.settings.terminated_pod_gc_threshold
        if 0 < threshold < len(self._terminated):
            return False
        return not (self.quarantine or self._unscheduled or self._out_of_service or self._unknown)

    def pass_at(self, at_ns: int) -> Requeue:
        """The next run begins then."""
        return Requeue(self.name, _RUN, at_ns)

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """Nothing: what is still there the next run finds again."""
        return ()

    # The rules: each gives the pods to delete, with what it takes

    def gc_terminated(self, cache: Cache, now_ns: int) -> Iterator[tuple[Pod, Iterable[Action]]]:
        """Terminated pods beyond the threshold, evicted ones first, then the oldest.

        Follows `gcTerminated`. A threshold of 0 or less switches the rule off.
        """
        threshold = self.settings.terminated_pod_gc_threshold
        count = len(self._terminated) - threshold
        if threshold <= 0 or count <= 0:
            return
        because = (
            f"{len(self._terminated)} pods are terminated, and terminated-pod-gc-threshold "
            f"keeps {threshold}"
        )
        pods = sorted((cache.pods[key] for key in self._terminated), key=self._terminated_order)
        for pod in pods[:count]:
            yield pod, self._force_delete(pod, because, None)

    def gc_terminating(self, cache: Cache, now_ns: int) -> Iterator[tuple[Pod, Iterable[Action]]]:
        """Terminating pods on nodes that are not Ready and marked out of service.

        Follows `gcTerminating`. The taint counts with any effect and any value.
        """
        if not self.settings.gate("NodeOutOfServiceVolumeDetach"):
            return
        for name, cause in list(self._out_of_service.items()):
            if cache.nodes[name].is_ready:
                continue
            because = (
                f"the pod is terminating, node {name} is not Ready and has taint "
                f"{TAINT_NODE_OUT_OF_SERVICE}"
            )
            for pod in cache.pods_on(name):
                if pod.metadata.deletion_timestamp is not None:
                    yield pod, self._force_delete(pod, because, cause, out_of_service=name)

    def gc_orphaned(self, cache: Cache, now_ns: int) -> Iterator[tuple[Pod, Iterable[Action]]]:
        """Pods of nodes that are gone, after a quarantine of the node's name.

        Follows `gcOrphaned` and `discoverDeletedNodes`. A name whose quarantine is over begins
        another one in the very run that takes its pods, since that run sees them still: a pod that
        comes there meanwhile has no quarantine of its own.
        """
        due = self.due_nodes(now_ns)
        for name in due:
            del self.quarantine[name]
        for name in list(self._unknown):
            if name in cache.nodes or name not in cache.nodes_with_pods():
                del self._unknown[name]
            elif self._has_quarantine:
                self.quarantine.setdefault(name, now_ns + QUARANTINE_NS)
            else:
                due.append(name)
        for name in due:
            if name not in cache.nodes:
                for pod in cache.pods_on(name):
                    yield pod, self._delete_orphan(pod, name, now_ns)

    def gc_unscheduled_terminating(
        self, cache: Cache, now_ns: int
    ) -> Iterator[tuple[Pod, Iterable[Action]]]:
        """Terminating pods without a node. Follows `gcUnscheduledTerminating`."""
        because = "the pod is terminating and was never scheduled: no kubelet will finish it"
        for key, cause in list(self._unscheduled.items()):
            yield cache.pods[key], self._force_delete(cache.pods[key], because, cause)

    def due_nodes(self, now_ns: int) -> list[str]:
        """The nodes whose quarantine is over. Before 1.17 there is none."""
        return [n for n, ends_ns in self.quarantine.items() if ends_ns + _HANDOVER_NS <= now_ns]

    # What a deletion takes

    def _delete_orphan(self, pod: Pod, node: str, now_ns: int) -> Iterator[Action]:
        because = f"node {node} does not exist"
        if self._has_quarantine:
            because = f"{because}, and did not {QUARANTINE_NS // SECOND_NS} s and more ago"
        condition = None
        if self._with_condition:
            condition = disruption_target(
                pod.status, DELETION_BY_POD_GC, _CONDITION_MESSAGE, now_ns
            )
        cause = self._unknown.get(node)
        yield from self._force_delete(pod, because, cause, gone=node, condition=condition)

    def _force_delete(
        self,
        pod: Pod,
        because: str,
        cause: Action | None,
        *,
        gone: str = "",
        out_of_service: str = "",
        condition: PodCondition | None = None,
    ) -> Iterator[Action]:
        """Follows `markFailedAndDeletePodWithCondition`. `gone`, `out_of_service`: what the node
        must be."""
        common: dict[str, Any] = {
            "controller": CONTROLLER,
            "because": because,
            "cause": cause,
            **of_pod(pod),
            "if_node_gone": gone,
            "if_node_out_of_service": out_of_service,
        }
        if self._sets_phase and pod.status.phase not in TERMINAL_PHASES:
            if condition is not None:
                yield SetPodCondition(**common, condition=condition, phase="Failed")
            else:
                yield SetPodPhase(**common, phase="Failed")
        yield DeletePod(**common, grace_period_seconds=0, force=True)

    # What is kept up to date

    def _note_pod(self, key: Key, pod: Pod | None, cause: Action | None) -> None:
        if pod is not None and pod.status.phase not in _ALIVE_PHASES:
            self._terminated[key] = None
        else:
            self._terminated.pop(key, None)
        if pod is not None and pod.metadata.deletion_timestamp and not pod.spec.node_name:
            self._unscheduled.setdefault(key, cause)
        else:
            self._unscheduled.pop(key, None)

    def _note_node(self, node: Node, cause: Action | None) -> None:
        if any(taint.key == TAINT_NODE_OUT_OF_SERVICE for taint in node.spec.taints):
            self._out_of_service.setdefault(node.name, cause)
        else:
            self._out_of_service.pop(node.name, None)

    def _terminated_order(self, pod: Pod) -> tuple[bool, int, str]:
        """Follows `byEvictionAndCreationTimestamp`; a pod without a creation time is the oldest."""
        evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
        created = pod.metadata.creation_timestamp or 0
        return (self._evicted_first and not evicted, created, pod.metadata.name)
