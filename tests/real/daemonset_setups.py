"""Set-ups of one DaemonSet each, on nodes of its own, and what happens to them step by step.

A step begins when nothing changes any more. It is a list of a scenario's events, or a function from
what is seen to such a list, where names are needed that are chosen on the way. Besides there are
`undo: N`, which is `kubectl rollout undo --to-revision N`, `orphan: true`, which deletes the set
and leaves its pods, and `pause: SECONDS`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.real.daemonset_outcome import SET, Json, Seen
from tests.real.stage import kind_named

Step = list[Json] | Callable[[Seen], list[Json]]

LABELS = {"app": SET}
GRACE_S = 20
"""For so long a silent kubelet's node stays Ready."""


class Setup(NamedTuple):
    """`anywhere`: which of the nodes is next is chance upstream.

    `rests_s`: after so long without a change a step is over; longer than what the controller waits
    for by itself, such as minReadySeconds.
    """

    nodes: list[Json]
    steps: list[Step]
    anywhere: bool = False
    rests_s: float = 7.0


def node(name: str, setup: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A node that only this set-up's DaemonSet goes to."""
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "setup": setup}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **(labels or {})}},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        },
    }


def nodes(setup: str, count: int) -> list[Json]:
    """That many plain ones, SETUP-1 and on."""
    return [node(f"{setup}-{i}", setup) for i in range(1, count + 1)]


def wants(setup: str, image: int = 1, pod: Json | None = None, **spec: Any) -> Json:
    """The event that makes the set so; `pod` goes into the pod spec."""
    pod = dict(pod or {})
    pod["nodeSelector"] = {"setup": setup, **pod.get("nodeSelector", {})}
    template = {
        "metadata": {"labels": LABELS},
        "spec": {
            "containers": [{"name": "c", "image": f"agent:{image}"}],
            "terminationGracePeriodSeconds": 1,
            **pod,
        },
    }
    return {
        "apply": {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": SET, "namespace": setup},
            "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec},
        }
    }


def rolling(**numbers: Any) -> Json:
    """An update strategy."""
    return {"type": "RollingUpdate", "rollingUpdate": numbers}


ON_DELETE: Json = {"type": "OnDelete"}


def patch(kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    """The event that patches an object."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    meta |= fields.pop("metadata", {})
    version = kind_named(kind).api_version
    return {"apply": {"apiVersion": version, "kind": kind, "metadata": meta, **fields}}


def by_hand(setup: str, name: str, on: str) -> Json:
    """The event that makes a pod that the set's selector matches and nobody owns."""
    return {
        "apply": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": setup, "labels": LABELS},
            "spec": {
                "nodeName": on,
                "containers": [{"name": "c", "image": "by-hand:1"}],
                "terminationGracePeriodSeconds": 1,
            },
        }
    }


def gone(kind: str, name: str, namespace: str = "") -> Json:
    """The event that deletes an object."""
    within = {"namespace": namespace} if namespace else {}
    return {"delete": {"kind": kind, "name": name, **within}}


def pod_on(on: str, **fields: Any) -> Step:
    """The pod on that node is patched."""

    def step(seen: Seen) -> list[Json]:
        return [patch("Pod", seen.pod_on(on), seen.namespace, **fields)]

    return step


def ends(phase: str, on: str) -> Step:
    """The pod on that node comes to its end."""
    return pod_on(on, status={"phase": phase})


def deleted_on(on: str) -> Step:
    """Somebody deletes the pod on that node."""
    return lambda seen: [gone("Pod", seen.pod_on(on), seen.namespace)]


def usurped(number: int) -> Step:
    """That revision goes, and one of the same name with another content takes its place."""

    def step(seen: Seen) -> list[Json]:
        (old,) = (r for r in seen.revisions if r["revision"] == number)
        name = old["metadata"]["name"]
        data = {"spec": {"template": {"$patch": "replace", "metadata": {"labels": LABELS}}}}
        meta = {"name": name, "namespace": seen.namespace, "labels": old["metadata"]["labels"]}
        other = {"metadata": meta, "data": data, "revision": number}
        types = {"apiVersion": "apps/v1", "kind": "ControllerRevision"}
        return [gone("ControllerRevision", name, seen.namespace), {"apply": {**types, **other}}]

    return step


def revision_gone(number: int) -> Step:
    """Somebody deletes that revision."""

    def step(seen: Seen) -> list[Json]:
        (old,) = (r for r in seen.revisions if r["revision"] == number)
        return [gone("ControllerRevision", old["metadata"]["name"], seen.namespace)]

    return step


def term(*expressions: tuple[str, str, list[str]]) -> Json:
    """A node selector term."""
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, **({"values": values} if values else {})}
            for key, operator, values in expressions
        ]
    }


def other_than(node: str) -> Json:
    """A requirement on a node's name, which is a field and no label."""
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


def affinity(*terms: Json) -> Json:
    """A pod spec with that required node affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def toleration(key: str, operator: str = "Exists", **fields: str) -> Json:
    """One toleration."""
    return {"key": key, "operator": operator, **fields}
