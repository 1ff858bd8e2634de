"""A random but meaningful Scenario, decided by a seed: outages, taints, roll-outs, deletions.

    python -m tests.real_code.generator SEED [PROFILE]

Nothing is put on the very instant of a monitor pass, so that chance does not decide: lease renewals
and events lie in the middle of a monitor period (passes drift by 1 ms each), and tolerationSeconds
are no multiples of it.
"""

import json
import random
import sys
from typing import Any

from kubectl_nodelife.engine.settings import parse_profile
from tests.objects import manifest
from tests.real_code.lease_troubles import lease_troubles
from tests.real_code.workload_scenario import NO_LIMIT, RELEASE

Json = dict[str, Any]

OWN = "node.kubernetes.io/"
KEYS = ("dedicated", "maintenance", "gpu")
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
PRESSURES = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
    "DiskPressure": ("KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
}
READY_REASONS = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}
MIRRORS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
}
POD_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
NODES = {"tiny": (1, 3), "small": (2, 8), "medium": (6, 15), "large": (15, 30)}
PODS = {"tiny": (0, 8), "small": (0, 25), "medium": (5, 60), "large": (20, 150)}


def generate(seed: int, profile: str = RELEASE) -> Json:
    """The scenario of a seed."""
    return Generator(seed, profile).document()


def with_failing_writes(seed: int, controller: str) -> Json:
    """The same, and some of the controller's writes are refused."""
    made = Generator(seed, RELEASE)
    document = made.document()
    document["spec"]["failingWrites"] = made.failing_writes(controller)
    return document


