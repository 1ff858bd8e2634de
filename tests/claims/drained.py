"""Random clusters of which nodes were drained: what the play of the drain shows, and the dump that
a cluster gives an hour later, with the Events that its kubelets, owners and scheduler would send.

It knows nothing of our code but the words `what-if`, whose records are the course of the drain.
"""

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from tests import objects
from tests.claims.test_what_if import run
from tests.what_if.stand import NOW_NS, at, budget, node, workload

Document = dict[str, Any]
END_S = 1800


class DrainedPod:
    """A pod of the play. Seconds after the drain's begin; `left`: it was asked to go."""

    def __init__(self, name: str, owner: tuple[str, str], node: str, made: float) -> None:
        self.name, self.owner, self.node, self.made = name, owner, node, made
        self.ready: float | None = None
        self.left: float | None = None

    def serves(self, at_s: float) -> bool:
        return self.ready is not None and self.ready <= at_s and not self.is_left(at_s)

    def is_left(self, at_s: float) -> bool:
        return self.left is not None and self.left <= at_s


class DrainedCluster(NamedTuple):
    """`cordoned`: seconds after the beginning, by node. `untold`: the reason of no Event."""

    names: list[str]
    items: list[Document]
    untold: str
    pods: list[DrainedPod]
    cordoned: dict[str, float]

    def serving(self, owner: tuple[str, str], at_s: float) -> int:
        return sum(pod.owner == owner and pod.serves(at_s) for pod in self.pods)

    def write(self, folder: Path) -> str:
        """The dump of what the cluster serves at the end."""
        return objects.write_list(folder / "after.json", after(self))

    def seconds_below(
        self, owner: tuple[str, str], least: int, since_s: float, until_s: float
    ) -> float:
        """For how long fewer than `least` of its pods serve between these times."""
        mine = [pod for pod in self.pods if pod.owner == owner]
        times = {t for pod in mine for t in (pod.ready, pod.left) if t is not None}
        points = [since_s, *sorted(t for t in times if since_s < t < until_s), until_s]
        return sum(
            until - begin for begin, until in pairwise(points) if self.serving(owner, begin) < least
        )


def drained_cluster(seed: int, folder: Path) -> DrainedCluster:
    """The cluster of that seed, in which some nodes are drained."""
    rng = random.Random(f"drained {seed}")
    nodes = [f"{zone}{i}" for zone in "ab" for i in range(1, rng.randint(3, 5))]
    items: list[Document] = [part for name in nodes for part in node(name, cpu="8")]
    for number in range(rng.randint(1, 5)):
        items += _random_workload(rng, f"w{number}", nodes)
    names = rng.sample(nodes, rng.choice([1, 1, 2, 2]))
    untold = rng.choice(["", "", "", "SuccessfulCreate", "Scheduled"])
    cluster = DrainedCluster(names, items, untold, [], {})
    _play(cluster, _acts(rng, names, items), folder)
    return cluster


def _acts(rng: random.Random, names: list[str], items: list[Document]) -> list[Document]:
    """One drain, or two at once or in turn; a pod that a person deletes meanwhile."""
    times = [0, rng.choice([0, 3, 40, 200])]
    acts: list[Document] = [
        {"at": f"{after}s", "drain": {"nodes": [name], "ignoreDaemonSets": True}}
        for after, name in zip(times, names, strict=False)
    ]
    if rng.random() < 0.3:
        pod = rng.choice([o for o in items if o["kind"] == "Pod"])["metadata"]["name"]
        acts.append({"at": f"{rng.randint(1, 60)}s", "delete": {"kind": "Pod", "name": pod}})
    return acts


def _random_workload(rng: random.Random, name: str, nodes: list[str]) -> list[Document]:
    kind = rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet"])
    on = [rng.choice(nodes) for _ in range(rng.randint(1, 6))]
    made = workload(name, sorted(set(on)) if kind == "DaemonSet" else on, kind)
    starts_s = rng.choice([2, 2, 20, 90])
    for pod in made[1:]:
        for condition in pod["status"]["conditions"][1:]:
            condition["lastTransitionTime"] = at(starts_s - 3600)
    if rng.random() < 0.5 and kind != "DaemonSet":
        made += budget(name, max(0, len(on) - rng.randint(1, 2)), len(on))
    return made


