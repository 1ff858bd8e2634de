"""Random fleets to be upgraded, as dumps with a policy: zones, pools, nodes that are well or not,
workloads with and without budgets, bare pods, DaemonSets, windows, limits."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from tests import objects
from tests.drain import build

Document = dict[str, Any]
NOW = "2026-01-01T01:00:00Z"
"""A Thursday."""
STATES = ("ok",) * 14 + ("cordoned", "lost", "sick", "failed", "held", "deleting", "there", "ok")
TARGET = "kubeletVersion=v1.36.3"
WINDOWS = (
    ["01:30-04:00"],
    [f"{hour:02}:00-{hour:02}:40" for hour in range(24)],
    [f"{hour:02}:15-{hour:02}:35" for hour in range(24)],
    [f"Thu {hour:02}:30-{hour + 1:02}:20" for hour in range(0, 24, 3)],
)


CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
OVERLAPPING = (
    ["00:00-02:10", "02:00-05:00"],
    ["Thu 01:20-01:50", "Thu 02:05-02:40", "Fri 01:00-06:00", "Sat,Sun 00:00-24:00"],
    ["Wed 23:30-01:20", "01:20-01:50", "03:00-04:15"],
    ["02:30-03:10 Europe/Berlin", "06:00-06:40 Asia/Kolkata", "12:00-12:25"],
)
"""Windows that meet, overlap, run over midnight, or are of other time zones."""


class Fleet(NamedTuple):
    """A cluster, what each node is, and the spec of a file of kind Upgrade."""

    items: list[Document]
    states: dict[str, str]
    spec: Document

    @property
    def nodes(self) -> dict[str, Document]:
        return {i["metadata"]["name"]: i for i in self.items if i["kind"] == "Node"}

    @property
    def selected(self) -> list[str]:
        """The nodes that the order is about: its pool, and not those that it leaves out."""
        pool, excluded = self.spec["selector"].partition("=")[2], self.spec.get("exclude", "")
        return [
            name
            for name, node in sorted(self.nodes.items())
            if node["metadata"]["labels"]["pool"] in (pool or "blue green").split()
            and name not in excluded.split(",")
            and (not is_control_plane(node) or self.spec.get("includeControlPlane"))
        ]

    def is_emptied(self, planned: Document) -> bool:
        """True if a node of a plan is claimed though its drain cannot end now: the time of its pods
        is over, so that taint-eviction deletes them. The runs show whether it is claimed."""
        is_taken = planned["decision"] == "claim" and self.spec.get("unhealthy") == "include"
        return is_taken and self.states[planned["name"]] == "sick"

    def pods_on(self, name: str) -> list[Document]:
        return [i for i in self.items if i["kind"] == "Pod" and i["spec"]["nodeName"] == name]

    def write(self, folder: Path) -> tuple[str, ...]:
        """The words by which a plan takes the dump and the order."""
        dump, order = objects.write_list(folder / "dump.json", self.items), folder / "order.json"
        head = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Upgrade"}
        spec = {n: value for n, value in self.spec.items() if n not in ("work", "drain")}
        work = self.spec["work"]
        spec |= self.spec.get("drain", {})
        spec |= {work["mode"]: work.get("command", True), "rerunSafe": work.get("rerunSafe")}
        order.write_text(json.dumps({**head, "spec": spec}, indent=1))
        return ("-f", str(order), "-f", str(dump), "--read", "all", "--now", NOW)


def random_fleet(seed: int) -> Fleet:
    """The fleet of that seed."""
    rng = random.Random(f"fleets {seed}")
    zones = rng.choice(["a", "ab", "ab", "abc"])
    names = [f"{z}{n}" for z in zones for n in range(1, rng.choice([2, 3, 3, 4, 5]))]
    states = {name: rng.choice(STATES) for name in names}
    pools = {name: rng.choice(["blue", "blue", "green"]) for name in names}
    if rng.random() < 0.7:
        pools = dict.fromkeys(names, "blue")
    cpu = rng.choice(["8", "8", "4"])
    items = [build.namespace(), build.namespace("nodelife")]
    for name in names:
        items += _node(name, states[name], pools[name], cpu)
    for number in range(rng.randint(1, 5)):
        items += _workload(rng, f"w{number}", states)
    for number in range(rng.choice([0, 0, 0, 1])):
        items.append(_pod(rng, f"bare{number}", rng.choice(names), states))
    if rng.random() < 0.5:
        items += _daemon_set(states)
    spec = _spec(rng, names)
    for item in items:
        if item["kind"] == "PodDisruptionBudget":
            _count(item, items)
    fleet = Fleet(items, states, spec)
    if not fleet.selected:
        spec["selector"] = "pool"
        spec.pop("exclude", None)
    return fleet


def odd_fleet(seed: int) -> Fleet:
    """The fleet of that seed with what few fleets have: nodes that are replaced, Jobs and pods that
    have ended, a control plane, a gate, windows of several kinds."""
    rng, fleet = random.Random(f"odd fleets {seed}"), random_fleet(seed)
    items, states, spec = fleet
    if rng.random() < 0.4:
        spec["work"] = {"mode": "replace"} | rng.choice([{}, {"command": "-"}])
        spec["target"] = rng.choice([spec["target"], []])
    if rng.random() < 0.4:
        _add_control_plane(rng, items, states)
        spec["includeControlPlane"] = rng.random() < 0.7
    for number in range(rng.choice([0, 1, 2])):
        items += _job(rng, f"j{number}", states)
    if rng.random() < 0.5:
        items += _ended(rng, states)
    if rng.random() < 0.3:
        spec["gate"] = "true"
    if rng.random() < 0.25:
        spec["window"] = rng.choice(OVERLAPPING)
    return fleet


def is_control_plane(node: Document) -> bool:
    """True if its label says so."""
    return CONTROL_PLANE in node["metadata"]["labels"]


def _add_control_plane(rng: random.Random, items: list[Document], states: dict[str, str]) -> None:
    """One to four nodes more, mostly well, on which no pods but daemons run."""
    zones = sorted({name[0] for name in states})
    for number in range(rng.choice([1, 2, 3, 3, 4])):
        name = f"{rng.choice(zones)}{number + 6}"
        states[name] = rng.choice(["ok", "ok", "ok", "ok", "there", "cordoned", "sick"])
        made = _node(name, states[name], "blue", "8")
        made[0]["metadata"]["labels"][CONTROL_PLANE] = ""
        taint = {"key": CONTROL_PLANE, "effect": "NoSchedule"}
        made[0]["spec"]["taints"] = [*made[0]["spec"].get("taints", ()), taint]
        items += made


def _job(rng: random.Random, name: str, states: dict[str, str]) -> list[Document]:
    """A Job, with its pods at work, or ended."""
    homes = [n for n, state in states.items() if state == "ok"] or [*states]
    count = rng.choice([1, 2])
    spec: Document = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    job = build.workload("Job", name, 0, template=template, completions=count, parallelism=count)
    owner = objects.owner("Job", name, uid=f"uid-Job-{name}")
    meta = {"labels": {"app": name}, "ownerReferences": [owner], "generateName": f"{name}-"}
    pods = [
        _pod(rng, f"{name}-{number}", rng.choice(homes), states, metadata=meta, spec=spec)
        for number in range(count)
    ]
    return [job, *pods]


def _ended(rng: random.Random, states: dict[str, str]) -> list[Document]:
    """Pods that have run to their end, or failed, without an owner."""
    made = []
    for number in range(rng.choice([1, 2])):
        pod = _pod(rng, f"ended{number}", rng.choice([*states]), states)
        ended = {"type": "Ready", "status": "False", "reason": "PodCompleted"}
        phase = rng.choice(["Succeeded", "Failed"])
        pod["status"] |= {"phase": phase, "conditions": [ended]}
        made.append(pod)
    return made


def _node(name: str, state: str, pool: str, cpu: str) -> list[Document]:
    labels = {"kubernetes.io/hostname": name, "pool": pool}
    meta: Document = {"labels": labels, "uid": f"u{name}", "creationTimestamp": build.CREATED}
    spec: Document = {}
    status: Document = {"nodeInfo": {"kubeletVersion": "v1.35.0", "bootID": f"boot-{name}"}}
    seen = "2026-01-01T00:59:55Z"
    if state in ("cordoned", "failed"):
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        spec |= {"unschedulable": True, "taints": [taint]}
    if state == "failed":
        mark = {"run": "r0", "epoch": 1, "state": "Failed", "cordon": "ours", "reason": "x"}
        meta["annotations"] = {"nodelife.dev/upgrade": json.dumps(mark)}
    if state in ("lost", "sick"):
        seen = "2026-01-01T00:05:00Z" if state == "lost" else seen
        key = objects.UNREACHABLE if state == "lost" else objects.NOT_READY
        ready = {"type": "Ready", "status": "Unknown" if state == "lost" else "False"}
        ready |= {"reason": "x", "lastTransitionTime": "2026-01-01T00:06:00Z"}
        status["conditions"] = [{**ready, "lastHeartbeatTime": seen}]
        since = {"timeAdded": "2026-01-01T00:06:00Z"}
        both = [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        spec["taints"] = [{**taint, **since} for taint in both]
    if state == "held":
        labels["nodelife.dev/upgrade-hold"] = ""
    if state == "deleting":
        key = "ToBeDeletedByClusterAutoscaler"
        spec["taints"] = [{"key": key, "value": "1", "effect": "NoSchedule"}]
    if state == "there":
        status["nodeInfo"]["kubeletVersion"] = TARGET.partition("=")[2]
    about = {"metadata": meta, "spec": spec, "status": status}
    return build.node(name, zone=name[0], cpu=cpu, lease=seen, **about)


def _pod(rng: random.Random, name: str, on: str, states: dict[str, str], **more: Any) -> Document:
    """A pod that is Ready where its node is."""
    grace = rng.choice([2, 30, 30, 120])
    pod = build.pod(name, on, ready=states[on] not in ("lost", "sick"), grace=grace, **more)
    pod["spec"]["tolerations"] = [
        objects.toleration(key, seconds=300) for key in (objects.NOT_READY, objects.UNREACHABLE)
    ]
    pod["metadata"]["uid"] = f"u{name}"
    return pod


def _workload(rng: random.Random, name: str, states: dict[str, str]) -> list[Document]:
    kind = rng.choice(["ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet"])
    homes = [n for n, state in states.items() if state not in ("lost", "sick")] or [*states]
    places = [rng.choice([*homes, *states]) for _ in range(rng.choice([1, 2, 3, 4, 6]))]
    owner = objects.owner(kind, name, uid=f"uid-{kind}-{name}")
    meta = {"labels": {"app": name}, "ownerReferences": [owner], "generateName": f"{name}-"}
    request = rng.choice(["100m", "500m", "1500m"])
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": request}}}
    spec: Document = {"containers": [container]}
    if rng.random() < 0.15:
        spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    made = [build.workload(kind, name, len(places), template=template)]
    for number, on in enumerate(places):
        made.append(_pod(rng, f"{name}-{number}", on, states, metadata=meta, spec=spec))
    if rng.random() < 0.5:
        limit = rng.choice([{"minAvailable": len(places)}, {"maxUnavailable": 1}])
        limit = rng.choice([limit, {"maxUnavailable": 1}, {"minAvailable": "50%"}])
        made.append(objects.budget(name, metadata={"generation": 1}, **limit))
    return made


def _count(budget: Document, items: list[Document]) -> None:
    """The status that the disruption controller has written."""
    app, spec = budget["metadata"]["name"], budget["spec"]
    pods = [i for i in items if i["kind"] == "Pod" and i["metadata"]["labels"]["app"] == app]
    expected, healthy = len(pods), sum(map(is_ready, pods))
    if "maxUnavailable" in spec:
        desired = max(0, expected - spec["maxUnavailable"])
    elif spec["minAvailable"] == "50%":
        desired = -(-expected // 2)
    else:
        desired = spec["minAvailable"]
    counts = {"healthy": healthy, "desired": desired, "expected": expected}
    budget["status"] = build.budget(app, app, **counts)["status"]


def is_ready(thing: Document) -> bool:
    """True if the pod or node says so of itself."""
    ready = [c["status"] for c in thing["status"]["conditions"] if c["type"] == "Ready"]
    return ready == ["True"]


def _daemon_set(states: dict[str, str]) -> list[Document]:
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"metadata": {"labels": {"app": "cni"}}, "spec": spec}
    made = [build.workload("DaemonSet", "cni", 0, template=template)]
    owner = objects.owner("DaemonSet", "cni", uid="uid-DaemonSet-cni")
    for name, state in states.items():
        meta = {"labels": {"app": "cni"}, "ownerReferences": [owner], "uid": f"ucni-{name}"}
        ready = state not in ("lost", "sick")
        made.append(build.pod(f"cni-{name}", name, ready=ready, metadata=meta, spec=spec))
    return made


def _spec(rng: random.Random, names: list[str]) -> Document:
    spec: Document = {
        "selector": rng.choice(["pool=blue", "pool=blue", "pool"]),
        "target": [TARGET],
        "maxUnavailable": rng.choice([1, 2, 3, "10%", "25%", "50%"]),
        "soak": rng.choice(["1m", "5m"]),
        "nodeSoak": "20s",
        "allowDarkZone": rng.random() < 0.7,
        "drainTimeout": rng.choice(["4m", "15m"]),
        "work": {"mode": rng.choice(["run", "run", "wait"])},
    }
    if spec["work"]["mode"] == "run":
        spec["work"] |= {"command": "-", "rerunSafe": True}
    if rng.random() < 0.15:
        spec |= {"target": [], "work": {"mode": "nothing"}}
    sometimes: dict[str, Any] = {
        "minAvailable": rng.choice(["50%", "80%", 2]),
        "maxPerZone": 1,
        "maxParallel": rng.choice([1, 2]),
        "canary": 2,
        "zones": rng.choice([0, 2]),
        "includeCordoned": True,
        "exclude": rng.choice(names),
        "unhealthy": "include",
        "lowWater": rng.choice([0, 40]),
        "window": rng.choice(WINDOWS),
        "drain": rng.choice([{"force": True}, {"deleteEmptydirData": True}]),
        "clusterMinAvailable": "50%",
    }
    spec |= {key: value for key, value in sometimes.items() if rng.random() < 0.2}
    if rng.random() < 0.7:
        spec["expectWork"] = rng.choice(["1m", "3m", "10m"])
    return spec
