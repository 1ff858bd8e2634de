"""Small clusters for tests of the planner, written as the API's JSON and decoded as a dump is."""

import copy
from typing import Any

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import DrainPlan, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests import objects

CREATED = "2026-01-01T00:00:00Z"
READY = "2026-01-01T00:00:02Z"
NOW = "2026-01-01T01:00:00Z"
NOW_NS = int(parse_time(NOW))

Json = dict[str, Any]


def merged(base: Json, more: Json) -> Json:
    """`base` with `more` merged in, objects deeply, everything else replaced."""
    result = copy.deepcopy(base)
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def node(
    name: str, *, zone: str = "a", cpu: str = "8", lease: str = NOW, **more: Any
) -> list[Json]:
    """A Ready node with its Lease; `lease` is its renewTime, "" for none."""
    room = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    made = objects.node(name, zone=zone, labels=labels, allocatable=room, heartbeat=NOW, uid="")
    return [merged(made, more), *([objects.lease(name, lease, uid="")] if lease else [])]


def pod(name: str, on: str, *, ready: bool = True, grace: int = 2, **more: Any) -> Json:
    """A running pod without an owner."""
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    about = {"labels": {"app": name}, "created": CREATED, "since": READY}
    made = objects.pod(name, on, ready=ready, grace=grace, containers=[container], **about)
    return merged(made, more)


def owned(kind: str, name: str, on: str, number: int, *, grace: int = 2, **more: Any) -> Json:
    """A pod of a workload: `web-0`, ..."""
    owner = objects.owner(kind, name, uid=f"uid-{kind}-{name}")
    metadata: Json = {"labels": {"app": name}, "ownerReferences": [owner]}
    if kind != "StatefulSet":
        metadata["generateName"] = f"{name}-"
    return merged(pod(f"{name}-{number}", on, grace=grace, metadata=metadata), more)


def workload(kind: str, name: str, replicas: int, **spec: Any) -> Json:
    """A ReplicaSet, StatefulSet, DaemonSet or Job."""
    counted: Json = {} if kind in ("DaemonSet", "Job") else {"replicas": replicas}
    body = {**counted, "selector": {"matchLabels": {"app": name}}, **spec}
    return objects.of_kind(kind, name, "default", uid=f"uid-{kind}-{name}", spec=body)


def replica_set(name: str, *places: str, **pod_more: Any) -> list[Json]:
    """A ReplicaSet with a pod on each of the nodes named."""
    pods = [owned("ReplicaSet", name, on, i, **pod_more) for i, on in enumerate(places)]
    return [workload("ReplicaSet", name, len(places)), *pods]


def stateful_set(name: str, *places: str, pod_more: Json | None = None, **spec: Any) -> list[Json]:
    """A StatefulSet with a pod on each of the nodes named."""
    pods = [owned("StatefulSet", name, on, i, **(pod_more or {})) for i, on in enumerate(places)]
    return [workload("StatefulSet", name, len(places), **spec), *pods]


def budget(
    name: str,
    app: str,
    *,
    healthy: int,
    desired: int,
    expected: int,
    allowed: int | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """A budget with the status that the controller would have written."""
    spare = max(0, healthy - desired) if allowed is None else allowed
    found = ("True", "SufficientPods") if spare else ("False", "InsufficientPods")
    written: Json = {
        "observedGeneration": 1,
        "disruptionsAllowed": spare,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [objects.condition("DisruptionAllowed", *found)],
        **(status or {}),
    }
    return objects.budget(name, app, metadata={"generation": 1}, status=written, **spec)


def namespace(name: str = "default", phase: str = "Active") -> Json:
    """A namespace."""
    labels = {"kubernetes.io/metadata.name": name}
    return objects.of_kind("Namespace", name, uid="", labels=labels, status={"phase": phase})


def flattened(objects: tuple[Json | list[Json], ...]) -> list[Json]:
    """One list of the objects and of those in lists."""
    flat: list[Json] = []
    for obj in objects:
        flat += obj if isinstance(obj, list) else [obj]
    return flat


def snapshot(
    *objects: Json | list[Json], read: set[str] | None = None, now_ns: int = NOW_NS
) -> PlanSnapshot:
    """The objects as a snapshot of which every kind was read, or those in `read`."""
    loaded = load_documents(flattened(objects), "test")
    return PlanSnapshot(loaded.objects, now_ns, read, loaded.unreadable)


def plan(
    *objects: Json | list[Json],
    nodes: tuple[str, ...] = ("a1",),
    read: set[str] | None = None,
    **options: Any,
) -> DrainPlan:
    """The plan of `kubectl drain NODES` with these options."""
    return make_plan(snapshot(*objects, read=read), nodes, DrainOptions(**options))


def pods_of(answer: DrainPlan) -> dict[str, PodPlan]:
    """The plan's pods by name."""
    return {pod.name: pod for pod in answer.pods()}
