"""Drains of nodes, made from a seed, for the real kubectl, Eviction API, disruption controller
and owners, and what is compared of them: which evictions are answered how and when, when each
node's turn ends and how, when each owner makes pods, and its pods at the end.

Pods of one owner are not told apart: which goes first is chance. A Job's do not end in the instant
in which its controller counts them, a second after they were deleted.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.real_code.judge import AGAIN, FIRST, Difference, Facts, Key
from tests.real_code.judge import differences as facts_apart
from tests.real_code.owners import VERSIONS, at_the_end, made, pod_of, spec_of
from tests.real_code.workload_scenario import ready_node, scenario, some_kubelet

Json = dict[str, Any]

_SLOW = ("-lag-min=20ms", "-lag-max=30ms", "-write-min=2ms", "-write-max=4ms")
_STARTS = tuple((*FIRST, f"-kubectl-starts={ms}ms") for ms in (80, 40))
RUNS = (FIRST, *_STARTS, *((f"-seed={seed}", *_SLOW) for seed in range(200, 210)), *AGAIN[:50])
"""Runs of the real code that may differ: which pod of a budget is asked for first, which owner's
new pod is placed first, whether the budget's status has followed the eviction before by then, and
in which whole second a pod ends.
"""


def generate(seed: int) -> Json:
    """One drain or two, of one node or some, of workloads with budgets; a node may be lost."""
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(chance.choice([3, 4, 6]))]
    objects = [ready_node(name) for name in names]
    for i in range(chance.choice([1, 2, 2, 3])):
        objects += _workload(f"w{i}", chance, names)
    for i in range(chance.choice([0, 0, 1, 2])):
        objects.append(_bare_pod(f"bare{i}", chance, names))
    if chance.random() < 0.3:
        objects += _daemon_set(names)
    events = sorted(_events(chance, names), key=lambda event: float(event["at"][:-1]))
    kubelet = some_kubelet(chance) | {"podStopDuration": chance.choice(["1.5s", "4s"])}
    return scenario(f"drains-{seed}", 300, {}, kubelet, objects, events)


def _events(chance: random.Random, names: list[str]) -> Iterator[Json]:
    at = chance.uniform(11, 19)
    count = chance.choice([1, 1, 2])
    for drained in (chance.sample(names, k=chance.choice([1, 1, 2])) for _ in range(count)):
        yield {"at": f"{at:.2f}s", "drain": {"nodes": drained, **_flags(chance)}}
        at += chance.choice([0, 0.5, 3, 12]) + chance.uniform(0, 0.4)
    if chance.random() < 0.25:
        silent = {"nodes": [chance.choice(names)], "heartbeats": "stop"}
        yield {"at": f"{chance.uniform(10, 40):.2f}s", "kubelet": silent}


def _flags(chance: random.Random) -> Json:
    """Those of kubectl drain, mostly such that it touches the node."""
    flags: Json = {
        name: chance.random() < 0.9 for name in ("force", "ignoreDaemonSets", "deleteEmptyDirData")
    }
    if chance.random() < 0.6:
        flags["timeout"] = f"{chance.choice([4, 11, 23, 47])}s"
    if chance.random() < 0.15:
        flags["gracePeriod"] = f"{chance.choice([0, 2, 9])}s"
    if chance.random() < 0.1:
        flags["disableEviction"] = True
    if chance.random() < 0.1:
        flags["podSelector"] = "app=w0"
    return flags


def _workload(name: str, chance: random.Random, nodes: list[str]) -> Iterator[Json]:
    """A workload with Ready pods, most with a budget; some pods are not Ready."""
    kind, replicas = chance.choice([*VERSIONS, "Job"]), chance.choice([1, 2, 3, 5, 8])
    labels, uid = {"app": name}, f"{kind.lower()}-{name}"
    spec: Json = {
        "terminationGracePeriodSeconds": chance.choice([1, 5, 20]),
        "containers": [{"name": "c", "image": "registry.example/app:1"}],
    }
    if chance.random() < 0.15:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    body = spec_of(kind, name, replicas, labels, spec, chance)
    if kind == "Job":
        del body["replicas"]
        spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": chance.choice([5, 20])}
        labels["batch.kubernetes.io/controller-uid"] = uid
        body |= {"parallelism": replicas, "completions": replicas, "manualSelector": True}
        body["backoffLimit"] = chance.choice([1, 6, 6])
        if chance.random() < 0.4:
            body["podReplacementPolicy"] = chance.choice(["Failed", "TerminatingOrFailed"])
    version = "batch/v1" if kind == "Job" else VERSIONS[kind]
    meta = {"name": name, "namespace": "default", "uid": uid}
    yield {"apiVersion": version, "kind": kind, "metadata": meta, "spec": body}
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    first = chance.randrange(len(nodes))
    for i in range(replicas):
        node = nodes[(i + first) % len(nodes)]
        pod = pod_of(owner, f"{name}-{i}", labels, {**spec, "nodeName": node})
        if kind == "Job":
            pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        if chance.random() < 0.08:
            for condition in pod["status"]["conditions"][1:3]:
                condition["status"] = "False"
        yield pod
    for i in range(chance.choice([0, 1, 1, 1, 1])):
        yield _budget(f"{name}-budget{i}", labels, chance, replicas)


def _budget(name: str, labels: Json, chance: random.Random, replicas: int) -> Json:
    spec: Json = {"selector": {"matchLabels": labels}}
    if chance.random() < 0.5:
        spec["minAvailable"] = chance.choice([1, max(1, replicas - 1), replicas, "50%", "80%"])
    else:
        spec["maxUnavailable"] = chance.choice([0, 1, 1, 2, "30%", "50%"])
    if chance.random() < 0.3:
        policy = chance.choice(["AlwaysAllow", "IfHealthyBudget"])
        spec["unhealthyPodEvictionPolicy"] = policy
    meta = {"name": name, "namespace": "default"}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return {**kind, "metadata": meta, "spec": spec}


def _bare_pod(name: str, chance: random.Random, nodes: list[str]) -> Json:
    """A pod that nobody owns; it may be over."""
    grace = chance.choice([1, 5, 20])
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    spec = {"terminationGracePeriodSeconds": grace, "containers": containers}
    pod = pod_of(None, name, {"app": "bare"}, {**spec, "nodeName": chance.choice(nodes)})
    if chance.random() < 0.2:
        pod["status"]["phase"] = chance.choice(["Succeeded", "Failed"])
    return pod


def _daemon_set(nodes: list[str]) -> Iterator[Json]:
    labels = {"app": "agent"}
    spec = {"containers": [{"name": "c", "image": "registry.example/agent:1"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "selector": {"matchLabels": labels},
        "template": template,
        "updateStrategy": {"type": "OnDelete"},
    }
    kind = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    meta = {"name": "agent", "namespace": "default", "uid": "daemonset-agent"}
    yield {**kind, "metadata": meta, "spec": body}
    owner = {**kind, "name": "agent", "uid": "daemonset-agent"}
    for node in nodes:
        yield pod_of(owner, f"agent-{node}", labels, {**spec, "nodeName": node})


def facts(timeline: Mapping[str, Any], document: Mapping[str, Any]) -> dict[Key, list[float]]:
    """When each thing that a drain does is done, in order, of either side's Timeline."""
    times: dict[Key, list[float]] = defaultdict(list)
    owner_of = owners_of(timeline, document)
    why_before: dict[str, str] = {}
    for record in timeline["records"]:
        name, said = record["object"]["name"], _said(record)
        if said == "evicted":
            times["evicted", owner_of[name]].append(record["at"])
            why_before.pop(name, None)
        elif said in ("drained", "not drained"):
            times[name, said].append(record["at"])
        elif said:
            if name not in why_before:
                times["refused", owner_of[name]].append(record["at"])
            if said != why_before.get(name) and not said.endswith(_NOT_COUNTED_YET):
                times["refused", owner_of[name], said].append(record["at"])
            why_before[name] = said
    for owner, instants in made(timeline).items():
        times["made", owner] = instants
    return {key: sorted(instants) for key, instants in times.items()}


