"""A small cluster for questions: two zones of three nodes, or as a test says, all Leases 4 s old.

Kubelets renew at 6, 16, 26, … s, the first monitor pass is at 0, pods ask 100m and have the two
default tolerations of 300 s, and the pods that are there were Ready 2 s after they were bound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.times import SECOND_NS, format_time, parse_time
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import NodeFuture, WhatIf, WorkloadFuture
from kubectl_nodelife.outlook.what_if.question import Question, play
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject
from tests import objects
from tests.objects import NOT_READY, UNREACHABLE
from tests.simulating import NO_LIMIT

NOW_NS = int(parse_time("2026-01-01T12:00:00Z"))
SIX = ("a1", "a2", "a3", "b1", "b2", "b3")
ALL_KINDS = frozenset(kind.name for kind in KINDS)

Document = dict[str, Any]


def at(seconds: float) -> str:
    """An instant so many seconds after the question."""
    return format_time(NOW_NS + round(seconds * SECOND_NS))


def node(name: str, *, lease_age: float = 4.0, cpu: str = "4", **spec: Any) -> list[Document]:
    """A node that is Ready, of the zone that its name begins with, and its Lease."""
    times = {"heartbeat": at(-60), "since": at(-86400), "created": at(-86400)}
    room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    about = {"zone": name.rstrip("0123456789"), "allocatable": room}
    made = objects.node(name, "True", "KubeletReady", uid=f"node-{name}", **times, **about, **spec)
    return [made, objects.lease(name, objects.ago(lease_age, NOW_NS), uid="")]


def workload(
    name: str,
    nodes: Sequence[str],
    kind: str = "ReplicaSet",
    *,
    cpu: str = "100m",
    tolerates: int | None = 300,
) -> list[Document]:
    """An owner with a Ready pod on each of the nodes. `tolerates`: seconds, None: for ever."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    lost = [objects.toleration(key, seconds=tolerates) for key in (NOT_READY, UNREACHABLE)]
    pods: Document = {"containers": [container], "tolerations": lost, "restartPolicy": "Always"}
    pods |= {"terminationGracePeriodSeconds": 30}
    more = {"updateStrategy": {"type": "OnDelete"}} if kind == "DaemonSet" else {}
    replicas = None if kind == "DaemonSet" else len(nodes)
    about = {"labels": {"app": name}, "creationTimestamp": at(-7200)}
    uid = f"{kind}-{name}"
    owner = objects.workload(kind, name, replicas, pods=pods, uid=uid, metadata=about, **more)
    return [owner, *(_pod(owner, i, on) for i, on in enumerate(nodes))]


def _pod(owner: Document, number: int, on: str) -> Document:
    name, bound, up = owner["metadata"]["name"], at(-3600), at(-3598)
    running = {"name": "c", "ready": True, "state": {"running": {"startedAt": up}}}
    return objects.pod(
        f"{name}-{number}",
        on,
        created=bound,
        labels={"app": name},
        owner=objects.owner(owner["kind"], name, owner["metadata"]["uid"]),
        uid=f"pod-{name}-{number}",
        conditions=[
            objects.condition("PodScheduled", changed=bound),
            objects.condition("Ready", changed=up),
            objects.condition("ContainersReady", changed=up),
        ],
        status={"containerStatuses": [running], "startTime": bound},
        **owner["spec"]["template"]["spec"],
    )


def service(name: str) -> list[Document]:
    """A Service of the pods of the workload of that name."""
    return [objects.of_kind("Service", name, "default", uid="", spec={"selector": {"app": name}})]


def budget(name: str, least: int, pods: int) -> list[Document]:
    """A budget of the pods of the workload of that name, of which so many are healthy."""
    status = {"observedGeneration": 1, "currentHealthy": pods, "expectedPods": pods}
    status |= {"desiredHealthy": least, "disruptionsAllowed": pods - least}
    generation = {"generation": 1}
    return [objects.budget(name, metadata=generation, status=status, minAvailable=least)]


def ask(
    words: str,
    objects: Iterable[Document],
    *,
    nodes: Sequence[str] = SIX,
    flags: Mapping[str, str] | None = None,
    kinds_read: frozenset[str] = ALL_KINDS,
    until_s: float = 3600,
    ignores: Callable[[ServedObject], bool] = lambda served: False,
) -> WhatIf:
    """The answer to a question, as it is written on the command line. Writes take no time unless
    the flags say so, so that it can be reckoned by hand.
    """
    cluster = cluster_of(objects, nodes)
    settings = make_settings("newest", {**NO_LIMIT, **(flags or {})})
    acts = read_acts(words.split(), cluster, beta_zone_labels_only=False)
    until_ns = round(until_s * SECOND_NS)
    plays = play(Question(cluster, settings, NOW_NS, kinds_read, acts, until_ns))
    return make_answer(plays, acts, settings, source={}, moment={}, warnings=(), ignores=ignores)


def cluster_of(objects: Iterable[Document], nodes: Sequence[str] = SIX) -> Cache:
    """The nodes and these objects."""
    documents = [each for name in nodes for each in node(name)]
    named = {(d["kind"], d["metadata"]["name"]): d for d in [*documents, *objects]}
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for d in named.values()], NOW_NS)
    return cluster


def of(answer: WhatIf, name: str) -> WorkloadFuture:
    """What becomes of the workload of that name, which must be among those that differ."""
    return next(workload for workload in answer.workloads if workload.name == name)


def of_node(answer: WhatIf, name: str) -> NodeFuture:
    """What becomes of the node."""
    return next(node for node in answer.nodes if node.name == name)
