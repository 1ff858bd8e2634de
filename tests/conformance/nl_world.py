"""The world of a node lifecycle vector: an API, a node cache that lags, a clock that stands.

The node cache follows the API only at `sync_nodes`; pods, leases and DaemonSets always equal the
API. What the controller decides is applied to the API at once; a call that is to fail comes back
as an `Outcome` before the next step.
"""

import json
from typing import Any

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth
from kubectl_nodelife.controllers.nodelifecycle.monitor import note
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, PARTIAL
from kubectl_nodelife.engine import actions as act
from kubectl_nodelife.engine.cache import Cache, ListFailed
from kubectl_nodelife.engine.controller import Actions, flat
from kubectl_nodelife.engine.events import Change, Gone, Outcome, Put
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import format_duration
from kubectl_nodelife.kube.workload import DaemonSet
from tests.conformance.world import EPOCH_NS, decode, instant_ns

_FLAGS = {
    "node_monitor_period": "node-monitor-period",
    "node_monitor_grace_period": "node-monitor-grace-period",
    "node_startup_grace_period": "node-startup-grace-period",
    "pod_eviction_timeout": "pod-eviction-timeout",
    "eviction_qps": "node-eviction-rate",
    "secondary_eviction_qps": "secondary-node-eviction-rate",
    "large_cluster_threshold": "large-cluster-size-threshold",
    "unhealthy_zone_threshold": "unhealthy-zone-threshold",
}
_GATES = {
    "node_lease": "NodeLease",
    "taint_nodes_by_condition": "TaintNodesByCondition",
    "node_disruption_exclusion": "NodeDisruptionExclusion",
    "legacy_node_role": "LegacyNodeRoleBehavior",
}
_KNOWN_CONFIG = {*_FLAGS, *_GATES, "taint_mode", "disruption_qps_override", "monitor_parallelism"}


def settings_of(case: dict[str, Any]) -> Settings:
    """Settings of a vector: its profile, what it requires, its config."""
    config = case["given"].get("config", {})
    unknown = config.keys() - _KNOWN_CONFIG
    assert not unknown, f"unknown config {unknown}"
    requires = case.get("requires") or {}
    profile = case["profile"] if case["profile"] != "any" else "current"
    if requires.get("taint_decision") == "observed":
        profile = "v1.33"
    flags: dict[str, object] = {}
    for key, flag in _FLAGS.items():
        if key in config and not (key == "pod_eviction_timeout" and profile != "v1.16"):
            value = config[key]
            timed = flag.endswith(("period", "timeout"))
            flags[flag] = format_duration(round(value * 1e9)) if timed else value
    gates = [f"{gate}={str(config[key]).lower()}" for key, gate in _GATES.items() if key in config]
    if config.get("taint_mode") is False:
        gates.append("TaintBasedEvictions=false")
    flags["feature-gates"] = ",".join(gates)
    return make_settings(profile, flags)


class Tireless(TokenBucket):
    """The vectors' rates of 10,000 and more never wait, even while the clock stands still."""

    def try_accept(self, now_ns: int) -> bool:
        """True."""
        return True


class FailingCache(Cache):
    """A cache of which the next n listings of a node's pods fail.

    `live_leases`, `lease_errors`: what GETs of Leases answer, None: what the cache shows.
    `lease_store_version`: up to which version the informer shows Leases, None: all.
    """

    failing_lists = 0
    live_leases: dict[str, int] | None = None
    lease_errors: dict[str, int] | None = None
    lease_store_version: int | None = None

    def read_lease(self, node: str, now_ns: int) -> tuple[int, int]:
        """As the vector says, else as the cache."""
        if self.live_leases is None:
            return super().read_lease(node, now_ns)
        code = (self.lease_errors or {}).get(node, 200 if node in self.live_leases else 404)
        return code, self.live_leases.get(node, 0) if code == 200 else 0

    def leases_seen_until(self) -> int | None:
        """As the vector says."""
        return self.lease_store_version

    def pods_on(self, node: str) -> list[Pod]:
        """As the cache, or ListFailed."""
        if self.failing_lists:
            self.failing_lists -= 1
            raise ListFailed(node)
        return super().pods_on(node)


