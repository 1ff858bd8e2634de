"""Random dumps of clusters in which something happened: nodes that were lost, are back or are gone,
and pods that were evicted, deleted, ended by their kubelets or spared, as objects and Events show.
"""

import random
from pathlib import Path
from typing import Final, NamedTuple

from tests import objects
from tests.claims.clusters import ago
from tests.objects import NOT_READY, UNREACHABLE, Document

NODES: Final = ("well", "well", "lost", "false", "back", "removed", "silent")
FATES: Final = (
    *("serving", "serving", "terminating", "finalizer", "gone", "scaled", "refused", "cancelled"),
    *("evicted", "shutdown", "marked", "preempted", "done", "waiting", "gate", "untold", "reborn"),
)


class Aftermath(NamedTuple):
    """`nodes`, `pods`: what became of each, by name; those without an object, too."""

    items: list[Document]
    nodes: dict[str, str]
    pods: dict[str, str]

    def write(self, folder: Path) -> str:
        """A dump of it."""
        return objects.write_list(folder / "aftermath.json", self.items)

    def fated(self, *fates: str) -> set[str]:
        """The pods of which one of these became."""
        return {name for name, fate in self.pods.items() if fate in fates}


def aftermath(seed: int) -> Aftermath:
    """The cluster of that seed."""
    rng = random.Random(f"aftermath {seed}")
    made = Aftermath([], {}, {})
    for number in range(rng.randint(1, 5)):
        name = f"n{number}"
        made.nodes[name] = rng.choice(NODES) if number else "well"
        made.items.extend(_node(name, made.nodes[name], rng.randint(400, 3000)))
    made.items.append(objects.workload("ReplicaSet", "web", 9))
    for number in range(rng.randint(1, 9)):
        name, node = f"web-{number}", rng.choice(list(made.nodes))
        made.pods[name] = rng.choice(FATES) if number else "serving"
        made.items.extend(_pod(rng, name, node, made.pods[name], rng.randint(100, 3000)))
    return made


def _node(name: str, state: str, since_s: int) -> list[Document]:
    told = [] if state == "well" else [_event("Node", name, "NodeNotReady", since_s)]
    if state == "removed":
        return [*told, _event("Node", name, "RemovingNode", since_s - 100)]
    silent_s = {"lost": since_s + 45, "silent": 45}.get(state, 5)
    status = {"lost": "Unknown", "false": "False"}.get(state, "True")
    changed_s = since_s if status != "True" else 90_000
    if state == "back":
        changed_s = since_s - 200
        told.append(_event("Node", name, "NodeReady", since_s - 200))
    if state == "silent":
        told = []
    key = UNREACHABLE if state == "lost" else NOT_READY
    effects = () if status == "True" else ("NoSchedule", "NoExecute")
    node = objects.node(
        name,
        status,
        "x",
        since=ago(changed_s),
        heartbeat=ago(silent_s),
        taints=[objects.taint(key, effect, added=ago(since_s - 5)) for effect in effects],
        allocatable={"cpu": "8", "pods": "110"},
        created=ago(90_000),
    )
    return [node, objects.lease(name, ago(silent_s)), *told]


