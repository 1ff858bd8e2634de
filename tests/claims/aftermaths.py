"""Random dumps of clusters in which something happened: nodes that were lost, are back or are gone,
and pods that were evicted, deleted, ended by their kubelets or spared, as objects and Events show.
"""

import json
import random
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.claims.clusters import NOT_READY, UNREACHABLE, ago

Document = dict[str, Any]

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
        path = folder / "aftermath.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self.items}))
        return str(path)

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
    made.items.append(_replica_set())
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
    ready = {"type": "Ready", "status": status, "reason": "x", "lastHeartbeatTime": ago(silent_s)}
    ready["lastTransitionTime"] = ago(since_s if status != "True" else 90_000)
    if state == "back":
        ready["lastTransitionTime"] = ago(since_s - 200)
        told.append(_event("Node", name, "NodeReady", since_s - 200))
    if state == "silent":
        told = []
    key = UNREACHABLE if state == "lost" else NOT_READY
    taints = [
        {"key": key, "effect": effect, "timeAdded": ago(since_s - 5)}
        for effect in ("NoSchedule", "NoExecute")
        if status != "True"
    ]
    node = _object("v1", "Node", name, since_s=90_000, spec={"taints": taints})
    node["status"] = {"conditions": [ready], "allocatable": {"cpu": "8", "pods": "110"}}
    lease = _object("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", 90_000)
    renewed = ago(silent_s).replace("Z", ".000000Z")
    lease["spec"] = {"holderIdentity": name, "renewTime": renewed, "leaseDurationSeconds": 40}
    return [node, lease, *told]


def _pod(rng: random.Random, name: str, node: str, fate: str, since_s: int) -> list[Document]:
    if fate == "gone":
        message = f"Marking for deletion Pod default/{name}"
        return [_event("Pod", name, "TaintManagerEviction", since_s, message)]
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
    elif fate == "refused":
        message = f"Marking for deletion Pod default/{name}"
        told = [_event("Pod", name, "TaintManagerEviction", since_s, message)]
    elif fate == "reborn":  # another of its name, made since
        meta["creationTimestamp"] = ago(since_s - 60)
        message = f"Marking for deletion Pod default/{name}"
        told = [_event("Pod", name, "TaintManagerEviction", since_s, message)]
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
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(since_s)}
        pod["status"] = {"phase": "Pending", "conditions": [bound]}
    if rng.random() < 0.3 and fate not in ("terminating", "finalizer"):
        del meta["resourceVersion"]
    return [pod, *told]


def _running(name: str, node: str) -> Document:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web"}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    spec["tolerations"] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (NOT_READY, UNREACHABLE)
    ]
    pod = _object("v1", "Pod", name, "default", 80_000, spec=spec)
    pod["metadata"] |= {"ownerReferences": [{**owner, "controller": True}]}
    pod["metadata"] |= {"labels": {"app": "web"}, "resourceVersion": "7"}
    conditions = [
        {"type": word, "status": "True", "lastTransitionTime": ago(79_000)}
        for word in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    running = {"name": "c", "ready": True, "started": True, "image": "i", "imageID": "i"}
    running |= {"restartCount": 0, "state": {"running": {"startedAt": ago(79_500)}}}
    pod["status"] = {"phase": "Running", "conditions": conditions}
    pod["status"]["containerStatuses"] = [running]
    return pod


def _ready(status: Document, since_s: int, **words: str) -> None:
    (ready,) = (c for c in status["conditions"] if c["type"] == "Ready")
    ready |= {"status": "False", "lastTransitionTime": ago(since_s), **words}


def _targeted(status: Document, reason: str, since_s: int) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    status["conditions"].append({**target, "lastTransitionTime": ago(since_s)})


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


def _replica_set() -> Document:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}
    spec = {"replicas": 9, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return _object("apps/v1", "ReplicaSet", "web", "default", 80_000, spec=spec)


def _event(kind: str, name: str, reason: str, since_s: int, message: str = "") -> Document:
    by = {"Pod": "taint-eviction-controller", "ReplicaSet": "replicaset-controller"}
    by["Node"] = "kubelet" if reason == "NodeReady" else "node-controller"
    source = {"component": "kubelet" if reason == "Evicted" else by[kind]}
    event = _object("v1", "Event", f"{name}.{reason}.{since_s}.{message[-5:]}", "default", since_s)
    involved = {"kind": kind, "name": name}
    involved |= {} if kind == "Node" else {"namespace": "default"}
    times = {"firstTimestamp": ago(since_s), "lastTimestamp": ago(since_s), "count": 1}
    return (
        event
        | {"involvedObject": involved, "reason": reason, "source": source}
        | {
            "message": message or f"Node {name} status is now: {reason}",
            "type": "Normal",
            **times,
        }
    )


def _object(
    version: str, kind: str, name: str, namespace: str = "", since_s: int = 0, **more: Any
) -> Document:
    meta = {"name": name, "uid": f"u-{name}", "creationTimestamp": ago(since_s)}
    meta |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}
