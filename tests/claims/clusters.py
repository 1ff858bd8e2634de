"""Random clusters, as dumps: nodes that are well, late, lost, marked or gone, and pods on them."""

import datetime
import random
from pathlib import Path
from typing import NamedTuple

from tests import objects
from tests.objects import NOT_READY, UNREACHABLE, Document

NOW = datetime.datetime(2026, 1, 1, 1, 0, 0)
PROFILES = ("v1.17", "v1.20", "v1.26", "v1.33", "v1.36")
STATES = ("ok", "ok", "ok", "late", "false", "unknown", "never", "removed", "ftaint", "utaint")
GRACE_S = {"v1.33": 50, "v1.36": 50}


def ago(seconds: float) -> str:
    """That long before the moment, as the API writes it."""
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class RandomCluster(NamedTuple):
    """`states`: what each node is, by its name."""

    profile: str
    items: list[Document]
    states: dict[str, str]

    def write(self, folder: Path) -> str:
        """A dump of it."""
        return objects.write_list(folder / "dump.json", self.items)


def random_cluster(seed: int) -> RandomCluster:
    """The cluster of that seed."""
    rng = random.Random(seed)
    profile = rng.choice(PROFILES)
    zones = rng.choice([["a"], ["a", "b"], [""]])
    items: list[Document] = []
    states: dict[str, str] = {}
    for number in range(rng.randint(2, 7)):
        name = f"n{number}"
        states[name] = rng.choice(STATES)
        items += _node(rng, name, states[name], rng.choice(zones), GRACE_S.get(profile, 40))
    for number in range(rng.randint(1, 4)):
        node = rng.choice([*states, "gone"])
        items.append(objects.pod(f"p{number}", node, created=ago(2000), tolerates=300))
    return RandomCluster(profile, items, states)


def _node(rng: random.Random, name: str, state: str, zone: str, grace_s: int) -> list[Document]:
    labels = {"kubernetes.io/hostname": name}
    if zone:
        for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io"):
            labels |= {f"{prefix}/zone": zone, f"{prefix}/region": "r"}
    created = rng.choice([3000, 3000, 30, 70]) if state == "never" else 3000
    node = objects.node(name, None, labels=labels, created=ago(created))
    lease: float | None = rng.randint(0, 9)
    if state == "ok":
        _ready(node, "True", rng.randint(9, 200), 2900)
    elif state == "late":
        lease = rng.randint(16, grace_s - 1)
        _ready(node, "True", lease + rng.randint(0, 200), 2900)
    elif state in ("false", "ftaint"):
        since = rng.choice([2, 30, 200])
        _ready(node, "False", 2 if since == 2 else rng.randint(2, 30), since)
        _tainted(node, NOT_READY, since, state == "ftaint")
    elif state in ("unknown", "utaint"):
        since = rng.choice([1, 4, 60, 200, 280, 3600])
        lease = since + grace_s + rng.randint(1, 6)
        _ready(node, "Unknown", lease + 5, since)
        _tainted(node, UNREACHABLE, since, state == "utaint")
    elif state == "never":
        lease = None
    else:
        lease = rng.randint(0, 30)
    return [node] if lease is None else [node, objects.lease(name, ago(lease), uid="")]


def _ready(node: Document, status: str, posted_s: float, since_s: float) -> None:
    condition = objects.condition("Ready", status, "x", changed=ago(since_s))
    node["status"]["conditions"] = [{**condition, "lastHeartbeatTime": ago(posted_s)}]


def _tainted(node: Document, key: str, since_s: float, no_execute: bool) -> None:
    effects = ("NoSchedule", "NoExecute") if no_execute else ("NoSchedule",)
    since = ago(max(0, since_s - 1))
    node["spec"]["taints"] = [objects.taint(key, effect, added=since) for effect in effects]