def _play(cluster: DrainedCluster, acts: list[Document], folder: Path) -> None:
    dump, events = objects.write_list(folder / "before.json", cluster.items), folder / "acts.json"
    head = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Acts"}
    events.write_text(json.dumps({**head, "spec": {"events": acts}}))
    where = ("-f", str(events), "-f", dump, "--now", at(0), "--until", f"{END_S}s")
    code, out = run("what-if", "-o", "timeline", *where)
    assert code == 0, out
    for pod in (o for o in cluster.items if o["kind"] == "Pod"):
        kept = DrainedPod(pod["metadata"]["name"], _owner(pod), pod["spec"]["nodeName"], -3600.0)
        kept.ready = -3598.0
        cluster.pods.append(kept)
    owners = {name: kind for kind, name in {pod.owner for pod in cluster.pods}}
    for record in json.loads(out)["records"]:
        _take(cluster, record, owners)


def after(cluster: DrainedCluster) -> list[Document]:
    """What the cluster serves at the end: objects, and the Events of all that happened."""
    ended = [part for o in cluster.items if o["kind"] != "Pod" for part in [_left_as(o, cluster)]]
    events: list[Document] = []
    for pod in cluster.pods:
        if pod.left is None:
            ended.append(_pod(pod))
        told = _events(pod, len(events))
        events += [event for event in told if event["reason"] != cluster.untold]
    return ended + events


def seconds_of(time: str) -> float:
    """Of an instant as the API writes it: seconds after the drain's begin."""
    return (parse_time(time) - NOW_NS) / SECOND_NS


def _left_as(obj: Document, cluster: DrainedCluster) -> Document:
    cordoned = cluster.cordoned.get(obj["metadata"]["name"])
    if obj["kind"] != "Node" or cordoned is None:
        return obj
    wrote = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": at(cordoned)}
    wrote |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    metadata = {**obj["metadata"], "managedFields": [wrote]}
    return {**obj, "metadata": metadata, "spec": {**obj.get("spec", {}), "unschedulable": True}}


def _pod(pod: DrainedPod) -> Document:
    kind, owner = pod.owner
    conditions = []
    if pod.node:
        conditions.append(objects.condition("PodScheduled", changed=at(pod.made)))
    if pod.ready is not None:
        conditions.append(objects.condition("Ready", changed=at(pod.ready)))
    return objects.pod(
        pod.name,
        pod.node,
        created=at(pod.made),
        labels={"app": owner},
        owner=objects.owner(kind, owner, f"{kind}-{owner}"),
        uid=f"{pod.name}-{pod.made}",
        conditions=conditions,
    )


def _events(pod: DrainedPod, number: int) -> Iterator[Document]:
    kind, owner = pod.owner
    if pod.made >= 0:
        made = f"Created pod: {pod.name}"
        if kind == "StatefulSet":
            made = f"create Pod {pod.name} in StatefulSet {owner} successful"
        yield _event(f"{number}c", pod.made, kind, owner, "SuccessfulCreate", made, "owners")
        if pod.node:
            bound = f"Successfully assigned default/{pod.name} to {pod.node}"
            yield _event(f"{number}s", pod.made, "Pod", pod.name, "Scheduled", bound, "scheduler")
    if pod.left is not None and pod.node:
        stopped = ("Pod", pod.name, "Killing", "Stopping container c", "kubelet", pod.node)
        yield _event(f"{number}k", pod.left, *stopped)


def _event(
    name: str,
    at_s: float,
    kind: str,
    about: str,
    reason: str,
    message: str,
    by: str,
    host: str = "",
) -> Document:
    """`at_s`: seconds after the drain's begin; an Event has whole seconds."""
    told = {"when": at(at_s), "by": by, "host": host, "name": f"{about}.{name}"}
    return objects.event((kind, about), reason, message, **told)


def _owner(pod: Document) -> tuple[str, str]:
    (owner,) = pod["metadata"]["ownerReferences"]
    return owner["kind"], owner["name"]


def _take(cluster: DrainedCluster, record: Document, owners: dict[str, str]) -> None:
    if record.get("error"):
        return
    action, name, detail = record["action"], record["object"]["name"], record["detail"]
    of_name = [pod for pod in cluster.pods if pod.name == name]
    if action == "CreatePod":
        owner = detail["owner"]
        made = DrainedPod(name, (owners[owner], owner), detail.get("node") or "", record["at"])
        cluster.pods.append(made)
    elif action == "SetPodCondition" and detail["type"] == "Ready" and detail["status"] == "True":
        of_name[-1].ready = record["at"]
    elif action in ("DeletePod", "EvictPod") and of_name[-1].left is None:
        of_name[-1].left = record["at"]
    elif action == "RecordEvent" and detail["reason"] == "Scheduled":
        of_name[-1].node = detail["message"].split()[-1]
    elif action == "RecordEvent" and detail["reason"] == "Cordoned":
        cluster.cordoned[name] = record["at"]
