"""Scenarios that nobody chose: seeded, small, and with short settings so that each takes a minute.

Events fall half-way between two passes of the node monitor and leases a fifth of a second before,
so that a few milliseconds of the real thing do not decide what a pass sees. One node is never lost:
where no ready node is left, the real tainting loop, ten times a second, may or may not come by
between the last loss and the end of that pass, which stops it. DaemonSets follow the
nodes and are not updated, which tests/real/test_daemonset.py has: in which order is chance. All
ends before a minute has passed, when the quarantine of a node that is gone and a run of the garbage
collector fall together.
"""

import copy
from random import Random
from typing import Any

from kubectl_nodelife.engine.settings import NEWEST

Json = dict[str, Any]

DURATION_S = 58
_LAST_EVENT_S = 50
_GRACES = ("6.5s", "8.5s", "10.5s")
_DEDICATED = "example.com/dedicated"
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def unplanned(seed: int) -> Json:
    """One scenario document."""
    rng = Random(seed)
    nodes = _nodes(rng)
    objects = [*nodes, *_pods(rng, [n["metadata"]["name"] for n in nodes])]
    events = _events(rng, nodes)
    if rng.random() < 0.6:
        events.append({"at": "2.5s", "apply": _daemon_set(rng, "agent")})
    return {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": f"unplanned-{seed}"},
        "spec": {
            "profile": NEWEST,
            "flags": {
                "node-monitor-period": "1s",
                "node-monitor-grace-period": rng.choice(_GRACES),
                "node-startup-grace-period": "12.5s",
                "node-eviction-rate": rng.choice(("0.2", "0.5", "1")),
                "secondary-node-eviction-rate": rng.choice(("0", "0.1", "0.3")),
                "large-cluster-size-threshold": str(rng.choice((2, 3, 4, 50))),
                "unhealthy-zone-threshold": rng.choice(("0.35", "0.55", "0.75")),
            },
            "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
            "duration": f"{DURATION_S}s",
            "kubelet": {
                "leaseRenewInterval": "2s",
                "leaseRenewPhase": "300ms",
                "nodeStatusReportInterval": "20s",
                "podStartDuration": "1s",
                "podStopDuration": "1s",
            },
            "objects": objects,
            "events": sorted(events, key=lambda event: _seconds(event["at"])),
        },
    }


def _nodes(rng: Random) -> list[Json]:
    zones = ["a", "b", "c"][: rng.choice((1, 2, 2, 3))]
    names = [(zone, f"{zone}{i}") for zone in zones for i in range(1, rng.randint(2, 5))]
    if rng.random() < 0.2:
        names.append(("", "loner"))
    return [node(name, zone) for zone, name in names]


