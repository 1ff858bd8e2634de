"""Scenario documents for tests, as plain Python, and shortcuts to their stories."""

import json
from typing import Any

from kubectl_nodelife.sim.run import RunSummary
from kubectl_nodelife.sim.scenario import Scenario, parse_scenario
from kubectl_nodelife.sim.timeline import Record
from tests import objects
from tests.simulating import simulate_scenario

Json = dict[str, Any]


def node(name: str, zone: str = "a", ready: str = "True", **spec: Any) -> Json:
    """A node with the kubelet's four conditions; `ready=""`: with none."""
    pressures = [
        objects.condition(f"{what}Pressure", "False", "Fine") for what in ("Memory", "Disk", "PID")
    ]
    about = {"labels": {objects.ZONE: zone, "name": name}, "uid": ""}
    if not ready:
        return objects.node(name, None, status={"conditions": []}, **about, **spec)
    return objects.node(name, ready, "KubeletReady", conditions=pressures, **about, **spec)


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
    keys = (objects.NOT_READY, objects.UNREACHABLE) if tolerates != -1 else ()
    running = bool(node_name and ready)
    made = objects.pod(
        name,
        node_name,
        uid="",
        phase="Running" if running else "Pending",
        ready=running or None,
        owner=None if owner is None else objects.owner(*owner, uid="-".join(owner)),
        **{"tolerations": [objects.toleration(key, seconds=tolerates) for key in keys], **spec},
    )
    made["spec"].setdefault("tolerations", [])
    return made


def owner(kind: str, name: str, replicas: int = 1, **spec: Any) -> Json:
    """A workload's object, with the uid that `pod(owner=…)` refers to."""
    body = {**spec} if kind == "Job" else {"replicas": replicas, **spec}
    return objects.of_kind(kind, name, "default", uid=f"{kind}-{name}", spec=body)


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
