"""Node lifecycle vectors that drive the controller: an API, a node cache that lags, a clock that stands.

The node cache follows the API only at `sync_nodes`; pods, leases and DaemonSets always equal the API.
What the controller decides is applied to the API at once; a call that is to fail comes back as an
`Outcome` before the next step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.eviction import eviction_pass
from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth
from kubectl_nodelife.controllers.nodelifecycle.monitor import monitor_node_health, note
from kubectl_nodelife.controllers.nodelifecycle.taints import (
    no_schedule_pass,
    reconcile_labels,
    remove_taints,
    swap_taints,
)
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    PARTIAL,
    compute_zone_state,
    eviction_rate,
    is_excluded,
)
from kubectl_nodelife.engine import actions as act
from kubectl_nodelife.engine.cache import Cache, ListFailed
from kubectl_nodelife.engine.events import Change, Gone, Outcome, Put
from kubectl_nodelife.engine.ratelimit import TokenBucket
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.engine.writes import Answer, Get, Patch, write
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.node import Lease, Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet

from tests.conformance.world import EPOCH_NS, decode, instant_ns, seconds

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
    """A cache of which the next n listings of a node's pods fail."""

    failing_lists = 0

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
            note(self.controller.memory, change)

    def carry_out(self, actions: Iterable[act.Action | act.Requeue]) -> None:
        """Apply what was decided to the API; failures come back once all is said."""
        outcomes = []
        for action in actions:
            if isinstance(action, act.Requeue):
                continue
            code = self.apply(action)
            if code != 200:
                outcomes.append(Outcome(action, code))
        for outcome in outcomes:
            list(self.controller.failed(outcome, self.cache, self.now_ns))

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

    def step(self, step: dict[str, Any]) -> None:
        """One operation of a vector; an unknown one raises KeyError."""
        OPERATIONS[step["op"]](self, step)


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


def _patch_status(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}, "status": step["status"]}
    status = decode(raw, Node).status
    world.nodes[step["node"]] = msgspec.structs.replace(node, status=status)


