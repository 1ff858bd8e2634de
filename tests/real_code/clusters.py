"""Clusters made from a seed, with pods that wait for a node, and what both schedulers do."""

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.preemption import NEVER, Preemption
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.real_code.workload_scenario import scenario
from tests.simulating import begin

Json = dict[str, Any]

_ZONES = ("a", "b", "c")
_APPS = ("web", "db", "cache")
_PENDING = 4


def generate(seed: int) -> list[Json]:
    """Nodes, pods on them, pods without a node, and what they refer to."""
    return _Maker(random.Random(seed)).objects()


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = [f"n{i}" for i in range(chance.choice([2, 3, 5, 8, 12]))]
        self.starts = chance.sample(range(600), k=100)
        self.unstarted = chance.choice([0, -1])
        self.tight = chance.random() < 0.5
        self.keys = [LABEL_ZONE, LABEL_HOST] + (["rack"] if chance.random() < 0.3 else [])
        self.affine = chance.random() < 0.5
        self.spread = chance.random() < 0.5
        self.soft = chance.random() < 0.4
        self.ports = chance.random() < 0.2
        self.volumes = chance.random() < 0.2

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def objects(self) -> list[Json]:
        found = [_object("Namespace", name, labels={"team": name}) for name in ("default", "other")]
        found += [self.node(name) for name in self.names]
        found += [self.pod(f"p{i}", self.chance.choice(self.names)) for i in range(self.count())]
        _free_ports(found)
        found += [self.pod(f"w{i}", None) for i in range(_PENDING)]
        found += [self.budget(f"b{i}") for i in range(self.chance.choice([0, 0, 1, 2]))]
        found += list(self.owners())
        if self.volumes:
            found += list(self.storage())
        return found

    def count(self) -> int:
        return len(self.names) * self.chance.choice([1, 2, 4, 6])

    def node(self, name: str) -> Json:
        labels = {LABEL_HOST: name}
        for key in self.keys:
            if key != LABEL_HOST and self.often(0.9):
                labels[key] = self.chance.choice(_ZONES)
        if self.often(0.5):
            labels["disk"] = self.chance.choice(["ssd", "hdd"])
        spec: Json = {}
        if self.often(0.1):
            spec["unschedulable"] = True
        if self.often(0.3):
            spec["taints"] = [
                {"key": key, "value": self.chance.choice("xy"), "effect": effect}
                for key, effect in self.chance.sample(_TAINTS, k=self.chance.choice([1, 1, 2]))
            ]
        allocatable = {
            "cpu": self.chance.choice(["1", "2", "2", "4"]),
            "memory": self.chance.choice(["2Gi", "4Gi", "4Gi", "7Gi"]),
            "pods": self.chance.choice(["4", "8", "110", "110"]),
        }
        if self.often(0.2):
            allocatable["example.com/gpu"] = self.chance.choice(["1", "2"])
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [ready], "allocatable": allocatable, "capacity": allocatable}
        return _object("Node", name, labels=labels) | {"spec": spec, "status": status}

    def pod(self, name: str, node: str | None) -> Json:
        app = self.chance.choice(_APPS)
        labels = {"app": app}
        if self.often(0.3):
            labels["rev"] = self.chance.choice("12")
        pod = _object("Pod", name, self.chance.choice(["default"] * 4 + ["other"]), labels)
        meta = pod["metadata"]
        if self.often(0.6):
            meta["ownerReferences"] = [_owner(app)]
        if node is not None and self.often(0.07):
            meta["deletionTimestamp"] = "2026-01-01T00:00:20Z"
            meta["deletionGracePeriodSeconds"] = 30
        spec: Json = {"containers": self.containers(), "schedulerName": "default-scheduler"}
        if self.often(0.1):
            spec["initContainers"] = [self.container("init")]
            if self.often(0.5):
                spec["initContainers"][0]["restartPolicy"] = "Always"
        if self.often(0.5):
            spec["priority"] = self.chance.choice([-10, 0, 0, 10, 100])
            if self.often(0.1):
                spec["preemptionPolicy"] = NEVER
        if self.often(0.4):
            spec["tolerations"] = [self.toleration() for _ in range(self.chance.choice([1, 2]))]
        if self.often(0.15):
            spec["nodeSelector"] = {"disk": self.chance.choice(["ssd", "hdd"])}
        affinity = self.affinity()
        if affinity:
            spec["affinity"] = affinity
        if self.spread and self.often(0.4):
            spec["topologySpreadConstraints"] = [
                self.constraint(key)
                for key in self.chance.sample(self.keys, k=self.chance.choice([1, 1, 2]))
            ]
        if self.volumes and self.often(0.3):
            claim = {"claimName": f"c{self.chance.randrange(4)}"}
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
        if node is not None:
            spec["nodeName"] = node
        return pod | {"spec": spec, "status": self.status(name, node)}

    def status(self, name: str, node: str | None) -> Json:
        if node is None:
            return {"nominatedNodeName": self.chance.choice(self.names)} if self.often(0.1) else {}
        number = int(name[1:])
        phase = self.chance.choice(["Running"] * 9 + ["Succeeded"])
        ready = "True" if self.often(0.9) and phase == "Running" else "False"
        status: Json = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        if number != self.unstarted:  # all start apart: of equal ones it is chance who goes
            minute, second = divmod(self.starts[number], 60)
            status["startTime"] = f"2026-01-01T00:{minute:02}:{second:02}Z"
        return status

    def containers(self) -> list[Json]:
        return [self.container(f"c{i}") for i in range(self.chance.choice([1, 1, 1, 2]))]

    def container(self, name: str) -> Json:
        requests = {}
        if self.often(0.8):
            choices = ["500m", "700m", "1", "1500m"] if self.tight else ["50m", "100m", "300m"]
            requests["cpu"] = self.chance.choice(choices)
        if self.often(0.6):
            requests["memory"] = self.chance.choice(["64Mi", "300Mi", "1Gi"])
        if self.often(0.05):
            requests["example.com/gpu"] = "1"
        container: Json = {"name": name, "image": "app:1", "resources": {"requests": requests}}
        if self.ports and self.often(0.3):
            port: Json = {"containerPort": 80, "hostPort": self.chance.choice([80, 81])}
            port["protocol"] = self.chance.choice(["TCP", "TCP", "UDP"])
            if self.often(0.4):
                port["hostIP"] = self.chance.choice(["127.0.0.1", "10.0.0.1", "0.0.0.0"])
            container["ports"] = [port]
        return container

    def toleration(self) -> Json:
        key, effect = self.chance.choice(_TAINTS)
        if self.often(0.1):
            return {"operator": "Exists"}
        toleration: Json = {"key": key, "operator": self.chance.choice(["Exists", "Equal"])}
        if toleration["operator"] == "Equal":
            toleration["value"] = self.chance.choice("xy")
        if self.often(0.8):
            toleration["effect"] = effect
        return toleration

    def affinity(self) -> Json:
        found: Json = {}
        if self.often(0.2):
            found["nodeAffinity"] = {}
            if self.often(0.6):
                terms = [self.node_term() for _ in range(self.chance.choice([1, 2]))]
                found["nodeAffinity"][_REQUIRED] = {"nodeSelectorTerms": terms}
            if self.often(0.6):
                found["nodeAffinity"][_PREFERRED] = [
                    {"weight": self.chance.choice([1, 10, 50]), "preference": self.node_term()}
                    for _ in range(self.chance.choice([1, 2]))
                ]
        for kind in ("podAffinity", "podAntiAffinity") if self.affine else ():
            if self.often(0.15):
                found.setdefault(kind, {})[_REQUIRED] = [self.pod_term()]
            if self.soft and self.often(0.3):
                found.setdefault(kind, {})[_PREFERRED] = [
                    {"weight": self.chance.choice([1, 10, 50]), "podAffinityTerm": self.pod_term()}
                    for _ in range(self.chance.choice([1, 2]))
                ]
        return found

    def node_term(self) -> Json:
        operator = self.chance.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        expression: Json = {"key": self.chance.choice(["disk", LABEL_ZONE]), "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = self.chance.sample([*_ZONES, "ssd"], k=2)
        if self.often(0.1):
            field = {"key": "metadata.name", "operator": "In", "values": [self.names[0]]}
            return {"matchFields": [field]}
        return {"matchExpressions": [expression]}

    def pod_term(self) -> Json:
        term: Json = {
            "topologyKey": self.chance.choice(self.keys),
            "labelSelector": self.selector(),
        }
        if self.often(0.2):
            term["namespaces"] = [self.chance.choice(["default", "other"])]
        elif self.often(0.2):
            team = self.chance.choice([{}, {"matchLabels": {"team": "other"}}])
            term["namespaceSelector"] = team
        return term

    def selector(self) -> Json:
        if self.often(0.1):
            expression = {"key": "rev", "operator": self.chance.choice(["Exists", "DoesNotExist"])}
            return {"matchExpressions": [expression]}
        return {} if self.often(0.05) else {"matchLabels": {"app": self.chance.choice(_APPS)}}

    def constraint(self, key: str) -> Json:
        soft = self.soft and self.often(0.5)
        found: Json = {
            "maxSkew": self.chance.choice([1, 1, 2]),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
            "labelSelector": self.selector(),
        }
        if self.often(0.2) and not soft:
            found["minDomains"] = self.chance.choice([1, 2, 4])
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.often(0.3):
                found[policy] = self.chance.choice(["Honor", "Ignore"])
        if self.often(0.15) and "matchLabels" in found["labelSelector"]:
            found["matchLabelKeys"] = ["rev"]
        return found

    def budget(self, name: str) -> Json:
        app = self.chance.choice(_APPS)
        spec = {
            "minAvailable": self.chance.choice([0, 1, 3]),
            "selector": {"matchLabels": {"app": app}},
        }
        return _object("PodDisruptionBudget", name, "default") | {"spec": spec}

    def owners(self) -> Iterator[Json]:
        for app in (*_APPS, "nobody's"):  # so that ReplicaSets count as read in all clusters
            if self.often(0.8) or app == "nobody's":
                labels = {"matchLabels": {"app": app}}
                template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": []}}
                owner = _object("ReplicaSet", app, "default")
                owner["metadata"]["uid"] = _owner(app)["uid"]
                yield owner | {"spec": {"selector": labels, "template": template, "replicas": 3}}
            if self.often(0.4):
                yield _object("Service", app, "default") | {"spec": {"selector": {"app": app}}}

    def storage(self) -> Iterator[Json]:
        waits = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": _WAITS}
        yield _object("StorageClass", "local") | waits
        for i in range(4):
            volume, spec = f"v{i}", {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
            spec["resources"] = {"requests": {"storage": "1Gi"}}
            bound = self.often(0.7)
            claim = _object("PersistentVolumeClaim", f"c{i}", "default")
            where = {
                "key": LABEL_HOST,
                "operator": "In",
                "values": [self.chance.choice(self.names)],
            }
            affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
            disk = {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": "local",
                "local": {"path": "/disk"},
                "nodeAffinity": affinity,
            }
            if bound:
                annotation = {"pv.kubernetes.io/bind-completed": "yes"}
                claim["metadata"]["annotations"] = annotation
                claim |= {"spec": spec | {"volumeName": volume}, "status": {"phase": "Bound"}}
                disk["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": "default"}
                disk["claimRef"] |= {"name": f"c{i}", "uid": claim["metadata"]["uid"]}
            else:
                claim |= {"spec": spec, "status": {"phase": "Pending"}}
            yield claim
            phase = {"phase": "Bound" if bound else "Available"}
            yield _object("PersistentVolume", volume) | {"spec": disk, "status": phase}


LABEL_ZONE, LABEL_HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WAITS = "WaitForFirstConsumer"
_TAINTS = [
    ("dedicated", "NoSchedule"),
    ("slow", "PreferNoSchedule"),
    ("old", "PreferNoSchedule"),
    ("leaving", "NoExecute"),
]
_VERSIONS = {
    "ReplicaSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "StorageClass": "storage.k8s.io/v1",
}


def _free_ports(objects: list[Json]) -> None:
    """Take away the host ports of pods whose node has such a port in use already."""
    used: set[tuple[str, str, int]] = set()
    for pod in objects:
        spec = pod.get("spec", {})
        for container in spec.get("containers", []) + spec.get("initContainers", []):
            for port in container.get("ports", []):
                taken = (spec["nodeName"], port["protocol"], port["hostPort"])
                if taken in used:
                    del container["ports"]
                used.add(taken)


def _owner(app: str) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": app,
        "uid": f"owner-{app}",
        "controller": True,
    }


def _object(
    kind: str, name: str, namespace: str = "", labels: Mapping[str, str] | None = None
) -> Json:
    made = "2026-01-01T00:00:00Z"
    uid = f"{kind}-{namespace}-{name}"
    meta: Json = {"name": name, "uid": uid, "creationTimestamp": made, "labels": labels or {}}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, "metadata": meta}


