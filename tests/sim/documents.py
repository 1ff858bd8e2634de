"""Scenario documents for tests, as plain Python, and shortcuts to their stories."""

from __future__ import annotations

import json
from typing import Any

from kubectl_nodelife.sim.run import RunSummary
from kubectl_nodelife.sim.scenario import Scenario, parse_scenario
from kubectl_nodelife.sim.timeline import Record
from tests.simulating import simulate_scenario

Json = dict[str, Any]


def node(name: str, zone: str = "a", ready: str = "True", **spec: Any) -> Json:
    """A node with the kubelet's four conditions; `ready=""`: with none."""
    conditions = [
        {"type": "Ready", "status": ready, "reason": "KubeletReady"},
        *(
            {"type": f"{what}Pressure", "status": "False", "reason": "Fine"}
            for what in ("Memory", "Disk", "PID")
        ),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone, "name": name}},
        "spec": spec,
        "status": {"conditions": conditions if ready else []},
    }


def pod(
    name: str,
    node_name: str = "",
    *,
    owner: tuple[str, str] | None = None,
    tolerates: int | None = 300,
    ready: bool = True,
    **spec: Any,
) -> Json:
    """A pod; it tolerates lost nodes for so many seconds, None: for ever, -1: not at all."""
    limit = {} if tolerates is None else {"tolerationSeconds": tolerates}
    keys = ("not-ready", "unreachable") if tolerates != -1 else ()
    meta: Json = {"name": name, "namespace": "default"}
    if owner is not None:
        kind, of = owner
        reference = {"kind": kind, "name": of, "uid": f"{kind}-{of}", "controller": True}
        meta["ownerReferences"] = [{"apiVersion": _version(kind), **reference}]
    status: Json = {"phase": "Pending"}
    if node_name and ready:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            **({"nodeName": node_name} if node_name else {}),
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    **limit,
                }
                for key in keys
            ],
            **spec,
        },
        "status": status,
    }


def _version(kind: str) -> str:
    core = {"Job": "batch/v1", "ReplicationController": "v1", "Node": "v1"}
    return core.get(kind, "apps/v1")


def owner(kind: str, name: str, replicas: int = 1, **spec: Any) -> Json:
    """A workload's object, with the uid that `pod(owner=…)` refers to."""
    meta = {"name": name, "namespace": "default", "uid": f"{kind}-{name}"}
    body = {**spec} if kind == "Job" else {"replicas": replicas, **spec}
    return {"apiVersion": _version(kind), "kind": kind, "metadata": meta, "spec": body}


def stop(at: str, *nodes: str) -> Json:
    """Kubelets fall silent."""
    return {"at": at, "kubelet": {"nodes": list(nodes), "heartbeats": "stop"}}


def start(at: str, *nodes: str) -> Json:
    """Kubelets start."""
    return {"at": at, "kubelet": {"nodes": list(nodes), "heartbeats": "start"}}


def document(**spec: Any) -> Json:
    """A scenario document."""
    return {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "test"},
        "spec": spec,
    }


def scenario(**spec: Any) -> Scenario:
    """A scenario, read from its document."""
    return parse_scenario(json.dumps(document(**spec)).encode(), "test.yaml")


def story(**spec: Any) -> RunSummary:
    """What comes of a scenario."""
    return simulate_scenario(scenario(**spec))


def found(told: RunSummary, action: str, **wanted: str | int) -> list[Record]:
    """The records with that action; `name`, `controller` and fields of the detail may be given."""
    return [
        r
        for r in told.records
        if r.action == action
        and all(
            {"name": r.object.name, "controller": r.controller, **r.detail}.get(k) == v
            for k, v in wanted.items()
        )
    ]


def times(records: list[Record]) -> list[float]:
    """When."""
    return [r.at for r in records]
