"""Random clusters in random weather: a scenario from a seed, and API faults from a seed.

Each scenario is a storm of some minutes (kubelets that fall silent, report trouble and return,
taints, cordons, deletions), then everything is put right, then there is calm.
"""

import random
from typing import Any

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.sim.failing_writes import InjectedFault
from kubectl_nodelife.sim.world import Faults
from tests import objects
from tests.sim.documents import Json, document, node, owner, pod

STORM_S = 240
CALM_S = 180

ANSWER_LOST = "the answer was lost"
"""The server did as it was told."""

PROFILES = ("v1.16", "v1.20", "v1.27", "v1.29", "v1.33", "v1.36")
KINDS = ("ReplicaSet", "StatefulSet", "Job", "")


def weather(seed: int) -> Json:
    """The scenario of a seed."""
    return _Weather(seed).scenario()


def stormy_faults(seed: int) -> Faults:
    """One call in eight goes wrong while the storm lasts."""
    dice = random.Random(seed)
    began: list[int] = []

    def fault(action: Action, now_ns: int) -> InjectedFault | None:
        began.append(now_ns) if not began else None
        if now_ns - began[0] > STORM_S * SECOND_NS or dice.random() > 1 / 8:
            return None
        delay_ns = dice.choice((0, 0, 300 * MILLISECOND_NS))
        if dice.random() < 0.3:
            return InjectedFault(500, ANSWER_LOST, applied=True, delay_ns=delay_ns)
        return InjectedFault(dice.choice((409, 429, 500)), delay_ns=delay_ns)

    return fault


class Storm:
    """What befalls the nodes and pods of a random cluster, which a subclass makes, by the dice."""

    storm_s: int
    zones: str
    weights: tuple[int, ...]
    """Of kubelets that stop, start and report, taint, untaint, cordon, a zone, a pod, a node."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.nodes: list[str] = []
        self.pods: list[str] = []
        self.removed: set[str] = set()

    def event(self) -> Json:
        """One of the storm's."""
        dice = self.dice
        at = {"at": f"{dice.randrange(1, self.storm_s * 10) / 10}s"}
        some = dice.sample(self.nodes, dice.randint(1, len(self.nodes)))
        what = dice.choices(
            ("stop", "start", "report", "taint", "untaint", "cordon", "zone", "pod", "node"),
            self.weights,
        )[0]
        match what:
            case "stop" | "start":
                return {**at, "kubelet": {"nodes": some, "heartbeats": what}}
            case "report":
                conditions = {"Ready": dice.choice(("True", "False")), "DiskPressure": "True"}
                return {**at, "kubelet": {"nodes": some, "conditions": conditions}}
            case "taint":
                return {**at, "taint": {"nodes": some, "add": ["storm=1:NoExecute"]}}
            case "untaint":
                return {**at, "taint": {"nodes": some, "remove": ["storm:NoExecute"]}}
            case "cordon":
                return {**at, dice.choice(("cordon", "uncordon")): {"nodes": some}}
            case "zone":
                selector = f"topology.kubernetes.io/zone={dice.choice(self.zones)}"
                return {**at, "kubelet": {"selector": selector, "heartbeats": "stop"}}
            case "pod":
                return {**at, "delete": {"kind": "Pod", "name": dice.choice(self.pods)}}
        self.removed.add(some[0])
        return {**at, "delete": {"kind": "Node", "name": some[0]}}

    def put_right(self) -> list[Json]:
        """What ends the storm."""
        at: dict[str, Any] = {"at": f"{self.storm_s}s"}
        well = {"Ready": "True", "DiskPressure": "False"}
        back = [{**at, "apply": node(name, name[0])} for name in sorted(self.removed)]
        return [
            *back,
            {**at, "kubelet": {"nodes": self.nodes, "conditions": well, "heartbeats": "start"}},
            {**at, "taint": {"nodes": self.nodes, "remove": ["storm:NoExecute"]}},
            {**at, "uncordon": {"nodes": self.nodes}},
        ]


def daemon_set() -> Json:
    """One of which each node runs a pod."""
    return objects.workload("DaemonSet", "agent", uid="")


class _Weather(Storm):
    storm_s, zones, weights = STORM_S, "abcd", (30, 20, 15, 8, 5, 5, 8, 5, 4)

    def scenario(self) -> Json:
        dice = self.dice
        objects = [*self._make_nodes(), *self._make_workloads()]
        if dice.random() < 0.6:
            objects.append(daemon_set())
        events = sorted(self._storm(), key=lambda e: float(e["at"][:-1]))
        return document(
            profile=dice.choice(PROFILES),
            flags={
                "node-monitor-period": dice.choice(("1s", "2s", "5s")),
                "node-monitor-grace-period": dice.choice(("8s", "12500ms", "20s")),
                "node-startup-grace-period": "15s",
                "node-eviction-rate": dice.choice(("0.1", "0.5", "1", "2")),
                "secondary-node-eviction-rate": dice.choice(("0.01", "0.2")),
                "large-cluster-size-threshold": dice.choice((1, 3, 50)),
                "unhealthy-zone-threshold": dice.choice((0.3, 0.55, 0.8)),
            },
            duration=f"{STORM_S + CALM_S}s",
            kubelet={
                "leaseRenewInterval": "2s",
                "leaseRenewPhase": f"{dice.randrange(2000)}ms",
                "nodeStatusReportInterval": "20s",
                "podStartDuration": "1s",
                "podStopDuration": "1500ms",
            },
            objects=objects,
            events=[*events, *self.put_right()],
        )

    def _make_nodes(self) -> list[Json]:
        made = []
        for zone in self.zones[: self.dice.randint(1, 4)]:
            for number in range(self.dice.randint(1, 6)):
                name = f"{zone}{number}"
                self.nodes.append(name)
                ready = self.dice.choices(("True", "False", ""), (90, 5, 5))[0]
                made.append(node(name, zone, ready))
                labels = made[-1]["metadata"]["labels"]
                labels["failure-domain.beta.kubernetes.io/zone"] = zone
                if self.dice.random() < 0.05:
                    labels["node.kubernetes.io/exclude-disruption"] = ""
        return made

    def _make_workloads(self) -> list[Json]:
        made = []
        for number in range(self.dice.randint(1, 12)):
            kind, size = self.dice.choice(KINDS), self.dice.randint(1, 5)
            tolerates = self.dice.choice((20, 5, 0, None, -1, 45))
            name = f"w{number}"
            if kind:
                made.append(owner(kind, name, size))
            for i in range(size):
                of = (kind, name) if kind else None
                home = self.dice.choice(self.nodes)
                made.append(pod(f"{name}-{i}", home, owner=of, tolerates=tolerates))
                self.pods.append(f"{name}-{i}")
        return made

    def _storm(self) -> list[Json]:
        return [self.event() for _ in range(self.dice.randint(3, 25))]
