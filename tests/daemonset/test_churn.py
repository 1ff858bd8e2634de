"""Random weather over a simulated cluster, and judges that watch the cluster rather than the code.

Nodes come, go, are tainted, cordoned and fall silent, pods are deleted, the template changes, calls
fail. Never are there two live pods of one revision on a node, nor two of any where there is no
surge; never does an update by its own hand take more nodes down than it may; and when the weather
has cleared, every node that should has its one pod of the last template.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.engine.actions import Action, CreatePod, DeletePod
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.sim import present as sim_branch
from kubectl_nodelife.sim import run as sim_run
from kubectl_nodelife.sim.failing_writes import InjectedFault
from kubectl_nodelife.sim.run import Run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from kubectl_nodelife.sim.world import World
from tests.objects import node, workload
from tests.sim.documents import document

HASH = "controller-revision-hash"
KEY = ("default", "agent")
NODES = 7
CALM_AFTER = 200
END = 900


def pooled(name: str, pool: str = "blue") -> dict[str, Any]:
    """A Ready node."""
    return node(name, labels={"pool": pool}, allocatable={"pods": "110"}, uid="")


def agent(image: int, strategy: dict[str, Any], min_ready: int) -> dict[str, Any]:
    """The set."""
    pods = {"nodeSelector": {"pool": "blue"}, "terminationGracePeriodSeconds": 3}
    return workload(
        "DaemonSet",
        "agent",
        uid="",
        pods={"containers": [{"name": "c", "image": f"agent:{image}"}], **pods},
        minReadySeconds=min_ready,
        revisionHistoryLimit=2,
        updateStrategy=strategy,
    )


class Weather:
    """What happens in one run, all of it from a seed."""

    def __init__(self, seed: int, profile: str) -> None:
        self.random = random.Random(seed)
        self.profile = profile
        pick = self.random.choice
        rolling: dict[str, Any] = {"maxUnavailable": pick([1, 2, "30%"])}
        if profile != "v1.16" and self.random.random() < 0.5:
            rolling = {"maxUnavailable": 0, "maxSurge": pick([1, 2, "40%"])}
        self.surge = "maxSurge" in rolling
        self.strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        self.min_ready = pick([0, 0, 2])
        self.image = 1
        self.failing = pick([0.0, 0.1, 0.3])

    def scenario(self) -> dict[str, Any]:
        """The scenario as one would write it."""
        at = 2.0
        events: list[dict[str, Any]] = [{"at": "1s", "apply": self.agent()}]
        while at < CALM_AFTER:
            at += self.random.uniform(0.2, 12)
            events.append({"at": f"{at:.3f}s", **self.event()})
        events += [
            {"at": f"{CALM_AFTER + 20}s", **calm}
            for i in range(NODES)
            for calm in self.clear_up(f"n{i}")
        ]
        # From 1.33 on a node that comes back with its pod wakes nobody, so a count may stay behind
        # until the next sync: somebody touches the set.
        touched = self.agent()
        touched["metadata"]["labels"] = {"touched": "yes"}
        events.append({"at": f"{CALM_AFTER + 60}s", "apply": touched})
        return document(
            profile=self.profile,
            controllers=["daemonset"],
            duration=f"{END}s",
            kubelet={"podStartDuration": "1s", "podStopDuration": "2s"},
            objects=[pooled(f"n{i}") for i in range(NODES)],
            events=events,
        )

    def agent(self) -> dict[str, Any]:
        """The set with its present image."""
        return agent(self.image, self.strategy, self.min_ready)

    def event(self) -> dict[str, Any]:
        """One thing that happens."""
        name = f"n{self.random.randrange(NODES)}"
        pick = self.random.random()
        if pick < 0.2:
            self.image = self.random.choice([self.image + 1, max(1, self.image - 1)])
            return {"apply": self.agent()}
        if pick < 0.35:
            return {"taint": {"nodes": [name], "add": ["dedicated=x:NoSchedule"]}}
        if pick < 0.45:
            return {"taint": {"nodes": [name], "add": ["out=x:NoExecute"]}}
        if pick < 0.6:
            return {"taint": {"nodes": [name], "remove": ["dedicated:NoSchedule", "out:NoExecute"]}}
        if pick < 0.7:
            return {"apply": pooled(name, self.random.choice(["blue", "green"]))}
        if pick < 0.8:
            heartbeats = self.random.choice(["stop", "start"])
            return {"kubelet": {"nodes": [name], "heartbeats": heartbeats}}
        if pick < 0.9:
            return {"cordon": {"nodes": [name]}}
        return {"delete": {"kind": "Node", "name": name}}

    def clear_up(self, name: str) -> Iterator[dict[str, Any]]:
        """What makes a node good again."""
        yield {"apply": pooled(name)}
        yield {"taint": {"nodes": [name], "remove": ["dedicated:NoSchedule", "out:NoExecute"]}}
        yield {"kubelet": {"nodes": [name], "heartbeats": "start"}}

    def fault(self, action: Action, now_ns: int) -> InjectedFault | None:
        """Some calls fail while the weather lasts."""
        if self.random.random() >= self.failing or now_ns > self.calm_ns:
            return None
        code = self.random.choice([500, 409, 429, 504])
        return InjectedFault(code, "bad weather", applied=code == 504)

    calm_ns = 0


class Judged(World):
    """A world in which every action of the controller is judged as it is taken."""

    weather: Weather
    found: list[str]

    def start(self, action: Action, now_ns: int) -> None:
        """Carry it out, and look at what the cluster is now."""
        if isinstance(action, DeletePod) and action.controller == "daemonset":
            self._judge_delete(action, now_ns)
        super().start(action, now_ns)
        if isinstance(action, CreatePod):
            self._judge_create(action)

    def _judge_create(self, action: CreatePod) -> None:
        live: dict[str, list[Pod]] = {}
        for pod in self.api.store.pods.values():
            if pod.metadata.deletion_timestamp is None and pod.spec.node_name == action.node:
                label = (pod.metadata.labels or {}).get(HASH, "")
                live.setdefault(label, []).append(pod)
        for label, pods in live.items():
            if len(pods) > 1:
                self.found.append(f"two live pods of {label} on {action.node}")
        if len(live) > 1 and not self.weather.surge:
            self.found.append(f"two live pods on {action.node} without surge")

    def _judge_delete(self, action: DeletePod, now_ns: int) -> None:
        if "rolling update" not in action.because or "not available" in action.because:
            return
        rolling = self.weather.strategy["rollingUpdate"]
        nodes = [n for n in self.api.store.nodes.values() if self._wanted(n)]
        limit = rolling["maxUnavailable"]
        if isinstance(limit, str):
            limit = (int(limit.rstrip("%")) * len(nodes) + 99) // 100
        doomed = self.api.store.pods.get((action.namespace, action.pod))
        assert doomed is not None
        down = {n.name for n in nodes if not self._served(n.name, now_ns)}
        if len(down | {doomed.spec.node_name}) > max(limit, len(down)):
            self.found.append(f"{action.pod}: {sorted(down)} are down already, {limit} may be")

    def _wanted(self, found: Any) -> bool:
        blocked = {"NoSchedule", "NoExecute"}
        taints = [t for t in found.spec.taints if t.effect in blocked]
        own = [t for t in taints if not t.key.startswith("node.kubernetes.io/")]
        return (found.metadata.labels or {}).get("pool") == "blue" and not own

    def _served(self, name: str, now_ns: int) -> bool:
        for pod in self.api.store.pods_on(name):
            condition = pod.status.condition("Ready")
            since = condition.last_transition_time if condition is not None else None
            if pod.metadata.deletion_timestamp is not None or not pod.ready() or since is None:
                continue
            if since + self.weather.min_ready * SECOND_NS <= now_ns:
                return True
        return False


def play(
    seed: int, profile: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Weather, Run, list[str]]:
    """One run; the judges' findings are last."""
    weather = Weather(seed, profile)
    found: list[str] = []

    def world(*args: Any, **kwargs: Any) -> Judged:
        made = Judged(*args, **kwargs)
        made.weather, made.found = weather, found
        return made

    monkeypatch.setattr(sim_branch, "World", world)
    content = msgspec.json.encode(weather.scenario())
    setting = assemble(parse_scenario(content, "churn.json"))
    weather.calm_ns = setting.start_ns + CALM_AFTER * SECOND_NS
    controller = DaemonSetController(make_settings(profile, {}))
    done = sim_run.run(setting, [controller], faults=weather.fault)
    return weather, done, found


