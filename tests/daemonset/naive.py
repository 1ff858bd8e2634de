"""The full walk over all nodes and pods, as upstream's, that checks the node status index.

It shares only the vocabulary (taints, affinity) with the product, and looks at everything each
time. Present rules (from 1.34) and those before surge (1.16) are known.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec, Toleration
from kubectl_nodelife.kube.selectors import matches, matches_required_node_affinity
from kubectl_nodelife.kube.taints import tolerates
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet

HASH = "controller-revision-hash"
DEFAULTS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""What every daemon pod tolerates (`AddOrUpdateDaemonPodTolerations`): key and effect of taints."""


class Walk(NamedTuple):
    """What one look at everything says."""

    status: dict[str, int]
    create: set[str]
    delete: set[str]
    update_create: set[str]
    update_delete: set[str]
    free_choice: int
    """How many more of `candidates` the update takes: which ones is free."""
    candidates: set[str]


class Cluster:
    """A set, its release (classic: 1.16, else the present one), and everything around it."""

    def __init__(
        self,
        daemon_set: DaemonSet,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        revision_hash: str,
        now: int,
        classic: bool,
    ) -> None:
        self.set = daemon_set
        self.nodes = {node.name: node for node in nodes}
        self.hash = revision_hash
        self.now = now
        self.classic = classic
        self.by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid != daemon_set.uid:
                continue
            if not matches(daemon_set.spec.selector, pod.metadata.labels):
                continue
            finished = pod.status.phase in ("Succeeded", "Failed")
            if finished and going(pod) and not classic:
                continue
            self.by_node.setdefault(pod.spec.node_name, []).append(pod)

    def verdict(self, node: Node) -> tuple[bool, bool]:
        """(should run, should continue)."""
        raw = self.set.spec.template["spec"]
        spec = msgspec.convert(raw, PodSpec)
        if spec.node_name and spec.node_name != node.name:
            return False, False
        if not matches_required_node_affinity(spec, node):
            return False, False
        tolerations = list(spec.tolerations)
        tolerations += [Toleration(key=k, operator="Exists", effect=e) for k, e in DEFAULTS]
        loose = [
            taint
            for taint in node.spec.taints
            if taint.effect in ("NoSchedule", "NoExecute")
            and not any(tolerates(t, taint) for t in tolerations)
        ]
        return not loose, not any(taint.effect == "NoExecute" for taint in loose)

    def available(self, pod: Pod) -> bool:
        """Ready for minReadySeconds."""
        condition = pod.status.condition("Ready")
        if condition is None or condition.status != "True":
            return False
        seconds = self.set.spec.min_ready_seconds
        if not seconds:
            return True
        if condition.last_transition_time is None:
            return False
        since = condition.last_transition_time + seconds * SECOND_NS
        return since < self.now or (since == self.now and not self.classic)

    def updated(self, pod: Pod) -> bool:
        """Of the present template."""
        return (pod.metadata.labels or {}).get(HASH) == self.hash

    def scaled(self, value: Any, desired: int) -> int:
        """A number, or a percentage rounded up."""
        if isinstance(value, int):
            return value
        percent = int(value.rstrip("%"))
        return (percent * desired + 99) // 100

    def status(self) -> dict[str, int]:
        """The six counts."""
        names = ("desired", "current", "misscheduled", "ready", "updated", "available")
        counts = dict.fromkeys(names, 0)
        for name, node in self.nodes.items():
            should_run, _ = self.verdict(node)
            pods = sorted(self.by_node.get(name, []), key=age)
            if not should_run:
                counts["misscheduled"] += bool(pods)
                continue
            counts["desired"] += 1
            if pods:
                oldest = pods[0]
                counts["current"] += 1
                counts["ready"] += oldest.ready()
                counts["updated"] += self.updated(oldest)
                counts["available"] += self.available(oldest)
        return counts

    def surge(self, desired: int) -> int:
        """maxSurge in nodes."""
        rolling = self.set.spec.update_strategy.rolling_update
        if self.classic or rolling is None or rolling.max_surge is None:
            return 0
        return self.scaled(rolling.max_surge, desired)

    def create_step(self) -> tuple[set[str], set[str]]:
        """(nodes that need a pod, pods to delete), where no pod has failed."""
        create: set[str] = set()
        delete: set[str] = set()
        for name, node in self.nodes.items():
            should_run, should_continue = self.verdict(node)
            pods = self.by_node.get(name)
            if should_run and pods is None:
                create.add(name)
            elif should_continue:
                self._on_a_fitting_node(name, should_run, pods or [], create, delete)
            elif pods is not None:
                delete |= {p.name for p in pods if not going(p)}
        return create, delete

    def _on_a_fitting_node(
        self, name: str, should_run: bool, pods: list[Pod], create: set[str], delete: set[str]
    ) -> None:
        running = []
        for pod in sorted(pods, key=age):
            if going(pod):
                continue
            if pod.status.phase == "Succeeded" and not self.classic:
                delete.add(pod.name)
            else:
                running.append(pod)
        if self.surge(1) == 0:
            delete |= {pod.name for pod in running[1:]}
            return
        if len(running) <= 1:
            if not running and should_run:
                create.add(name)
            return
        new = next((p for p in running if self.updated(p)), None)
        old = next((p for p in running if not self.updated(p)), None)
        delete |= {p.name for p in running if p not in (new, old)}
        if new is not None and old is not None and (not old.ready() or self.available(new)):
            delete.add(old.name)

    def walk(self) -> Walk:
        """Everything, as of now."""
        status = self.status()
        create, delete = self.create_step()
        desired = status["desired"]
        rolling = self.set.spec.update_strategy.rolling_update
        assert rolling is not None and rolling.max_unavailable is not None
        unavailable = self.scaled(rolling.max_unavailable, desired)
        surge = self.surge(desired)
        if self.classic:
            update = self._classic(unavailable)
        else:
            if desired and not unavailable and not surge:
                unavailable = 1
            update = self._beside(surge, desired) if surge else self._in_place(unavailable)
        return Walk(status, create, delete, *update)

    def _map(self) -> dict[str, list[Pod]]:
        filled = {name: list(pods) for name, pods in self.by_node.items()}
        for name, node in self.nodes.items():
            if self.verdict(node)[0]:
                filled.setdefault(name, [])
        return filled

    def _split(self, pods: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        live = [p for p in pods if not going(p)]
        return [p for p in live if self.updated(p)], [p for p in live if not self.updated(p)]

    def _in_place(self, limit: int) -> tuple[set[str], set[str], int, set[str]]:
        used, allowed, candidates = 0, set(), set()
        for pods in self._map().values():
            new, old = self._split(pods)
            if len(new) > 1 or len(old) > 1 or bool(new) == bool(old):
                used += 1
            elif new:
                used += not self.available(new[0])
            elif self.available(old[0]):
                candidates.add(old[0].name)
            else:
                allowed.add(old[0].name)
                used += 1
        return set(), allowed, min(max(0, limit - used), len(candidates)), candidates

    def _beside(self, limit: int, desired: int) -> tuple[set[str], set[str], int, set[str]]:
        used = available = 0
        create: set[str] = set()
        delete: set[str] = set()
        retired: set[str] = set()
        candidates: set[str] = set()
        for name, pods in self._map().items():
            new, old = self._split(pods)
            if len(new) > 1 or len(old) > 1:
                used += 1
                continue
            counted = old or new
            available += bool(counted) and self.available(counted[0])
            if not old:
                continue
            if new and self.available(new[0]):
                delete.add(old[0].name)
            elif new:
                used += 1
            elif not self.verdict(self.nodes[name])[0]:
                (retired if self.available(old[0]) else delete).add(old[0].name)
            elif self.available(old[0]):
                candidates.add(name)
            else:
                create.add(name)
        spare = max(0, available - desired)
        if retired and spare < len(retired):
            delete |= set(sorted(retired, key=self._node_of)[:spare])
        else:
            delete |= retired
        return create, delete, min(max(0, limit - used), len(candidates)), candidates

    def _node_of(self, pod_name: str) -> str:
        return next(n for n, pods in self.by_node.items() if any(p.name == pod_name for p in pods))

    def _classic(self, limit: int) -> tuple[set[str], set[str], int, set[str]]:
        used = 0
        for name, node in self.nodes.items():
            pods = self.by_node.get(name, [])
            if self.verdict(node)[0]:
                used += not any(self.available(p) and not going(p) for p in pods)
        old = [p for pods in self.by_node.values() for p in pods if not self.updated(p)]
        gone = {p.name for p in old if not self.available(p) and not going(p)}
        candidates = {p.name for p in old if self.available(p)}
        return set(), gone, min(max(0, limit - used), len(candidates)), candidates


def going(pod: Pod) -> bool:
    """Terminating."""
    return pod.metadata.deletion_timestamp is not None


def age(pod: Pod) -> tuple[bool, int, str]:
    """Sort key, the oldest first."""
    return (not pod.spec.node_name, pod.metadata.creation_timestamp or -1, pod.name)