# --- both sides -----------------------------------------------------------------------------------


def ours(objects: list[Json]) -> Branch:
    """Our world of these objects, before anything happens in it."""
    document = scenario("clusters", 60, {}, {}, objects, [])
    document["spec"]["scheduler"] = "HighestScore"
    document["spec"]["time"] = "2026-01-01T00:15:00Z"
    return begin(assemble(parse_scenario(json.dumps(document).encode(), "clusters.json")))


def theirs(program: Path, clusters: list[list[Json]], folder: Path) -> list[dict[str, Json]]:
    """What the real scheduler says of each pod that waits, by namespace/name, for each cluster."""
    given, told = folder / "clusters.json", folder / "verdicts.json"
    given.write_text(json.dumps(clusters))
    done = subprocess.run([program, "-schedule", given, told], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[:2000])
    verdicts: list[dict[str, Json]] = json.loads(told.read_bytes())
    return verdicts


def with_budgets_of(branch: Branch, objects: list[Json]) -> list[Json]:
    """The objects with the budgets' statuses as our disruption controller has counted them."""
    found = []
    for given in objects:
        if given["kind"] == "PodDisruptionBudget":
            key = (given["metadata"]["namespace"], given["metadata"]["name"])
            budget = branch.world.api.store.get("PodDisruptionBudget", key)
            given = given | {"status": {"disruptionsAllowed": budget.status.disruptions_allowed}}
        found.append(given)
    return found