@pytest.mark.parametrize("profile", ["v1.16", "v1.30", "v1.36"])
@pytest.mark.parametrize("seed", range(12))
def test_the_cluster_keeps_its_promises_and_settles(
    seed: int, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather, done, found = play(seed, profile, monkeypatch)
    assert found == []
    daemon_set = done.cluster.get("DaemonSet", KEY)
    assert isinstance(daemon_set, DaemonSet)
    status = daemon_set.status
    counts = (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
        status.number_misscheduled,
    )
    assert counts == (NODES, NODES, NODES, NODES, NODES, 0)
    assert status.observed_generation == daemon_set.metadata.generation
    pods = [p for p in done.cluster.pods.values() if p.spec.node_name]
    assert sorted(p.spec.node_name for p in pods) == [f"n{i}" for i in range(NODES)]
    assert {p.spec.containers[0].image for p in pods} == {f"agent:{weather.image}"}
    assert len({(p.metadata.labels or {})[HASH] for p in pods}) == 1
    revisions = list(done.cluster.all("ControllerRevision"))
    assert len(revisions) <= 3
    assert len({getattr(r, "revision", 0) for r in revisions}) == len(revisions)


def test_a_run_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def records() -> bytes:
        _, done, _ = play(4, "v1.36", monkeypatch)
        return msgspec.json.encode(done.timeline.records(done.failures))

    assert records() == records()


def test_the_judges_can_find_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget that the controller does not know of, the judges object."""
    real = Weather.__init__

    def stricter(self: Weather, seed: int, profile: str) -> None:
        real(self, seed, profile)
        self.strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
        self.surge = False

    monkeypatch.setattr(Weather, "__init__", stricter)
    served = Judged._served
    monkeypatch.setattr(
        Judged, "_served", lambda self, name, now: False if name < "n3" else served(self, name, now)
    )
    _, _, found = play(1, "v1.36", monkeypatch)
    assert found