def node(name: str, zone: str) -> Json:
    """A ready node."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                {"type": "MemoryPressure", "status": "False", "reason": "KubeletHas"},
                {"type": "DiskPressure", "status": "False", "reason": "KubeletHas"},
                {"type": "PIDPressure", "status": "False", "reason": "KubeletHas"},
            ],
            "capacity": amounts,
            "allocatable": amounts,
        },
    }


def _pods(rng: Random, nodes: list[str]) -> list[Json]:
    """The same pods on each node, since nodes that are lost in one pass are queued in any order."""
    kinds = [_tolerations(rng) for _ in range(rng.randint(1, 3))]
    return [
        pod(f"p-{name}-{number}", name, tolerations)
        for name in nodes
        for number, tolerations in enumerate(kinds, 1)
    ]


def pod(name: str, on: str, tolerations: list[Json]) -> Json:
    """A running pod."""
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": on,
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
            "tolerations": tolerations,
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": type_, "status": "True"} for type_ in conditions],
        },
    }


def _tolerations(rng: Random) -> list[Json]:
    found: list[Json] = []
    for key in _LOST:
        seconds = rng.choice((None, 0, 3, 4, 6, 12, -1, "none"))
        if seconds == "none":
            continue
        toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
        if seconds is not None:
            toleration["tolerationSeconds"] = seconds
        found.append(toleration)
    if rng.random() < 0.4:
        toleration = {"key": _DEDICATED, "operator": "Equal", "value": rng.choice("ab")}
        if rng.random() < 0.6:
            toleration |= {"effect": "NoExecute", "tolerationSeconds": rng.choice((2, 5, 9))}
        found.append(toleration)
    if rng.random() < 0.1:
        found.append({"operator": "Exists"})
    rng.shuffle(found)
    return found


def _daemon_set(rng: Random, name: str) -> Json:
    labels = {"app": name}
    spec: Json = {
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": f"registry.example/{name}:1"}],
        "tolerations": _tolerations(rng),
    }
    if rng.random() < 0.3:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": "a"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _events(rng: Random, nodes: list[Json]) -> list[Json]:
    """Some things that happen to some nodes, each node's in an order that makes sense."""
    events: list[Json] = []
    zones = {_zone(n) for n in nodes} - {""}
    silent = ""
    if len(zones) > 1 and rng.random() < 0.55:
        at, silent = _moment(rng, 3, 20), rng.choice(sorted(zones)[:-1])
        selector = f"topology.kubernetes.io/zone={silent}"
        events.append({"at": at, "kubelet": {"selector": selector, "heartbeats": "stop"}})
        if rng.random() < 0.6:
            at = _moment(rng, _seconds(at) + 9, _LAST_EVENT_S)
            events.append({"at": at, "kubelet": {"selector": selector, "heartbeats": "start"}})
    moments = rng.sample(range(3, 27), len(nodes))  # no two that are lost in one pass by chance
    survivor = next(n for n in nodes if _zone(n) == max(zones))
    for document, moment in zip(nodes, moments, strict=True):
        if document is survivor:
            continue
        if rng.random() < 0.6:
            alike = _zone(document) == silent
            events += _fate(rng, document, f"{moment}.5s", _SAME_PODS if alike else _FATES)
    return events


_SAME_PODS = ("silent", "unready", "pressure", "cordon", "gone")
_FATES = (*_SAME_PODS, "silent", "taint", "pod")


def _fate(rng: Random, document: Json, first: str, fates: tuple[str, ...]) -> list[Json]:
    """What becomes of one node."""
    name = document["metadata"]["name"]
    one = {"nodes": [name]}
    then = _moment(rng, _seconds(first) + 3, _LAST_EVENT_S)
    match rng.choice(fates):
        case "silent":
            events = [{"at": first, "kubelet": {**one, "heartbeats": "stop"}}]
            if rng.random() < 0.6:
                events.append({"at": then, "kubelet": {**one, "heartbeats": "start"}})
            return events
        case "unready":
            return _sees(one, "Ready", ("False", first), ("True", then))
        case "pressure":
            type_ = rng.choice(("DiskPressure", "PIDPressure", "MemoryPressure"))
            return _sees(one, type_, ("True", first), ("False", then))
        case "taint":
            taint = f"{_DEDICATED}={rng.choice('ab')}:NoExecute"
            return [
                {"at": first, "taint": {**one, "add": [taint]}},
                {"at": then, "taint": {**one, "remove": [taint]}},
            ]
        case "cordon":
            return [{"at": first, "cordon": one}, {"at": then, "uncordon": one}]
        case "gone":
            events = [{"at": first, "delete": {"kind": "Node", "name": name}}]
            if rng.random() < 0.5:
                events.append({"at": then, "apply": copy.deepcopy(document)})
            return events
        case _:
            return [{"at": first, "apply": pod(f"late-{name}", name, _tolerations(rng))}]


def _sees(one: Json, type_: str, *seen: tuple[str, str]) -> list[Json]:
    """A kubelet sees a condition's statuses at their times."""
    return [{"at": at, "kubelet": {**one, "conditions": {type_: s}}} for s, at in seen]


def _zone(document: Json) -> str:
    return str(document["metadata"]["labels"].get("topology.kubernetes.io/zone", ""))


def _moment(rng: Random, least: float, most: float) -> str:
    return f"{rng.randint(int(least), max(int(least), int(most)))}.5s"


def _seconds(at: str) -> float:
    return float(at.removesuffix("s"))