def differences(branch: Branch, verdicts: Mapping[str, Json]) -> Iterator[str]:
    """Where our scheduler's decision for a pod that waits is none of the real one's."""
    placement = branch.world.scheduler.placement
    preemption: Preemption = branch.world.agenda.parts[Preemption]
    for name, real in verdicts.items():
        pod: Pod = branch.world.api.store.pods[tuple(name.split("/"))]
        feasible = placement.candidates(pod, 1000)
        nominated = placement.nominated_node(pod)
        if nominated in feasible:
            feasible = [nominated]
        if sorted(feasible) != sorted(real["feasible"] or []):
            yield f"{name} fits on {sorted(feasible)}, really {real['feasible']}: {real['message']}"
            continue
        best = placement.best(pod)
        if sorted(best) != sorted(real["best"] or []):
            yield f"{name} goes to one of {best}, really {real['best']}: {real['scores']}"
        if feasible:
            continue
        why = f"{placement.no_room(pod)}."
        if why != real["message"]:
            yield f"{name} fits nowhere since {why}, really {real['message']}"
        chosen = preemption.choices(pod) if preemption.may_preempt(pod) else []
        victims = {c.node: sorted("/".join(v.key) for v in c.victims) for c in chosen}
        if victims != (real["victims"] or {}):
            yield f"{name} preempts {victims}, really {real['victims']}: {real['message']}"