def _set_labels(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    metadata = msgspec.structs.replace(node.metadata, labels=step["labels"])
    world.nodes[step["node"]] = msgspec.structs.replace(node, metadata=metadata)


def _remove_taint(world: World, step: dict[str, Any]) -> None:
    node = world.nodes[step["node"]]
    taint = Taint(key=step["taint"]["key"], effect=step["taint"]["effect"])
    kept = tuple(t for t in node.spec.taints if not t.matches(taint))
    spec = msgspec.structs.replace(node.spec, taints=kept)
    world.nodes[step["node"]] = msgspec.structs.replace(node, spec=spec)


def _fail_next(world: World, step: dict[str, Any]) -> None:
    if step["call"] == "list_pods_on_node":
        world.cache.failing_lists = step["times"]
    else:
        assert step["call"] in ("update_pod_status", "delete_pod"), step["call"]
        world.fail[step["call"]] = step["times"]


def _node_worker(part: str) -> Callable[[World, dict[str, Any]], None]:
    def run(world: World, step: dict[str, Any]) -> None:
        node = world.cache.node(step["node"])
        if node is None:
            return
        beta = world.settings.profile.has("beta_labels_are_truth")
        if part == "labels":
            world.carry_out(reconcile_labels(node, beta, None))
        else:
            world.carry_out(no_schedule_pass(node, world.now_ns, None))

    return run


def _process_pod(world: World, step: dict[str, Any]) -> None:
    pod = world.cache.pod(step["namespace"], step["pod"])
    if pod is not None:
        world.carry_out(world.controller.process_pod(pod, world.cache, world.now_ns))


def _eviction(taint_mode: bool) -> Callable[[World, dict[str, Any]], None]:
    def run(world: World, _: dict[str, Any]) -> None:
        assert world.settings.taint_mode is taint_mode
        memory = world.controller.memory
        for queue in memory.zones.queues.values():
            if isinstance(queue.limiter, TokenBucket) and queue.limiter.qps >= 10_000:
                queue.limiter = Tireless(queue.limiter.qps, 1)
        world.carry_out(eviction_pass(memory, world.cache, world.now_ns))

    return run


OPERATIONS: dict[str, Callable[[World, dict[str, Any]], None]] = {
    "set_time": lambda w, s: setattr(w, "now_ns", instant_ns(s["t"])),
    "sync_nodes": lambda w, s: w.sync_nodes(),
    "monitor": lambda w, s: w.carry_out(monitor_node_health(w.controller.memory, w.cache, w.now_ns)),
    "noexecute_pass": _eviction(True),
    "evict_pass": _eviction(False),
    "noschedule_pass": _node_worker("taints"),
    "reconcile_labels": _node_worker("labels"),
    "process_pod": _process_pod,
    "put_node_status": _patch_status,
    "put_node": lambda w, s: w.put_node(s["node"]),
    "delete_node": lambda w, s: w.nodes.pop(s["node"]) and None,
    "set_node_labels": _set_labels,
    "remove_taint": _remove_taint,
    "set_leases": lambda w, s: w.set_leases(s["leases"]),
    "fail_next": _fail_next,
    "expect": lambda w, s: check(w, s["expect"]),
}


def run(case: dict[str, Any]) -> None:
    """Drive one vector; one of profile `any` in the oldest and the newest behaviour."""
    if case["profile"] != "any":
        run_in(case)
        return
    run_in(case | {"profile": "current"})
    if not case.get("requires"):
        run_in(case | {"profile": "v1.16"})


def run_in(case: dict[str, Any]) -> None:
    """Drive one vector in its one profile."""
    world = World(case)
    for step in case.get("steps", []):
        world.step(step)
    check(world, case["expect"])
    check(world, case.get("expect_derived", {}))


def check(world: World, expect: dict[str, Any]) -> None:
    """Hold the world against expectations; an unknown key raises KeyError."""
    for key, wanted in expect.items():
        EXPECTATIONS[key](world, wanted)


def _short(taint: Taint) -> str:
    return f"{taint.key}:{taint.effect}"


def _check_taints(world: World, wanted: dict[str, Any]) -> None:
    for name, lists in wanted.items():
        have = {_short(t) for t in world.nodes[name].spec.taints}
        for how, names in lists.items():
            assert how in ("present", "absent", "exact"), how
            if how == "present":
                assert have >= set(names), (name, have)
            elif how == "absent":
                assert not have & set(names), (name, have)
            else:
                assert have == set(names), (name, have)


def _check_status_writes(world: World, wanted: list[dict[str, Any]]) -> None:
    assert [w["node"] for w in wanted] == [name for name, _ in world.status_writes]
    for write_, (name, node) in zip(wanted, world.status_writes, strict=True):
        raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status = decode(raw | {"status": write_["status"]}, Node).status
        assert node.status == status


def _check_events(world: World, wanted: list[dict[str, Any]]) -> None:
    assert len(world.events) == len(wanted), world.events
    for event, want in zip(world.events, wanted, strict=True):
        assert {k: event[k] for k in want} == want


def _check_events_contain(world: World, wanted: list[dict[str, Any]]) -> None:
    for want in wanted:
        assert any({k: e[k] for k in want} == want for e in world.events), (want, world.events)


def _check_health(world: World, wanted: dict[str, Any]) -> None:
    for name, want in wanted.items():
        health = world.controller.memory.health[name]
        have = {"probe": health.probe_ns, "ready_transition": health.ready_transition_ns}
        for key, value in want.items():
            assert seconds(have[key]) == value, (name, key)


def _check_saved_ready(world: World, wanted: dict[str, Any]) -> None:
    for name, want in wanted.items():
        ready = world.controller.memory.health[name].ready
        assert (ready.status if ready else None) == want


def _check_queues(world: World, wanted: dict[str, Any]) -> None:
    queues = world.controller.memory.zones.queues
    for zone, names in wanted.items():
        assert sorted(queues[zone].waiting() if zone in queues else []) == sorted(names)


def _equal(read: Callable[[World], Any]) -> Callable[[World, Any], None]:
    def compare(world: World, wanted: Any) -> None:
        assert read(world) == wanted

    return compare


def _pod_reasons(world: World, wanted: dict[str, str]) -> None:
    reasons = {p.name: p.status.reason for p in world.cache.pods.values()}
    assert {name: reasons.get(name, "") for name in wanted} == wanted


def _labels(world: World, wanted: dict[str, Any]) -> None:
    assert {name: world.nodes[name].metadata.labels for name in wanted} == wanted


def _evictions(world: World, wanted: dict[str, int]) -> None:
    have = world.controller.memory.zones.evictions
    assert {zone: have.get(zone, 0) for zone in wanted} == wanted


EXPECTATIONS: dict[str, Callable[[World, Any], None]] = {
    "zone_states": _equal(lambda w: w.controller.memory.zones.states),
    "node_status_writes": _check_status_writes,
    "pod_status_written": _equal(lambda w: w.pod_writes > 0),
    "pod_status_write_count": _equal(lambda w: w.pod_writes),
    "pods_evicted": _equal(lambda w: bool(w.deleted)),
    "pods_deleted": _equal(lambda w: w.deleted),
    "pod_reasons": _pod_reasons,
    "node_taints": _check_taints,
    "node_labels": _labels,
    "zone_queue_exists": lambda w, z: _assert(set(z) <= set(w.controller.memory.zones.queues)),
    "zone_queue_contains": _check_queues,
    "evictions": _evictions,
    "events": _check_events,
    "events_contain": _check_events_contain,
    "health": _check_health,
    "saved_ready_status": _check_saved_ready,
    "excluded": _equal(lambda w: is_excluded(next(iter(w.nodes.values())), w.settings)),
}


def _assert(condition: bool) -> None:
    assert condition


def zone_state(case: dict[str, Any]) -> None:
    """compute-zone-state."""
    statuses = case["given"]["ready_statuses"]
    ready = sum(status == "True" for status in statuses)
    threshold = case["given"]["unhealthy_zone_threshold"]
    have = {
        "unhealthy": len(statuses) - ready,
        "state": compute_zone_state(ready, len(statuses) - ready, threshold),
    }
    assert have == case["expect"]


def zone_rate(case: dict[str, Any]) -> None:
    """eviction-rate: the state's rate, or the stop of all zones."""
    given = case["given"]
    flags = {
        "node-eviction-rate": given["eviction_qps"],
        "secondary-node-eviction-rate": given["secondary_eviction_qps"],
        "large-cluster-size-threshold": given["large_cluster_threshold"],
    }
    settings = make_settings("current", flags)
    dark = given["all_zones_fully_disrupted"]
    rate = 0 if dark else eviction_rate(given["state"], given["zone_size"], settings)
    assert case["expect"] == {"qps": rate}


class TaintApi:
    """An API that holds one node and counts calls."""

    def __init__(self, node: Node, changed_during_call: list[Taint] | None) -> None:
        self.node = node
        self.calls = 0
        self.patches: list[list[str]] = []
        self.interference = changed_during_call

    def drive(self, action: act.Action, now_ns: int) -> int:
        """Carry on the conversation of one action to its end. The last status code."""
        conversation = write(action, now_ns)
        try:
            call = next(conversation)
            while True:
                call = conversation.send(self.answer(call))
        except StopIteration as end:
            return int(end.value)

    def answer(self, call: Get | Patch) -> Answer:
        """The API's answer to one call."""
        self.calls += 1
        if isinstance(call, Get):
            return Answer(200, self.node) if call.key[1] == self.node.name else Answer(404)
        assert isinstance(call.after, Node)
        if self.interference is not None:
            spec = msgspec.structs.replace(self.node.spec, taints=tuple(self.interference))
            self.node, self.interference = msgspec.structs.replace(self.node, spec=spec), None
        if call.before is not self.node:
            return Answer(409)
        self.node = call.after
        self.patches.append([_short(t) for t in self.node.spec.taints])
        return Answer(200, self.node)


def taint_api(case: dict[str, Any]) -> None:
    """taint-api: add, remove or swap on a node, call by call."""
    given = case["given"]
    node = decode(given["node"], Node)
    changed = given.get("changed_during_call")
    api = TaintApi(node, _taints(changed) if changed is not None else None)
    now_ns = instant_ns(given.get("now", 0))
    target = _with(node, given["target"], given.get("given_object_taints"))
    if given["operation"] == "add":
        taints = tuple(_taints(given["taints"]))
        actions: Iterable[act.Action] = [
            act.AddTaints(controller="test", because="", node=target.name, taints=taints)
        ]
        actions = actions if taints else []
    elif given["operation"] == "remove":
        actions = remove_taints(target, _taints(given["taints"]), "", None)
    else:
        assert given["operation"] == "swap"
        add, remove = _taints(given["add"]), _taints(given["remove"])
        actions = swap_taints(target, add, remove, now_ns, "", None)
    codes = [api.drive(action, now_ns) for action in actions]
    for key, wanted in (case["expect"] | case.get("expect_derived", {})).items():
        _TAINT_API_EXPECTATIONS[key](api, codes, wanted)


def _taints(raw: list[dict[str, Any]]) -> list[Taint]:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}, "spec": {"taints": raw}}
    return list(decode(node, Node).spec.taints)


