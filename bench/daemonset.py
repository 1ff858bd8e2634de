"""The DaemonSet controller: a first sync of all sets, one node's change, a whole rolling update.

`wallSeconds` is the time of the first sync: the controller begins with full caches, every set has
its pods, and all sets are synced. `nodeChangeMillis` is the median of what one node's change costs:
sets are checked again, the affected ones synced, and their calls answered. A rolling update
over all nodes is simulated with cluster and kubelets, a tenth of the nodes at a time
(`rollingUpdateSeconds`) and one by one (`oneByOneSeconds`). `emptySyncSeconds` is the first sync of
sets that have no pods at all yet.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from msgspec.structs import replace

from bench import Stopwatch
from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.engine.actions import Action, RecordEvent, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Change, Gone, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import kind_named, kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.sim.events import ApplyEvent, ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import Scenario, Setting, assemble

SETS = 30
CHANGES = 20
BLOCKED = Taint(key="bench", effect="NoExecute")


class Cluster:
    """A cache and a controller; calls take effect and are seen at once."""

    def __init__(self, objects: Iterable[KubeObject], setting: Setting) -> None:
        self.cache = Cache()
        self.now_ns = setting.start_ns
        self.actions = 0
        for obj in objects:
            self.cache.apply(Put(kind_of(obj), obj), self.now_ns)
        self.controller = DaemonSetController(make_settings(setting.profile, {}))

    def start(self) -> None:
        """Begin, and sync all sets."""
        self.settle(self.controller.start(self.cache, self.now_ns))

    def see(self, change: Change | None) -> None:
        """Process one change of an object, and all that follows."""
        assert change is not None
        self.settle(self.controller.changed(change, self.cache, self.now_ns))

    def put(self, obj: KubeObject) -> None:
        """Add or change an object."""
        self.see(self.cache.apply(Put(kind_of(obj), obj), self.now_ns))

    def settle(self, actions: Iterable[Action | Requeue]) -> None:
        """Answer all calls until nothing is left to do."""
        todo: deque[Action | Requeue] = deque(actions)
        queue = self.controller.queue
        while todo or queue.ready or self.controller.handlers.nodes:
            if not todo:
                self.now_ns += 1
                todo.extend(self.controller.reconcile("queue", self.cache, self.now_ns))
                continue
            action = todo.popleft()
            if isinstance(action, Action) and not isinstance(action, RecordEvent):
                self.actions += 1
                todo.extend(self._answer(action))

    def _answer(self, action: Action) -> Iterable[Action | Requeue]:
        kind, key = action.target
        before = self.cache.get(kind, key)
        after = action.effect(before, self.now_ns)
        if after is before:
            return ()
        event = Gone(kind, key) if after is None else Put(kind, after)
        change = self.cache.apply(event, self.now_ns)
        assert change is not None
        return self.controller.changed(change, self.cache, self.now_ns)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """30 sets (fewer where `pods` is too low) on all nodes."""
    sets = max(1, min(SETS, pods // nodes))
    setting = make_setting(nodes, sets, seed)
    cluster = Cluster(setting.objects, setting)
    gc.collect()
    gc.freeze()
    with stopwatch:
        cluster.start()
    changes = node_changes(cluster)
    bare = [obj for obj in setting.objects if not isinstance(obj, Pod | ControllerRevision)]
    empty = Cluster(bare, setting)
    began = time.perf_counter()
    empty.start()
    empty_seconds = time.perf_counter() - began
    del cluster, empty
    update_seconds, entries = rolling_update(nodes, seed, "10%")
    one_by_one_seconds, _ = rolling_update(nodes, seed, 1)
    return {
        "daemonSets": sets,
        "nodeChangeMillis": round(statistics.median(changes) * 1000, 3),
        "worstNodeChangeMillis": round(max(changes) * 1000, 3),
        "emptySyncSeconds": round(empty_seconds, 6),
        "rollingUpdateSeconds": round(update_seconds, 6),
        "rollingUpdateActions": entries,
        "oneByOneSeconds": round(one_by_one_seconds, 6),
    }


def make_setting(nodes: int, sets: int, seed: int) -> Setting:
    """Nodes with nothing but daemon pods."""
    made = Generate(zones=3, nodes=nodes, pods_per_node=sets, daemon_sets=sets, seed=seed)
    return assemble(Scenario(file="bench", name="daemonset", generate=made))


def node_changes(cluster: Cluster) -> list[float]:
    """Seconds for each change: nodes get a taint that no set tolerates, and lose it."""
    seconds = []
    names = sorted(cluster.cache.nodes)[:CHANGES]
    for name in names:
        for taints in ((BLOCKED,), ()):
            node = cluster.cache.nodes[name]
            changed = replace(node, spec=replace(node.spec, taints=taints))
            began = time.perf_counter()
            cluster.put(changed)
            seconds.append(time.perf_counter() - began)
    return seconds


def rolling_update(nodes: int, seed: int, max_unavailable: int | str) -> tuple[float, int]:
    """(seconds, actions) of an update of one set on all nodes."""
    setting = make_setting(nodes, 1, seed)
    old = next(obj for obj in setting.objects if isinstance(obj, DaemonSet))
    template = copy.deepcopy(old.spec.template)
    template["spec"]["containers"][0]["image"] = "registry.example/agent:next"
    patch: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": old.name, "namespace": old.namespace},
        "spec": {
            "template": template,
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": max_unavailable},
            },
        },
    }
    apply = ApplyEvent(kind_named("DaemonSet"), old.namespace, old.name, patch)
    event = ScenarioEvent(MINUTE_NS, apply, FieldPath("bench"))
    scenario = replace(setting.scenario, duration_ns=(nodes + 60) * MINUTE_NS, events=(event,))
    setting = replace(setting, scenario=scenario)
    controller = DaemonSetController(make_settings(setting.profile, {}))
    gc.collect()
    began = time.perf_counter()
    done = simulate(setting, [controller])
    seconds = time.perf_counter() - began
    updated = cast(DaemonSet, done.cluster.get("DaemonSet", old.key))
    if updated.status.updated_number_scheduled != len(done.cluster.nodes):
        raise RuntimeError(f"the update did not end: {updated.status}")
    return seconds, len(done.timeline.entries)
