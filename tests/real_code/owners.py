"""ReplicaSets, ReplicationControllers and StatefulSets that lose pods, made from a seed, and what
is compared of them with their real controllers: when each makes pods, and its pods at the end.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.real_code.judge import TOLERANCE_S
from tests.real_code.workload_scenario import ready_node, scenario, some_kubelet

Json = dict[str, Any]

LOST = ("not-ready", "unreachable")
VERSIONS = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "ReplicationController": "v1"}


def generate(seed: int) -> Json:
    """Workloads whose nodes are lost, tainted or deleted, and whose pods somebody deletes."""
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(chance.choice([3, 4, 6]))]
    objects = [ready_node(name) for name in names]
    for i in range(chance.choice([1, 2, 2, 3])):
        objects += _workload(f"w{i}", chance, names)
    kubelet = some_kubelet(chance)
    events = sorted(_events(chance, names, objects), key=lambda e: float(e["at"][:-1]))
    flags = {"node-eviction-rate": "1"}
    return scenario(f"owners-{seed}", 500, flags, kubelet, objects, events)


def _events(chance: random.Random, names: list[str], objects: list[Json]) -> Iterator[Json]:
    """Two or three troubles, each in the middle of a monitor period."""
    pods = [o["metadata"]["name"] for o in objects if o["kind"] == "Pod"]
    for _ in range(chance.choice([1, 2, 3])):
        at = 5 * chance.randint(2, 60) + chance.uniform(1.5, 4)
        name, dice = chance.choice(names), chance.random()
        if dice < 0.5:
            yield {"at": f"{at:.2f}s", "kubelet": {"nodes": [name], "heartbeats": "stop"}}
            back = at + 5 * chance.randint(6, 60)
            if chance.random() < 0.6:
                yield {"at": f"{back:.2f}s", "kubelet": {"nodes": [name], "heartbeats": "start"}}
        elif dice < 0.7:
            yield {"at": f"{at:.2f}s", "taint": {"nodes": [name], "add": ["k=v:NoExecute"]}}
        elif dice < 0.85:
            pod = {"kind": "Pod", "namespace": "default", "name": chance.choice(pods)}
            yield {"at": f"{at:.2f}s", "delete": pod}
        else:
            yield {"at": f"{at:.2f}s", "cordon": {"nodes": [name]}}


def _workload(name: str, chance: random.Random, nodes: list[str]) -> Iterator[Json]:
    """A workload and its pods, all of them Ready."""
    kind, replicas = chance.choice(list(VERSIONS)), chance.choice([1, 2, 3, 5])
    labels, uid = {"app": name}, f"{kind.lower()}-{name}"
    seconds = chance.choice([7, 31, 58])
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for key in LOST
    ]
    spec: Json = {
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "registry.example/app:1"}],
        "tolerations": tolerations,
    }
    body = spec_of(kind, name, replicas, labels, spec, chance)
    meta = {"name": name, "namespace": "default", "uid": uid}
    yield {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": meta, "spec": body}
    owner = {"apiVersion": VERSIONS[kind], "kind": kind, "name": name, "uid": uid}
    for i in range(replicas):
        node = nodes[(i + len(name)) % len(nodes)]
        yield pod_of(owner, f"{name}-{i}", labels, {**spec, "nodeName": node})


def spec_of(
    kind: str, name: str, replicas: int, labels: Json, spec: Json, chance: random.Random
) -> Json:
    """The spec of a workload whose pods have these labels and this spec."""
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    body: Json = {
        "replicas": replicas,
        "selector": selector,
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    if kind == "StatefulSet":
        policy = chance.choice(["OrderedReady", "Parallel"])
        body |= {"serviceName": name, "podManagementPolicy": policy}
        body["updateStrategy"] = {"type": "OnDelete"}
    return body


def pod_of(owner: Json | None, name: str, labels: Json, spec: Json) -> Json:
    """A Ready pod of the owner, or of nobody."""
    meta: Json = {"name": name, "namespace": "default", "labels": labels}
    if owner is not None:
        if owner["kind"] == "StatefulSet":
            meta["labels"] = {**labels, "statefulset.kubernetes.io/pod-name": name}
        meta["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": word, "status": "True", "lastTransitionTime": "2025-12-31T23:00:00Z"}
                for word in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        },
    }


def made(timeline: Mapping[str, Any]) -> dict[str, list[float]]:
    """When each workload makes pods."""
    times: dict[str, list[float]] = defaultdict(list)
    for record in timeline["records"]:
        if record["action"] == "CreatePod":
            times[record["detail"]["owner"]].append(record["at"])
    return times


def at_the_end(timeline: Mapping[str, Any]) -> dict[str, list[tuple[bool, bool]]]:
    """(Ready, terminating) of each workload's pods."""
    pods: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for pod in timeline["final"]["podList"]:
        pods[pod["owner"]].append((pod["ready"] == "True", pod["terminating"]))
    return {owner: sorted(found) for owner, found in pods.items()}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Each workload that two runs do not treat alike, within the tolerance."""
    ends, others_ends = at_the_end(one), at_the_end(other)
    theirs, ours = made(one), made(other)
    for owner in sorted(ends.keys() | others_ends.keys() | theirs.keys() | ours.keys()):
        a, b = sorted(theirs.get(owner, ())), sorted(ours.get(owner, ()))
        apart = [abs(s - t) > TOLERANCE_S for s, t in zip(a, b, strict=False)]
        if len(a) != len(b) or any(apart):
            yield f"{owner} makes pods: real {a}, ours {b}"
        if ends.get(owner) != others_ends.get(owner):
            yield f"{owner} at the end: real {ends.get(owner)}, ours {others_ends.get(owner)}"