class Generator:
    """The choices of one scenario; times in seconds."""

    def __init__(self, seed: int, profile: str) -> None:
        self.seed, self.profile = seed, profile
        self.reads_leases = parse_profile(profile).has("lease_circuit_breaker")
        self.chance = chance = random.Random(seed)
        self.size = chance.choices(list(NODES), [30, 35, 25, 10])[0]
        self.zones = ["a", "b", "c", "d"][: chance.choices([1, 2, 3, 4], [35, 30, 25, 10])[0]]
        lengths = [chance.uniform(5, 8), chance.uniform(8, 20), chance.uniform(20, 60)]
        minutes = chance.choices(lengths, [45, 40, 15])[0]
        self.period = 5 if minutes > 22 else chance.choice([2, 3, 5, 5])
        self.duration = int(minutes * 60)
        drift = self.duration / self.period * 0.001
        self.low = min(0.45 * self.period, drift + 0.1 * self.period)
        self.high = 0.85 * self.period
        self.renew = self.period * chance.choice([1, 2] if self.period >= 5 else [2, 3, 4])
        count = chance.randint(*NODES[self.size])
        self.names = [
            f"{self.zones[i % len(self.zones)]}{i // len(self.zones) + 1}" for i in range(count)
        ]
        self.zone_of = {name: name[0] for name in self.names}
        self.alive = set(self.names)
        self.pods: list[Json] = []
        self.objects: list[Json] = []
        self.events: list[Json] = []

    def document(self) -> Json:
        """All of it."""
        flags = self.flags()
        self.cluster()
        self.daemon_sets()
        self.outages()
        for _ in range(self.weighted({0: 15, 1: 25, 3: 30, 6: 20, 12: 10})):
            self.incident()
        return {
            "apiVersion": "nodelife.dev/v1alpha1",
            "kind": "Scenario",
            "metadata": {"name": f"seed-{self.seed}"},
            "spec": {
                "profile": self.profile,
                "flags": flags,
                "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
                "duration": f"{self.duration}s",
                "kubelet": self.kubelet(),
                "objects": self.objects,
                "failingReads": lease_troubles(self) if self.reads_leases else [],
                "events": self.told_apart(),  # last: it takes what the rest has added
            },
        }

    # Choices

    def weighted(self, weights: dict[int, int]) -> int:
        """One of the keys, by its weight."""
        return self.chance.choices(list(weights), list(weights.values()))[0]

    def instant(self, earliest: float, latest: float) -> float:
        """Between the two, in the middle of a monitor period."""
        first = int(earliest // self.period)
        k = self.chance.randint(first, max(first, int(latest // self.period) - 1))
        return round(k * self.period + self.chance.uniform(self.low, self.high), 2)

    def seconds(self, least: int, most: int) -> int:
        """Of a toleration: no multiple of the period."""
        seconds = self.chance.randint(least, most)
        return seconds + 1 if seconds % self.period == 0 else seconds

    def at(self, instant: float, **what: Any) -> None:
        """An event, unless it would come too late to be judged."""
        if instant < self.duration - 1:
            self.events.append({"at": f"{instant:g}s", **what})

    # Settings

    def flags(self) -> Json:
        """Flags of the controllers; a grace period is longer than two renewals."""
        chance, period = self.chance, self.period
        periods = chance.choice([4, 6, 8, 10, 13]) + (0 if chance.random() < 0.15 else 0.5)
        while periods * period < 2.2 * self.renew:
            periods += 2
        flags = {
            "node-monitor-period": f"{period}s",
            "node-monitor-grace-period": f"{periods * period:g}s",
            "node-startup-grace-period": f"{(chance.choice([6, 12, 20]) + 0.5) * period:g}s",
            **NO_LIMIT,
            "node-eviction-rate": chance.choice(["0.1", "0.1", "0.5", "1", "0.03", "0.2", "5"]),
            "secondary-node-eviction-rate": chance.choice(["0.01", "0.05", "0.1", "0", "0.2"]),
            "large-cluster-size-threshold": str(chance.choice([50, 50, 2, 3, 5, 8, 0])),
            "unhealthy-zone-threshold": chance.choice(["0.55", "0.55", "0.3", "0.5", "0.75", "1"]),
            "default-not-ready-toleration-seconds": str(self.seconds(20, 90)),
            "default-unreachable-toleration-seconds": str(self.seconds(20, 90)),
        }
        if chance.random() < 0.1:
            flags["terminated-pod-gc-threshold"] = str(chance.choice([1, 2, 5]))
        return flags

    def kubelet(self) -> Json:
        """How kubelets behave."""
        chance = self.chance
        kubelet = {
            "leaseRenewInterval": f"{self.renew}s",
            "leaseRenewPhase": f"{round(chance.uniform(self.low, self.high), 2)}s",
            "nodeStatusReportInterval": f"{self.renew * chance.choice([3, 6, 30])}s",
            "podStartDuration": chance.choice(["2s", "700ms", "5.5s", "13s"]),
        }
        if chance.random() < 0.6:
            kubelet["podStopDuration"] = chance.choice(["1.2s", "300ms", "4.4s", "17.7s"])
        return kubelet

    def failing_writes(self, controller: str) -> list[Json]:
        """The first so many writes of the controller are refused, or all of some time.

        Of node-lifecycle only those of pods: a node that its workers could not write is tried again
        in the next pass here (docs/deviations.md).
        """
        chance, entries = self.chance, []
        for _ in range(chance.choice([1, 1, 2])):
            entry: Json = {"controller": controller}
            if controller == "node-lifecycle":
                entry["kind"] = "Pod"
            entry["code"] = chance.choice([403, 409, 422, 429, 500, 503])
            if chance.random() < 0.5:
                entry["times"] = chance.choice([1, 2, 3, 5, 8, 20])
            else:
                begin = self.instant(0, self.duration * 0.6)
                end = self.instant(begin + self.period, begin + 60)
                entry |= {"from": f"{begin:g}s", "until": f"{end:g}s"}
            entries.append(entry)
        return entries

    # Objects

    def toleration(self) -> Json:
        """Of a taint that may come, or of all."""
        chance, toleration = self.chance, {"operator": "Exists"}
        effect = chance.choice(["NoExecute", "NoExecute", "NoExecute", ""])
        dice = chance.random()
        if dice < 0.3:
            toleration["key"] = OWN + chance.choice(["not-ready", "unreachable"])
        elif dice < 0.7:
            toleration["key"] = chance.choice(KEYS)
            if chance.random() < 0.5:
                value = chance.choice(["x", "y", ""])
                toleration |= {"operator": "Equal"} | ({"value": value} if value else {})
        elif dice < 0.8:
            keys = ["out-of-service", "disk-pressure", "unschedulable"]
            toleration["key"] = OWN + chance.choice(keys)
        if effect:
            toleration["effect"] = effect
        if effect == "NoExecute" and chance.random() < 0.65:
            none = chance.random() < 0.08
            toleration["tolerationSeconds"] = (
                chance.choice([0, -5]) if none else self.seconds(3, 150)
            )
        return toleration

    def tolerations(self) -> list[Json]:
        """Of a pod."""
        chance, tolerations = self.chance, []
        dice = chance.random()
        if dice < 0.25:
            return []
        if dice < 0.6:
            usual = self.seconds(5, 200)
            tolerations = [
                {
                    "key": OWN + key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": usual if chance.random() < 0.8 else self.seconds(5, 200),
                }
                for key in ("not-ready", "unreachable")
            ]
        elif dice < 0.7:
            tolerations = [{"operator": "Exists"}]
        return tolerations + [self.toleration() for _ in range(chance.choice([0, 0, 1, 1, 2, 3]))]

    def node(self, name: str, zone: str, ready: str | None = "True") -> Json:
        """A node; `ready` None: without a status."""
        chance = self.chance
        spec: Json = {}
        taints = []
        if chance.random() < 0.12:
            effect = chance.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
            taints.append(
                {"key": chance.choice(KEYS), "value": chance.choice(["x", "y"]), "effect": effect}
            )
        if chance.random() < 0.04:
            key = OWN + chance.choice(["unreachable", "not-ready"])
            taints.append({"key": key, "effect": chance.choice(["NoExecute", "NoSchedule"])})
        if chance.random() < 0.06:
            spec["unschedulable"] = True
        made: Json = manifest("Node", name, labels=self.labels(name, zone), spec=spec)
        if ready is not None:
            conditions = self.conditions(ready)
            made["status"] = {"conditions": conditions}
            taints += self.mirrors(conditions, spec, taints)
        if taints:
            spec["taints"] = taints
        return made

    def labels(self, name: str, zone: str) -> dict[str, str]:
        """Of a node; a zone keeps nodes that count."""
        chance = self.chance
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "pool": chance.choice(["x", "y"]),
        }
        if chance.random() < 0.95:
            labels[ZONE] = zone
            if chance.random() < 0.9:
                labels[REGION] = "r1"
        if chance.random() < 0.3:
            labels["beta.kubernetes.io/os"] = "linux"
            labels["beta.kubernetes.io/arch"] = chance.choice(["amd64", "arm64"])
        if chance.random() < 0.04 and name[1:] not in ("1", "2") and REGION in labels:
            labels["node.kubernetes.io/exclude-disruption"] = ""
        return labels

    def conditions(self, ready: str) -> list[Json]:
        """Of a node that has a status."""
        chance = self.chance
        told = [("Ready", ready, READY_REASONS[ready])]
        for type_, (trouble, fine) in PRESSURES.items():
            bad = ready == "True" and chance.random() < 0.03
            if chance.random() < 0.97:
                told.append((type_, str(bad), trouble if bad else fine))
        if chance.random() < 0.2:
            told.append(("NetworkUnavailable", "False", "RouteCreated"))
        return [{"type": t, "status": s, "reason": r, "message": ""} for t, s, r in told]

    def mirrors(self, conditions: list[Json], spec: Json, taints: list[Json]) -> list[Json]:
        """The NoSchedule taints that go with conditions and cordon, as the controller left them."""
        wanted = [MIRRORS.get((c["type"], c["status"]), "") for c in conditions]
        wanted += ["unschedulable"] if spec.get("unschedulable") else []
        present = {t["key"] for t in taints if t["effect"] == "NoSchedule"}
        keys = [OWN + key for key in wanted if key]
        return [{"key": key, "effect": "NoSchedule"} for key in keys if key not in present]

    def pod(self, node: str, *, fresh: bool = False) -> Json:
        """A pod on the node; `fresh`: it is yet to start."""
        chance = self.chance
        made: Json = manifest(
            "Pod",
            f"p{len(self.pods) + 1}",
            chance.choice(["default", "default", "web"]),
            labels={"app": chance.choice(["a", "b"])},
            spec={
                "nodeName": node,
                "containers": [{"name": "c", "image": "registry.example/app:1"}],
                "terminationGracePeriodSeconds": chance.choice([30, 30, 30, 1, 7, 60, 0]),
                "tolerations": self.tolerations(),
            },
        )
        if not fresh:
            dice = chance.random()
            phase = "Running" if dice < 0.94 else chance.choice(["Succeeded", "Failed", "Running"])
            ready = str(dice < 0.85 and phase == "Running")
            made["status"] = {
                "phase": phase,
                "conditions": [
                    {
                        "type": type_,
                        "status": ready if type_ in ("Ready", "ContainersReady") else "True",
                        "lastTransitionTime": "2025-12-31T23:00:00Z",
                    }
                    for type_ in POD_CONDITIONS
                ],
            }
        self.pods.append(made)
        return made

    def daemon_set(self, name: str) -> Json:
        """A DaemonSet with some update strategy."""
        chance = self.chance
        pod: Json = {
            "containers": [{"name": "c", "image": "registry.example/agent:1"}],
            "terminationGracePeriodSeconds": chance.choice([1, 5, 30]),
        }
        if chance.random() < 0.4:
            tolerations = [self.toleration() for _ in range(chance.choice([1, 2]))]
            pod["tolerations"] = [
                t for t in tolerations if "tolerationSeconds" not in t or chance.random() < 0.3
            ]
        if chance.random() < 0.2:
            pod["nodeSelector"] = {"pool": chance.choice(["x", "y"])}
        dice = chance.random()
        strategy: Json = {"type": "OnDelete" if dice < 0.12 else "RollingUpdate"}
        if dice > 0.8:
            surge = chance.choice([1, 2, "25%"])
            strategy["rollingUpdate"] = {"maxSurge": surge, "maxUnavailable": 0}
        elif dice >= 0.3:
            most = chance.choice([1, 1, 2, 3, "30%", "50%", "100%"])
            strategy["rollingUpdate"] = {"maxUnavailable": most}
        labels = {"ds": name}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": chance.choice(["default", "kube-system"])},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
                "updateStrategy": strategy,
                "minReadySeconds": chance.choice([0, 0, 0, 3, 10, 30]),
                "revisionHistoryLimit": chance.choice([10, 2, 1, 0]),
            },
        }

    def cluster(self) -> None:
        """Nodes and pods at t=0."""
        chance = self.chance
        for name in self.names:
            well = chance.random() < 0.93
            ready = "True" if well else chance.choice(["False", "Unknown", None])
            self.objects.append(self.node(name, name[0], ready))
        for _ in range(chance.randint(*PODS[self.size])):
            node = chance.choice(self.names) if chance.random() < 0.98 else "ghost"
            self.objects.append(self.pod(node))

    # Events

    def daemon_sets(self) -> None:
        """DaemonSets, there at t=0 or later, and what becomes of them."""
        for i in range(self.weighted({0: 30, 1: 30, 2: 20, 3: 15, 6: 5})):
            made, born = self.daemon_set(f"ds{i + 1}"), 0.0
            if self.chance.random() < 0.5:
                self.objects.append(made)
            else:
                born = self.instant(0, self.duration * 0.3)
                self.at(born, apply=made)
            self.roll_outs(made, born)

    def roll_outs(self, made: Json, born: float) -> None:
        """Changes of a DaemonSet until, perhaps, it goes."""
        chance, at, image = self.chance, born, 1
        for _ in range(self.weighted({0: 25, 1: 30, 2: 20, 3: 15, 5: 10})):
            at = self.instant(at + self.period, at + self.duration * 0.4)
            dice = chance.random()
            if dice < 0.7:
                image = chance.choice([image + 1, image + 1, max(1, image - 1), 1])
                container = {"name": "c", "image": f"registry.example/agent:{image}"}
                spec: Json = {"template": {"spec": {"containers": [container]}}}
            elif dice < 0.78:
                pool = {"pool": chance.choice(["x", "y"])}
                spec = {"template": {"spec": {"nodeSelector": pool}}}
            elif dice < 0.84:
                spec = {"minReadySeconds": chance.choice([0, 5, 20])}
            elif dice < 0.90:
                rolling = {"maxUnavailable": chance.choice([1, 2, "50%"]), "maxSurge": 0}
                spec = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
            elif dice < 0.95:
                meta = made["metadata"]
                self.at(at, delete={"kind": "DaemonSet", **meta})
                if chance.random() < 0.5:
                    self.at(self.instant(at + self.period, at + 60), apply=made)
                return
            else:
                spec = {"template": {"spec": {"tolerations": [self.toleration()]}}}
            self.at(at, apply={**made, "spec": spec})

    def outages(self) -> None:
        """Kubelets that fall silent, or say that their nodes are not well, and most come back."""
        chance = self.chance
        for _ in range(self.weighted({0: 8, 1: 27, 2: 25, 3: 20, 5: 12, 8: 8})):
            who = self.struck()
            if not who:
                continue
            begin = self.instant(0, self.duration * 0.8)
            lasts = [chance.uniform(10, 60), chance.uniform(40, 200), chance.uniform(100, 900)]
            end = begin + chance.choice(lasts)
            comes_back = chance.random() < 0.8
            if chance.random() < 0.25:
                bad = {"Ready": chance.choice(["False", "False", "False", "Unknown"])}
                if chance.random() < 0.25:
                    bad["NetworkUnavailable"] = "True"
                good = {c: str(c != "NetworkUnavailable") for c in bad}
                self.at(begin, kubelet={"nodes": who, "conditions": bad})
                if comes_back:
                    back = self.instant(end, end + self.period)
                    self.at(back, kubelet={"nodes": who, "conditions": good})
                continue
            self.at(begin, kubelet={"nodes": who, "heartbeats": "stop"})
            if comes_back:
                half = chance.sample(who, max(1, len(who) // 2))
                first = who if chance.random() < 0.6 else half
                back = self.instant(end, end + self.period)
                self.at(back, kubelet={"nodes": first, "heartbeats": "start"})
                if first is not who and chance.random() < 0.7:
                    rest = self.instant(end + 30, end + 300)
                    self.at(rest, kubelet={"nodes": who, "heartbeats": "start"})

    def struck(self) -> list[str]:
        """The nodes of an outage: one, a zone or part of it, all, some."""
        chance = self.chance
        dice = chance.random()
        if dice < 0.35:
            return [chance.choice(self.names)]
        if dice < 0.65:
            zone = chance.choice(self.zones)
            who = [n for n in self.names if self.zone_of[n] == zone]
            if who and chance.random() < 0.5:
                who = chance.sample(who, max(1, int(len(who) * chance.uniform(0.3, 0.9))))
            return who
        if dice < 0.75:
            return list(self.names)
        return chance.sample(self.names, chance.randint(1, max(1, len(self.names) // 2)))

    def incident(self) -> None:
        """What a person, or something, does to one node or pod."""
        chance = self.chance
        at = self.instant(0, self.duration * 0.9)
        name = chance.choice(self.names)
        dice = chance.random()
        if dice < 0.30:
            self.taint(at)
        elif dice < 0.36:
            own = OWN + chance.choice(["unreachable:NoExecute", "not-ready:NoExecute"])
            self.at(at, taint={"nodes": [name], "remove": [own]})
        elif dice < 0.46:
            self.at(at, cordon={"nodes": [name]})
            if chance.random() < 0.7:
                end = self.instant(at + self.period, at + 200)
                self.at(end, uncordon={"nodes": [name]})
        elif dice < 0.56:
            self.delete_node(at, name)
        elif dice < 0.62:
            self.new_node(at)
        elif dice < 0.72:
            self.at(at, apply=self.pod(name, fresh=True))
        elif dice < 0.80 and self.pods:
            meta = chance.choice(self.pods)["metadata"]
            gone = {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
            self.at(at, delete=gone)
        elif dice < 0.86:
            status = chance.choice(["True", "True", "Unknown", "False"])
            told = {chance.choice(list(PRESSURES)): status}
            self.at(at, kubelet={"nodes": [name], "conditions": told})
        elif dice < 0.95 and name in self.alive:
            self.relabel(at, name, pool_only=dice < 0.92)
        elif self.pods:
            self.tolerate_more(at, chance.choice(self.pods))

    def taint(self, at: float) -> None:
        """Somebody taints some nodes."""
        chance = self.chance
        key = chance.choice([*KEYS, OWN + "out-of-service"])
        if chance.random() < 0.1:
            key = OWN + chance.choice(["unreachable", "not-ready", "disk-pressure"])
        count = chance.choice([1, 1, 2, 4])
        who = chance.sample(self.names, min(count, len(self.names)))
        effects = ["NoExecute", "NoExecute", "NoExecute", "NoSchedule", "PreferNoSchedule"]
        effect = chance.choice(effects)
        value = chance.choice(["=x", "=y", ""])
        self.at(at, taint={"nodes": who, "add": [f"{key}{value}:{effect}"]})
        if chance.random() < 0.7:
            end = self.instant(at + self.period, at + 200)
            self.at(end, taint={"nodes": who, "remove": [f"{key}:{effect}"]})

    def delete_node(self, at: float, name: str) -> None:
        """A Node goes, and may come back under its name."""
        chance = self.chance
        if name not in self.alive:
            return
        self.alive.discard(name)
        self.at(at, delete={"kind": "Node", "name": name})
        if chance.random() < 0.5:
            ready = chance.choice(["True", "True", "False", None])
            again = self.node(name, chance.choice(self.zones), ready)
            self.at(self.instant(at + self.period, at + 150), apply=again)

    def new_node(self, at: float) -> None:
        """A Node comes, and may get a pod."""
        chance = self.chance
        name = f"n{len(self.names) + 1}"
        self.names.append(name)
        self.zone_of[name] = chance.choice(self.zones)
        ready = chance.choice(["True", "True", "True", "False", None])
        self.at(at, apply=self.node(name, self.zone_of[name], ready))
        if chance.random() < 0.6:
            soon = self.instant(at + self.period, at + 100)
            self.at(soon, apply=self.pod(name, fresh=True))

    def relabel(self, at: float, name: str, *, pool_only: bool) -> None:
        """Somebody changes a label of a node."""
        chance = self.chance
        labels = {"pool": chance.choice(["x", "y"])}
        if not pool_only:
            key = chance.choice([ZONE, "kubernetes.io/arch", "beta.kubernetes.io/arch"])
            labels = {key: chance.choice(self.zones)}
        meta = {"name": name, "labels": labels}
        self.at(at, apply={"apiVersion": "v1", "kind": "Node", "metadata": meta})

    def tolerate_more(self, at: float, pod: Json) -> None:
        """Somebody adds a toleration to a pod that is there."""
        if pod["spec"]["nodeName"] in self.alive:
            tolerations = [*pod["spec"]["tolerations"], self.toleration()]
            kept = {k: v for k, v in pod.items() if k != "status"}
            self.at(at, apply={**kept, "spec": {**pod["spec"], "tolerations": tolerations}})

    def told_apart(self) -> list[Json]:
        """The events in order, no two at one instant. A change of what is gone would be the making
        of a part of it, and is left out.
        """
        taken: set[float] = set()
        for event in self.events:
            at = float(event["at"][:-1])
            while round(at, 2) in taken:
                at += 0.03
            taken.add(round(at, 2))
            event["at"] = f"{at:g}s"
        kept, gone = [], set()
        for event in sorted(self.events, key=lambda e: float(e["at"][:-1])):
            if "delete" in event:
                gone.add((event["delete"]["kind"], event["delete"]["name"]))
            applied = event.get("apply")
            if applied is None or _is_whole(applied) or _name_of(applied) not in gone:
                kept.append(event)
        return kept


def _is_whole(applied: Json) -> bool:
    """True if it makes the object, rather than change a part of it."""
    if applied["kind"] == "DaemonSet":
        return "selector" in applied["spec"]
    return applied["kind"] == "Node" and "spec" in applied


def _name_of(applied: Json) -> tuple[str, str]:
    return applied["kind"], applied["metadata"]["name"]


if __name__ == "__main__":
    print(json.dumps(generate(int(sys.argv[1]), *sys.argv[2:]), indent=1))
