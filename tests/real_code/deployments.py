"""Roll-outs of a Deployment for the real Deployment and ReplicaSet controllers, made from a seed,
and what is compared of them: when which ReplicaSet is scaled from what to what.

Two scalings of one ReplicaSet in the same direction at one moment are one: of an old ReplicaSet the
real controller takes first the pods that are not available, then others.
"""

import random
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from tests.real_code.judge import TOLERANCE_S
from tests.real_code.workload_scenario import ready_node, scenario, some_kubelet

Json = dict[str, Any]

_MESSAGE = re.compile(r"Scaled \w+ replica set (\S+) from (\d+) to (\d+)")


def generate(seed: int) -> Json:
    """A Deployment that is changed some times, while a node may be lost or cordoned."""
    chance = random.Random(seed)
    nodes = [ready_node(f"n{i}") for i in range(chance.choice([3, 5]))]
    replicas, fields = chance.choice([1, 2, 3, 4, 5, 7, 10, 16]), dict(_fields(chance))
    events = [{"at": "10.5s", "apply": _deployment(replicas, 1, fields)}]
    at, image = 60 + chance.random() * 10, 1
    for _ in range(chance.choice([1, 1, 2, 3])):
        image = chance.choice([image + 1, image + 1, 1])
        events.append({"at": f"{at:.2f}s", "apply": _deployment(replicas, image, fields)})
        at += chance.uniform(5, 80)
    if chance.random() < 0.5:
        begin = chance.uniform(40, 120)
        end = begin + chance.uniform(60, 200)
        for when, word in ((begin, "stop"), (end, "start")):
            events.append({"at": f"{when:.2f}s", "kubelet": {"nodes": ["n1"], "heartbeats": word}})
    if chance.random() < 0.3:
        events.append({"at": f"{chance.uniform(58, 100):.2f}s", "cordon": {"nodes": ["n2"]}})
    flags = {"default-unreachable-toleration-seconds": "31"}
    return scenario(f"deployment-{seed}", 400, flags, some_kubelet(chance), nodes, events)


def _fields(chance: random.Random) -> Iterator[tuple[str, Any]]:
    """How the Deployment is updated."""
    dice = chance.random()
    if dice < 0.15:
        yield "strategy", {"type": "Recreate"}
    elif dice < 0.85:
        surge = chance.choice([0, 1, 2, "25%", "50%", 3])
        unavailable = chance.choice([0, 1, 2, "25%", "10%", "50%"])
        if surge == unavailable == 0:
            unavailable = 1
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        yield "strategy", {"type": "RollingUpdate", "rollingUpdate": rolling}
    if chance.random() < 0.4:
        yield "minReadySeconds", chance.choice([3, 10, 25])


def _deployment(replicas: int, image: int, fields: Json) -> Json:
    labels = {"app": "web"}
    container = {"name": "c", "image": f"registry.example/app:{image}"}
    pod = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **fields,
        },
    }


Scaling = tuple[float, int, int]
"""When, from how many, to how many."""


def scalings(timeline: Mapping[str, Any]) -> list[list[Scaling]]:
    """Those of each ReplicaSet, in the order in which they were made."""
    by_set: dict[str, list[Scaling]] = {}
    for at, name, before, after in _told(timeline):
        steps = by_set.setdefault(name, [])
        last = steps[-1] if steps else None
        if (
            last is not None
            and at - last[0] < TOLERANCE_S
            and (last[1] < last[2]) == (before < after)
        ):
            steps[-1] = (last[0], last[1], after)
        else:
            steps.append((at, before, after))
    return list(by_set.values())


def _told(timeline: Mapping[str, Any]) -> Iterator[tuple[float, str, int, int]]:
    for record in timeline["records"]:
        detail = record["detail"]
        if record["action"] == "ScaleReplicaSet":
            yield record["at"], record["object"]["name"], detail["from"], detail["to"]
        elif detail.get("reason") == "ScalingReplicaSet" and record["controller"] == "cluster":
            told = _MESSAGE.fullmatch(detail["message"])
            assert told is not None
            yield record["at"], told[1], int(told[2]), int(told[3])


def pods_at_the_end(timeline: Mapping[str, Any]) -> list[tuple[bool, bool]]:
    """(Ready, terminating) of each; which of several equal pods went is the order of their uids."""
    pods = timeline["final"]["podList"]
    return sorted((pod["ready"] == "True", pod["terminating"]) for pod in pods)


def agree(one: list[list[Scaling]], other: list[list[Scaling]]) -> bool:
    """True if two runs scale alike, within the tolerance."""
    if [[step[1:] for step in steps] for steps in one] != [
        [step[1:] for step in steps] for steps in other
    ]:
        return False
    pairs = zip(chain.from_iterable(one), chain.from_iterable(other), strict=True)
    return all(abs(a[0] - b[0]) <= TOLERANCE_S for a, b in pairs)