_NOT_COUNTED_YET = "does not allow evicting pods currently"
"""A budget was spent some milliseconds ago: whether its status followed is no fact of its own."""

_ENDS = {"Drained": "drained", "DrainFailed": "not drained", "DrainRefused": "not drained"}


def _said(record: Mapping[str, Any]) -> str:
    """What a record of either side says of a drain: the answer to an eviction, which is its reason
    where it is a refusal, or how a node's turn ended; "" for another.
    """
    action, detail = record["action"], record["detail"] or {}
    told = detail.get("reason", "") if action == "RecordEvent" else action
    if told == "Evict":
        if detail["code"] == 201:
            return "evicted"
        return "" if detail["code"] == 404 else f"{detail['code']}: {detail['why']}"
    if told == "EvictionRefused":
        return str(detail["message"])
    by_drain = record["controller"] == "cluster" and told == "SetPodCondition"
    if by_drain and detail["reason"] == "EvictionByEvictionAPI":
        return "evicted"
    return _ENDS.get(told, "")


def owners_of(timeline: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, str]:
    """The owner of each pod, or its own name where it has none."""
    owners: dict[str, str] = {}
    for obj in document["spec"]["objects"]:
        if obj["kind"] == "Pod":
            name = obj["metadata"]["name"]
            controllers = obj["metadata"].get("ownerReferences", [{"name": name}])
            owners[name] = controllers[0]["name"]
    for record in timeline["records"]:
        if record["action"] == "CreatePod":
            owners[record["object"]["name"]] = record["detail"]["owner"]
    return owners


def facts_of(timeline: Mapping[str, Any], document: Mapping[str, Any]) -> Facts:
    """The facts of a Timeline, and each owner's pods at its end."""
    ends = {("pods", owner): tuple(pods) for owner, pods in at_the_end(timeline).items()}
    return Facts(timeline["duration"], facts(timeline, document), ends)


def differences(
    document: Mapping[str, Any], real: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[Key, Difference]:
    """Each fact that two runs do not share."""
    return facts_apart(facts_of(real, document), facts_of(ours, document))
