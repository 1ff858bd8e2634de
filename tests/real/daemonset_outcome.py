"""What a DaemonSet has come to: pods, revisions and status, the same question to both clusters.

A cluster is seen as the API's JSON, which the simulated one's objects are encoded to; so what is
compared does not depend on who answers.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

Json = dict[str, Any]

SET = "agent"
HASH = "controller-revision-hash"
COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "observedGeneration",
    "collisionCount",
)


class Seen(NamedTuple):
    """A set with all pods and revisions of its namespace, as API objects."""

    daemon_set: Json | None
    pods: list[Json]
    revisions: list[Json]

    @property
    def namespace(self) -> str:
        """Where all this is."""
        namespaces = {obj["metadata"]["namespace"] for obj in self.pods + self.revisions}
        (namespace,) = namespaces
        return str(namespace)

    def pod_on(self, node: str) -> str:
        """The name of the one pod on a node."""
        (pod,) = (p for p in self.pods if p["spec"].get("nodeName") == node)
        return str(pod["metadata"]["name"])


def outcome(seen: Seen, anywhere: bool = False) -> Json:
    """What is compared. `anywhere`: which of the nodes have what is chance upstream."""
    found: Json = {
        "pods": sorted(_pods(seen), key=str),
        "revisions": sorted(_revisions(seen), key=str),
        "status": None,
    }
    if anywhere:
        found["pods"] = sorted(str(sorted(pods)) for pods in _by_node(seen).values())
    if seen.daemon_set is not None:
        status = seen.daemon_set.get("status", {})
        found["status"] = {key: status.get(key, 0) for key in COUNTS}
    return found


def is_overlooked(seen: Seen, now_s: float) -> bool:
    """Is a surge pod available beside the old one, which the controller was to delete then?

    A set that waits in the delaying queue is not put down for a later instant as well
    (`waitingEntry`, client-go's util/workqueue/delaying_queue.go). If a second pod becomes Ready
    while the set still waits on account of the first, the one sync comes before the second is
    available, and the status, which counts the old pods, asks for no other: the real controller
    stands still until something changes the set or a pod. `now_s`: seconds since 1970.
    """
    spec = (seen.daemon_set or {}).get("spec", {})
    surge = spec.get("updateStrategy", {}).get("rollingUpdate", {}).get("maxSurge", 0)
    if surge in (0, "0%") or not spec.get("minReadySeconds"):
        return False
    newest = max(seen.revisions, key=lambda revision: revision["revision"])
    label = newest["metadata"]["labels"][HASH]
    live = [pod for pod in seen.pods if "deletionTimestamp" not in pod["metadata"]]
    available = {
        target_node(pod)
        for pod in live
        if pod["metadata"]["labels"].get(HASH) == label
        and _ready_s(pod, now_s) > spec["minReadySeconds"] + 1
    }
    return any(
        target_node(pod) in available and pod["metadata"]["labels"].get(HASH) != label
        for pod in live
    )


def _ready_s(pod: Json, now_s: float) -> float:
    """For how many seconds it has been Ready; 0 if it is not."""
    for condition in pod["status"].get("conditions", []):
        if (condition["type"], condition["status"]) == ("Ready", "True"):
            since = datetime.fromisoformat(condition["lastTransitionTime"])
            return now_s - since.timestamp()
    return 0.0


def _by_node(seen: Seen) -> dict[str, list[str]]:
    by_node: dict[str, list[str]] = {}
    for node, *rest in _pods(seen):
        by_node.setdefault(str(node), []).append(str(rest))
    return by_node


def _pods(seen: Seen) -> Iterable[tuple[Any, ...]]:
    """(node, number of its revision, image, whose, ready, terminating), made by hand: its name."""
    numbers = {r["metadata"].get("labels", {}).get(HASH): r["revision"] for r in seen.revisions}
    uid = seen.daemon_set["metadata"]["uid"] if seen.daemon_set else ""
    for pod in seen.pods:
        meta, spec = pod["metadata"], pod["spec"]
        label = meta.get("labels", {}).get(HASH)
        owners = [o["uid"] == uid for o in meta.get("ownerReferences", []) if o.get("controller")]
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
        yield (
            target_node(pod),
            numbers.get(label, "gone") if label else "none",
            spec["containers"][0]["image"],
            "" if meta["name"].startswith(f"{SET}-") else meta["name"],
            owners,
            pod["status"].get("phase"),
            conditions.get("Ready"),
            "deletionTimestamp" in meta,
        )


def target_node(pod: Json) -> str:
    """The node that a pod is bound to, or that its affinity names."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (field,) = required["nodeSelectorTerms"][0]["matchFields"]
    return str(field["values"][0])


def _revisions(seen: Seen) -> Iterable[tuple[Any, ...]]:
    """(number, content, whose)"""
    uid = seen.daemon_set["metadata"]["uid"] if seen.daemon_set else ""
    for revision in seen.revisions:
        owners = [o["uid"] == uid for o in revision["metadata"].get("ownerReferences", [])]
        yield revision["revision"], canonical(revision["data"]), owners


def canonical(value: Any) -> Any:
    """A value that is equal, and prints equally, when the JSON is."""
    if isinstance(value, dict):
        return tuple(sorted((key, canonical(item)) for key, item in value.items()))
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return value