def _pod(rng: random.Random, name: str, node: str, fate: str, since_s: int) -> list[Document]:
    marking = f"Marking for deletion Pod default/{name}"
    if fate == "gone":
        return [_event("Pod", name, "TaintManagerEviction", since_s, marking)]
    if fate == "scaled":
        return [_event("ReplicaSet", "web", "SuccessfulDelete", since_s, f"Deleted pod: {name}")]
    pod, told = _running(name, node), list[Document]()
    meta, status = pod["metadata"], pod["status"]
    if fate == "untold":
        status.clear()
    elif fate in ("terminating", "finalizer"):
        meta |= {"deletionTimestamp": ago(since_s - 30), "deletionGracePeriodSeconds": 30}
        meta |= {"finalizers": ["example.com/hold"]} if fate == "finalizer" else {}
        _targeted(status, "DeletionByTaintManager", since_s)
    elif fate in ("refused", "reborn"):
        if fate == "reborn":  # another of its name, made since
            meta["creationTimestamp"] = ago(since_s - 60)
        told = [_event("Pod", name, "TaintManagerEviction", since_s, marking)]
    elif fate == "cancelled":
        message = f"Cancelling deletion of Pod default/{name}"
        told = [_event("Pod", name, "TaintManagerEviction", since_s, message)]
    elif fate in ("evicted", "shutdown"):
        reason = "Evicted" if fate == "evicted" else "Terminated"
        message = "low on memory" if fate == "evicted" else "Pod was terminated by node shutdown"
        _ended(status, "Failed", since_s, reason=reason, message=message)
        _targeted(status, "TerminationByKubelet", since_s)
        told = [_event("Pod", name, "Evicted", since_s, message)] if fate == "evicted" else []
    elif fate == "done":
        _ended(status, "Succeeded", since_s)
    elif fate == "preempted":
        _targeted(status, "PreemptionByScheduler", since_s)
    elif fate == "marked":
        _ready(status, since_s)
    elif fate == "gate":
        pod["spec"]["readinessGates"] = [{"conditionType": "example.com/gate"}]
        words = {"reason": "ReadinessGatesNotReady", "message": "corresponding condition of pod"}
        words["message"] += ' readiness gate "example.com/gate" does not exist.'
        _ready(status, since_s, **words)
    elif fate == "waiting":
        bound = objects.condition("PodScheduled", changed=ago(since_s))
        pod["status"] = {"phase": "Pending", "conditions": [bound]}
    if rng.random() < 0.3 and fate not in ("terminating", "finalizer"):
        del meta["resourceVersion"]
    return [pod, *told]


def _running(name: str, node: str) -> Document:
    words = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    running = {"name": "c", "ready": True, "started": True, "image": "i", "imageID": "i"}
    running |= {"restartCount": 0, "state": {"running": {"startedAt": ago(79_500)}}}
    return objects.pod(
        name,
        node,
        owner=objects.owner("ReplicaSet", "web"),
        tolerates=300,
        labels={"app": "web"},
        version="7",
        created=ago(80_000),
        conditions=[objects.condition(word, changed=ago(79_000)) for word in words],
        status={"containerStatuses": [running]},
    )


def _ready(status: Document, since_s: int, **words: str) -> None:
    (ready,) = (c for c in status["conditions"] if c["type"] == "Ready")
    ready |= {"status": "False", "lastTransitionTime": ago(since_s), **words}


def _targeted(status: Document, reason: str, since_s: int) -> None:
    target = objects.condition("DisruptionTarget", "True", reason, changed=ago(since_s))
    status["conditions"].append(target)


def _ended(status: Document, phase: str, since_s: int, **words: str) -> None:
    status |= {"phase": phase, **words}
    (container,) = status["containerStatuses"]
    over = {"exitCode": 0 if phase == "Succeeded" else 137, "reason": "Completed"}
    over |= {"startedAt": ago(79_500), "finishedAt": ago(since_s)}
    container |= {"ready": False, "started": False, "state": {"terminated": over}}
    for condition in status["conditions"]:
        if condition["type"] in ("ContainersReady", "Ready"):
            words = {"reason": "PodFailed" if phase == "Failed" else "PodCompleted"}
            condition |= {"status": "False", "lastTransitionTime": ago(since_s), **words}


def _event(kind: str, name: str, reason: str, since_s: int, message: str = "") -> Document:
    by = {"Pod": "taint-eviction-controller", "ReplicaSet": "replicaset-controller"}
    by["Node"] = "kubelet" if reason == "NodeReady" else "node-controller"
    return objects.event(
        (kind, name),
        reason,
        message or f"Node {name} status is now: {reason}",
        when=ago(since_s),
        by="kubelet" if reason == "Evicted" else by[kind],
        name=f"{name}.{reason}.{since_s}.{message[-5:]}",
    )
