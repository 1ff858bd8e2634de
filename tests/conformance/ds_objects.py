"""The shorthands of DaemonSet vectors for many nodes and pods, written out as API objects."""

from collections.abc import Iterable
from typing import Any

from kubectl_nodelife.kube.workload import DaemonSet

Json = dict[str, Any]


def owner_json(name: str) -> Json:
    """The controller reference to a set of that name."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def node_sets(shorthands: list[Json]) -> Iterable[Json]:
    """`nodeSets`: Ready nodes, so many of a name prefix."""
    for wanted in shorthands:
        for i in range(wanted["start"], wanted["start"] + wanted["count"]):
            yield {
                "metadata": {"name": f"{wanted['namePrefix']}{i}", "labels": wanted["labels"]},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"pods": "100"},
                },
            }


def pod_set(shorthand: Json, namespace: str) -> Iterable[Json]:
    """`podSets`: pods on one node, owned by a set or by nobody."""
    for i in range(shorthand["count"]):
        labels = dict(shorthand.get("labels", {}))
        name = f"{shorthand['namePrefix']}{i}"
        metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        owner = shorthand.get("ownedBy")
        if owner:
            labels["controller-revision-hash"] = "$current"
            metadata["ownerReferences"] = [owner_json(owner)]
        metadata["labels"] = labels
        spec = shorthand.get("spec", {"containers": []})
        yield {
            "metadata": metadata,
            "spec": {**spec, "nodeName": shorthand["nodeName"]},
            "status": {"phase": shorthand["phase"]} if "phase" in shorthand else {},
        }


def pod_classes(classes: list[Json], daemon_set: DaemonSet, nodes: list[str]) -> Iterable[Json]:
    """`podClasses`: one pod of the set a node, in node order, of some version and availability."""
    wanted = [c for c in classes for _ in range(c["count"])]
    assert len(wanted) <= len(nodes)
    template_labels = daemon_set.spec.template["metadata"]["labels"]
    for i, (kind, node) in enumerate(zip(wanted, nodes, strict=False)):
        version = {"new": "$current", "old": "$old"}[kind["version"]]
        metadata = {
            "name": f"class-{i}",
            "namespace": daemon_set.namespace,
            "uid": f"uid-class-{i}",
            "labels": {**template_labels, "controller-revision-hash": version},
            "ownerReferences": [{**owner_json(daemon_set.name), "uid": daemon_set.uid}],
        }
        ready = "True" if kind["available"] else "False"
        yield {
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
