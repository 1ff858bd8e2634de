"""Clusters on which much is under way, by chance: nodes that are late, lost, not Ready or just
back, pods that start, stop, wait for a node or crash, budgets that are used up.
"""

import random
from dataclasses import replace
from typing import Any, NamedTuple

from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.what_if.stand import at, budget, node, workload

OPTIONS = DrainOptions(ignore_daemonsets=True, force=True, delete_emptydir_data=True)
STATES = [*["ok"] * 6, "late", "expired", "unknown", "not-ready", "back"]
FLAGS: list[dict[str, Any]] = [
    *[{}] * 5,
    {"timeout_ns": 45 * SECOND_NS},
    {"timeout_ns": 400 * SECOND_NS},
    {"disable_eviction": True},
    {"skip_wait_seconds": 60},
    {"grace_period_seconds": 3},
]
Document = dict[str, Any]


class Troubled(NamedTuple):
    """A cluster, the nodes to drain, and how."""

    objects: list[KubeObject]
    nodes: list[str]
    options: DrainOptions


def troubled(seed: int) -> Troubled:
    """A cluster on which much is under way, by chance."""
    chance = random.Random(seed)
    names = [f"{zone}{i}" for zone in "ab" for i in range(1, chance.randint(3, 5))]
    cpu = chance.choice(["600m", "1", "4"])
    states = {name: chance.choice(STATES) for name in names}
    documents = [d for name in names for d in troubled_node(name, states[name], cpu, chance)]
    for number in range(chance.randint(2, 5)):
        documents += troubled_workload(f"w{number}", states, chance)
    nodes = chance.sample(names, chance.randint(1, 2))
    options = replace(OPTIONS, **chance.choice(FLAGS))
    return Troubled([decode(d["kind"], d) for d in documents], nodes, options)


def troubled_node(name: str, state: str, cpu: str, chance: random.Random) -> list[Document]:
    ages = {"late": 25.0, "expired": chance.choice([45.0, 120.0]), "unknown": 200.0}
    found = node(name, lease_age=ages.get(state, 4.0), cpu=cpu)
    ready, since = found[0]["status"]["conditions"][0], chance.choice([10, 100, 250])
    keys = {"unknown": "unreachable", "not-ready": "not-ready", "back": "unreachable"}
    if state in keys:
        taint = {"key": f"node.kubernetes.io/{keys[state]}"}
        without_pods = {**taint, "effect": "NoExecute", "timeAdded": at(-since)}
        found[0]["spec"]["taints"] = [{**taint, "effect": "NoSchedule"}, without_pods]
    if state == "unknown":
        ready |= {"status": "Unknown", "lastTransitionTime": at(-since)}
    elif state == "not-ready":
        ready |= {"status": "False", "lastTransitionTime": at(-since)}
    return found


def troubled_workload(name: str, states: dict[str, str], chance: random.Random) -> list[Document]:
    """An owner, its pods, and often a budget whose status counts those that are healthy."""
    kind = chance.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet"])
    on = [chance.choice(list(states)) for _ in range(chance.randint(2, 5))]
    seconds = chance.choice([300, 300, 30, 0, None])
    if kind == "DaemonSet":
        on, seconds = list(states), None
    found = workload(name, on, kind, cpu=chance.choice(["100m", "200m"]), tolerates=seconds)
    pods = found[1:]
    for pod in pods:
        trouble(pod, states[pod["spec"]["nodeName"]], kind, chance)
    if chance.random() < 0.7:
        least = max(0, len(on) - chance.choice([0, 1, 1, 1, 2]))
        found += budget(name, least, len(on))
        healthy = sum(is_healthy(pod) for pod in pods)
        allowed = {"currentHealthy": healthy, "disruptionsAllowed": max(0, healthy - least)}
        found[-1]["status"] |= allowed
    return found


def trouble(pod: Document, state: str, kind: str, chance: random.Random) -> None:
    status, meta, at_risk = pod["status"], pod["metadata"], chance.random()
    if state in ("unknown", "not-ready"):
        unready(pod, -30, {"running": {"startedAt": at(-3598)}})
    elif at_risk < 0.1 and kind != "DaemonSet":
        meta["creationTimestamp"] = at(-1)
        unready(pod, -1, {"waiting": {"reason": "ContainerCreating"}})
        status["phase"] = "Pending"
    elif at_risk < 0.2:
        unready(pod, -3, {"running": {"startedAt": at(-1)}})
    elif at_risk < 0.27:
        unready(pod, -20, {"waiting": {"reason": "CrashLoopBackOff"}})
    elif at_risk < 0.34:
        meta |= {"deletionTimestamp": at(12), "deletionGracePeriodSeconds": 30}
    elif at_risk < 0.4 and kind == "ReplicaSet":
        pod["spec"]["nodeName"] = ""
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {"phase": "Pending", "conditions": [waits]}


def unready(pod: Document, since: float, state: Document) -> None:
    for condition in pod["status"]["conditions"][1:]:
        condition |= {"status": "False", "lastTransitionTime": at(since)}
    pod["status"]["containerStatuses"][0] |= {"ready": False, "state": state}


def is_healthy(pod: Document) -> bool:
    ready = [c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    return ready == ["True"] and "deletionTimestamp" not in pod["metadata"]
