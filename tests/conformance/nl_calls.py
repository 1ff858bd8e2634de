"""Node lifecycle vectors of single calls: zone states and rates, and a taint patch call by call."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.taints import remove_taints, swap_taints
from kubectl_nodelife.controllers.nodelifecycle.zones import compute_zone_state, eviction_rate
from kubectl_nodelife.engine import actions as act
from kubectl_nodelife.engine.calls import (
    Answer,
    Call,
    Get,
    Patch,
    WaitUntil,
    converse,
    drive,
    request_of_call,
)
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node, Taint
from tests.conformance.nl_checks import short
from tests.conformance.world import decode, instant_ns


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
        meta = msgspec.structs.replace(node.metadata, resource_version="1")
        self.node = msgspec.structs.replace(node, metadata=meta)
        self.calls = 0
        self.patches: list[list[str]] = []
        self.interference = changed_during_call

    def drive(self, action: act.Action, now_ns: int) -> int:
        """Carry on the conversation of one action to its end. The last status code."""
        return drive(converse(action, None, now_ns), self.answer).code

    def answer(self, call: Call) -> Answer:
        """The API's answer to one call."""
        if isinstance(call, WaitUntil):
            return Answer(200, now_ns=call.at_ns)
        self.calls += 1
        if isinstance(call, Get):
            found = call.key[1] == self.node.name
            return Answer(200, self.node) if found else Answer(404, reason="NotFound")
        assert isinstance(call, Patch)
        if self.interference is not None:
            self.node, self.interference = self._with(self.interference), None
        body = request_of_call(call).body
        if body["metadata"]["resourceVersion"] != self.node.metadata.resource_version:
            return Answer(409)
        self.node = self._with(_taints(body["spec"]["taints"] or []))
        self.patches.append([short(t) for t in self.node.spec.taints])
        return Answer(200, self.node)

    def _with(self, taints: list[Taint]) -> Node:
        """The node's next version."""
        meta = self.node.metadata
        meta = msgspec.structs.replace(meta, resource_version=f"{meta.resource_version}1")
        spec = msgspec.structs.replace(self.node.spec, taints=tuple(taints))
        return msgspec.structs.replace(self.node, metadata=meta, spec=spec)


def taint_api(case: dict[str, Any]) -> None:
    """taint-api: add, remove or swap on a node, call by call."""
    given = case["given"]
    node = decode(given["node"], Node)
    changed = given.get("changed_during_call")
    api = TaintApi(node, _taints(changed["taints"]) if changed is not None else None)
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


def _assert(condition: bool) -> None:
    assert condition


TOPICS: dict[str, Callable[[dict[str, Any]], None]] = {
    "compute-zone-state": zone_state,
    "eviction-rate": zone_rate,
    "taint-api": taint_api,
}