def _with(node: Node, name: str, taints: list[dict[str, Any]] | None) -> Node:
    spec = node.spec
    if taints is not None:
        spec = msgspec.structs.replace(spec, taints=tuple(_taints(taints)))
    metadata = msgspec.structs.replace(node.metadata, name=name)
    return msgspec.structs.replace(node, metadata=metadata, spec=spec)


_TAINT_API_EXPECTATIONS: dict[str, Callable[[TaintApi, list[int], Any], None]] = {
    "taints": lambda api, _, wanted: _assert(list(api.node.spec.taints) == _taints(wanted)),
    "api_calls": lambda api, _, wanted: _assert(api.calls == wanted),
    "patches": lambda api, _, wanted: _assert(api.patches == wanted),
    "error": lambda _, codes, wanted: _assert(codes[-1] == {"NotFound": 404}[wanted]),
    "api_requests_seen_upstream": lambda api, codes, wanted: None,
}

TOPICS: dict[str, Callable[[dict[str, Any]], None]] = {
    **dict.fromkeys(
        (
            "monitor-zone-states",
            "node-status-updates",
            "pods-not-ready",
            "health-entry",
            "node-events",
            "disruption-exclusion",
            "noexecute-taints",
            "classic-eviction",
            "classic-eviction-disruption",
            "noschedule-taints",
            "label-reconcile",
        ),
        run,
    ),
    "compute-zone-state": zone_state,
    "eviction-rate": zone_rate,
    "taint-api": taint_api,
}