class World:
    """The API and the controller of one vector."""

    def __init__(self, case: dict[str, Any]) -> None:
        given = case["given"]
        self.settings = settings_of(case)
        self.controller = NodeLifecycleController(self.settings)
        parallel = given.get("config", {}).get("monitor_parallelism", 1)  # nodes one after another
        self.controller.memory.workers = parallel
        self.cache = FailingCache()
        self.now_ns = EPOCH_NS
        self.nodes: dict[str, Node] = {}
        self.fail: dict[str, int] = {}
        self.events: list[dict[str, Any]] = []
        self.status_writes: list[tuple[str, Node]] = []
        self.pod_writes = 0
        self.deleted: list[str] = []
        for raw in generated(given.get("generate"), "node") + given.get("nodes", []):
            self.put_node(raw)
        for raw in generated(given.get("generate"), "pod") + given.get("pods", []):
            self.cache.apply(Put("Pod", decode(raw, Pod)), self.now_ns)
        for raw in given.get("daemon_sets", []):
            self.cache.apply(Put("DaemonSet", decode(raw, DaemonSet)), self.now_ns)
        self.set_leases(given.get("leases", []))
        self.set_live_leases(given.get("live_leases"), given.get("live_lease_errors", {}))
        self.set_lease_store_version(given.get("lease_store_version"))
        override = given.get("config", {}).get("disruption_qps_override")
        if override:
            plain = self.controller.memory.eviction_rate
            rates = {PARTIAL: override["partial"], FULL: override["full"]}
            self.controller.memory.eviction_rate = (  # type: ignore[method-assign]
                lambda state, size: rates.get(state, plain(state, size))
            )
        for entry in given.get("health", []):
            ready = self.nodes[entry["node"]].ready()
            self.controller.memory.health[entry["node"]] = NodeHealth(
                ready, instant_ns(entry["probe"]), instant_ns(entry["ready_transition"])
            )

    def put_node(self, raw: dict[str, Any]) -> None:
        """Create or replace a node on the API."""
        node = decode(raw, Node)
        self.nodes[node.name] = node

    def set_leases(self, raw: list[dict[str, Any]]) -> None:
        """Replace all leases."""
        leases = [decode(r, Lease) for r in raw]
        for key in [o.key for o in self.cache.all("Lease")]:
            if key not in {lease.key for lease in leases}:
                self.note(self.cache.apply(Gone("Lease", key), self.now_ns))
                self.controller.memory.look_at.add(key[1])
        for lease in leases:
            self.note(self.cache.apply(Put("Lease", lease), self.now_ns))

    def set_live_leases(
        self, raw: list[dict[str, Any]] | None, errors: dict[str, int] | None
    ) -> None:
        """What GETs of Leases answer from now on: these, or the errors by node."""
        self.cache.lease_errors = errors
        if raw is not None:
            leases = [decode(r, Lease) for r in raw]
            self.cache.live_leases = {
                lease.name: int(lease.metadata.resource_version) for lease in leases
            }

    def set_lease_store_version(self, version: str | None) -> None:
        """Up to which version the informer shows Leases."""
        self.cache.lease_store_version = int(version) if version else None

    def sync_nodes(self) -> None:
        """The node cache takes over what the API holds."""
        for name in [n for n in self.cache.nodes if n not in self.nodes]:
            self.note(self.cache.apply(Gone("Node", ("", name)), self.now_ns))
        for node in self.nodes.values():
            if self.cache.nodes.get(node.name) is not node:
                self.note(self.cache.apply(Put("Node", node), self.now_ns))

    def note(self, change: Change | None) -> None:
        """Tell the controller, without its node workers: vectors run those by name."""
        if change is not None:
            note(self.controller.memory, change, self.now_ns)

    def carry_out(self, actions: Actions) -> None:
        """Apply what was decided to the API; failures come back once all is said."""
        outcomes, waits = [], []
        for action in flat(actions):
            if isinstance(action, act.Requeue):
                continue
            if isinstance(action, act.AfterWrites):
                waits.append(action.key)
                continue
            code = self.apply(action)
            if code != 200:
                outcomes.append(Outcome(action, code))
        for outcome in outcomes:
            list(self.controller.outcome(outcome, self.cache, self.now_ns))
        for key in waits:
            self.carry_out(self.controller.reconcile(key, self.cache, self.now_ns))

    def apply(self, action: act.Action) -> int:
        """One action on the API. The status code."""
        if isinstance(action, act.RecordEvent):
            self.record(action)
            return 200
        if not action.writes:
            return 200
        call = "delete_pod" if isinstance(action, act.DeletePod) else "update_pod_status"
        kind, key = action.target
        if kind == "Pod":
            self.pod_writes += call == "update_pod_status"
            if self.fail.get(call, 0) > 0:
                self.fail[call] -= 1
                return 500
            return self.apply_to_pod(action, key)
        node = self.nodes.get(key[1])
        after = action.effect(node, self.now_ns) if node is not None else None
        if after is None:
            return 404
        assert isinstance(after, Node)
        self.nodes[key[1]] = after
        if isinstance(action, act.SetNodeConditions):
            self.status_writes.append((key[1], after))
        return 200

    def apply_to_pod(self, action: act.Action, key: tuple[str, str]) -> int:
        """A pod write; pods are seen by the cache at once."""
        pod = self.cache.pods.get(key)
        if pod is None:
            return 404
        if isinstance(action, act.DeletePod):
            self.deleted.append(key[1])
        after = action.effect(pod, self.now_ns)
        event = Put("Pod", after) if after is not None else Gone("Pod", key)
        self.cache.apply(event, self.now_ns)
        return 200

    def record(self, e: act.RecordEvent) -> None:
        """Keep an event in the vectors' form."""
        event = {"kind": e.kind, "name": e.name, "type": e.type, "reason": e.reason}
        self.events.append(event | {"uid": e.object_uid, "message": e.message})


def generated(spec: dict[str, Any] | None, kind: str) -> list[dict[str, Any]]:
    """`given.generate` as objects: nodes from a template, pod i on node i modulo their number."""
    if spec is None:
        return []
    nodes, pods = spec["nodes"], spec["pods"]
    if kind == "node":
        template = json.dumps(nodes["template"])
        return [json.loads(template.replace("%d", str(i))) for i in range(nodes["count"])]
    assert pods["node"] == "node%(i mod 50)d"
    return [
        {
            "metadata": {"name": pods["name"] % i, "namespace": "default"},
            "spec": {"nodeName": f"node{i % 50}"},
            "status": {"conditions": [{"type": "Ready", "status": pods["ready"]}]},
        }
        for i in range(pods["count"])
    ]
