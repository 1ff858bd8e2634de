"""The pod garbage collector: releases, order, quarantine, and a naive full scan that must agree."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.podgc import PodGCController
from kubectl_nodelife.engine.actions import DeletePod, PodAction, SetPodCondition, SetPodPhase
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Change, Event, Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from tests import objects
from tests.objects import put

OUT = Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute", value="nodeshutdown")


def node(name: str, ready: str = "True", *taints: Taint) -> Put:
    return put(objects.node(name, ready, taints=taints, uid=""))


def pod(name: str, on: str = "", phase: str = "Running", **more: Any) -> Put:
    """`created`: in seconds, `reason`: of its status."""
    about = {"created": more.pop("created", 0) * SECOND_NS, "uid": ""}
    about["status"] = {"reason": more.pop("reason", "")}
    deleted = SECOND_NS if more.pop("terminating", False) else None
    return put(objects.pod(name, on, namespace="d", phase=phase, deleted=deleted, **about, **more))


class World:
    """The collector on an engine; what it deletes is gone in the next moment."""

    def __init__(
        self,
        profile: str = "v1.36",
        flags: dict[str, object] | None = None,
        events: Iterable[Event] = (),
        drift_ns: int = MILLISECOND_NS,
    ) -> None:
        settings = make_settings(profile, flags)
        self.controller = PodGCController(settings, pass_drift_ns=drift_ns)
        self.cache = Cache()
        self.engine = Engine([self.controller], self.cache)
        self.done: list[tuple[float, PodAction]] = []
        self.hidden: set[str] = set()  # nodes that a live GET would find
        self._step(0, events)

    def at(self, seconds: float, *events: Event) -> None:
        now_ns = round(seconds * SECOND_NS)
        while (due_ns := self.engine.next_due()) is not None and due_ns < now_ns:
            self._step(due_ns, ())
        self._step(now_ns, events)

    def _step(self, now_ns: int, events: Iterable[Event]) -> None:
        came_of_it: list[Event] = []
        for action in self.engine.step(now_ns, events):
            assert isinstance(action, PodAction)
            self.done.append((now_ns / SECOND_NS, action))
            if action.if_node_gone in self.hidden:
                came_of_it.append(Outcome(action, 409))
            elif isinstance(action, DeletePod):
                assert (action.grace_period_seconds, action.force) == (0, True)
                came_of_it.append(Gone("Pod", (action.namespace, action.pod)))
        if came_of_it:
            self._step(now_ns, came_of_it)

    def deletes(self) -> list[tuple[float, str]]:
        return [(at, a.pod) for at, a in self.done if isinstance(a, DeletePod)]

    def kinds(self) -> list[str]:
        return [type(a).__name__ for _, a in self.done]


def test_orphans_go_three_runs_after_the_first_that_misses_the_node() -> None:
    deleted = DeletePod(controller="cluster", because="", namespace="", pod="n1")
    world = World(events=[node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2")])
    world.at(15.5, Gone("Node", ("", "n1"), cause=deleted))
    world.at(200)
    assert world.deletes() == [(80.004, "a")]
    condition, delete = (a for _, a in world.done)
    assert isinstance(condition, SetPodCondition)
    assert condition.phase == "Failed"
    assert condition.condition.reason == "DeletionByPodGC"
    assert condition.condition.message == "PodGC: node no longer exists"
    for action in (condition, delete):
        assert action.cause is deleted
        assert action.if_node_gone == "n1"
        assert "n1" in action.because
        assert "40 s" in action.because


@pytest.mark.parametrize("drift_ns", [0, MILLISECOND_NS, 20 * MILLISECOND_NS])
def test_the_run_at_the_very_end_of_the_quarantine_comes_too_early(drift_ns: int) -> None:
    world = World(events=[pod("a", "gone")], drift_ns=drift_ns)
    world.at(200)
    assert world.deletes() == [((60 * SECOND_NS + 3 * drift_ns) / SECOND_NS, "a")]


def test_a_node_that_comes_back_saves_its_pods() -> None:
    world = World(events=[node("n1"), pod("a", "n1")])
    world.at(5, Gone("Node", ("", "n1")))
    world.at(50, node("n1"))
    world.at(300)
    assert world.deletes() == []
    world.at(301, Gone("Node", ("", "n1")))
    world.at(400)
    assert world.deletes() == [(380.019, "a")]


def test_a_node_that_is_there_after_all_is_asked_for_again() -> None:
    world = World(events=[pod("a", "hidden")])
    world.hidden.add("hidden")
    world.at(61)
    assert world.kinds() == ["SetPodCondition", "DeletePod"]
    world.hidden.clear()
    world.at(200)
    assert world.deletes() == [(60.003, "a"), (120.006, "a")]


def test_the_run_that_takes_a_nodes_pods_announces_it_once_more() -> None:
    """It still sees them: `gcOrphaned` adds the name to the delaying queue in each such run.

    A pod that comes to the name of the dead node within the next minute is gone in the run after.
    """
    world = World(events=[pod("a", "gone")])
    world.at(70, pod("b", "gone"))
    world.at(200)
    assert world.deletes() == [(60.003, "a"), (120.006, "b")]


def test_without_a_quarantine_orphans_go_in_the_next_run() -> None:
    world = World("v1.16", events=[node("n1"), pod("a", "n1"), pod("b", "never")])
    world.at(5, Gone("Node", ("", "n1")))
    world.at(100)
    assert world.deletes() == [(0, "b"), (20.001, "a")]
    assert world.kinds() == ["DeletePod", "DeletePod"]


def test_terminated_pods_beyond_the_threshold() -> None:
    pods = [
        pod("running", "n1", created=1),
        pod("old", "n1", "Succeeded", created=5),
        pod("older", "n1", "Failed", created=4),
        pod("young", "n1", "Succeeded", created=9),
        pod("twin-b", "n1", "Failed", created=6),
        pod("twin-a", "n1", "Failed", created=6),
        pod("evicted", "n1", "Failed", created=8, reason="Evicted"),
        pod("no-phase", "n1", "", created=7),
    ]
    order = ["older", "old", "twin-a", "twin-b", "no-phase", "young"]
    for profile, wanted in (
        ("v1.36", ["evicted", *order]),
        ("v1.16", ["older", "old", "twin-a", "twin-b", "no-phase", "evicted", "young"]),
    ):
        for threshold in range(1, 9):
            flags: dict[str, object] = {"terminated-pod-gc-threshold": threshold}
            world = World(profile, flags, [node("n1"), *pods])
            assert [name for _, name in world.deletes()] == wanted[: max(0, 7 - threshold)]
    assert World("v1.36", {"terminated-pod-gc-threshold": 0}, pods).deletes() == []
    because = World("v1.36", {"terminated-pod-gc-threshold": 6}, pods).done[0][1].because
    assert because == "7 pods are terminated, and terminated-pod-gc-threshold keeps 6"


@pytest.mark.parametrize(
    ("profile", "gates", "collects"),
    [
        ("v1.16", "", False),
        ("v1.24", "", False),
        ("v1.24", "NodeOutOfServiceVolumeDetach=true", True),
        ("v1.26", "", True),
        ("v1.27", "NodeOutOfServiceVolumeDetach=false", False),
        ("v1.36", "", True),
    ],
)
def test_terminating_pods_of_nodes_out_of_service(profile: str, gates: str, collects: bool) -> None:
    world = World(
        profile,
        {"feature-gates": gates},
        [
            node("n1", "Unknown"),
            node("n2", "True", OUT),
            pod("a", "n1", terminating=True),
            pod("b", "n1"),
            pod("c", "n2", terminating=True),
        ],
    )
    assert world.deletes() == []
    world.at(25, node("n1", "Unknown", replace(OUT, effect="NoSchedule", value="")))
    world.at(41)
    assert world.deletes() == ([(40.002, "a")] if collects else [])
    world.at(45, node("n1"))
    world.at(50, node("n2", "False", OUT))
    world.at(70)
    assert (60.003, "c") in world.deletes() or not collects


def test_terminating_pods_without_a_node() -> None:
    world = World(events=[pod("a", terminating=True), pod("b"), pod("c", "n1", terminating=True)])
    assert world.deletes() == [(0, "a")]
    world.at(5, pod("b", terminating=True), node("n1"))
    world.at(21)
    assert world.deletes() == [(0, "a"), (20.001, "b")]


@pytest.mark.parametrize(
    ("profile", "gates", "wanted"),
    [
        ("v1.16", "", ["DeletePod", "DeletePod"]),
        ("v1.25", "", ["DeletePod", "DeletePod"]),
        ("v1.26", "", ["SetPodPhase", "DeletePod", "SetPodCondition", "DeletePod"]),
        ("v1.28", "PodDisruptionConditions=false", ["DeletePod", "DeletePod"]),
        (
            "v1.29",
            "PodDisruptionConditions=false",
            ["SetPodPhase", "DeletePod", "SetPodPhase", "DeletePod"],
        ),
        ("v1.36", "", ["SetPodPhase", "DeletePod", "SetPodCondition", "DeletePod"]),
    ],
)
def test_the_phase_becomes_failed_first(profile: str, gates: str, wanted: list[str]) -> None:
    pods = [pod("unscheduled", terminating=True), pod("orphan", "gone")]
    pods += [pod("done", "gone", "Succeeded")]
    world = World(profile, {"feature-gates": gates}, pods)
    world.at(100)
    order = ["unscheduled", "orphan"] if profile != "v1.16" else ["orphan", "unscheduled"]
    assert [n for _, n in world.deletes() if n != "done"] == order
    told = [type(a).__name__ for _, a in world.done if a.pod != "done"]
    assert sorted(told) == sorted(wanted)
    assert [type(a).__name__ for _, a in world.done if a.pod == "done"] == ["DeletePod"]
    for _, action in world.done:
        if isinstance(action, SetPodPhase):
            assert action.phase == "Failed"


def test_a_pod_that_has_the_condition_keeps_its_time() -> None:
    has = PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="DeletionByTaintManager",
        last_transition_time=Time(7 * SECOND_NS),
    )
    same = replace(has, reason="DeletionByPodGC", message="PodGC: node no longer exists")
    pods = [pod("a", "gone", conditions=(has,)), pod("b", "gone", conditions=(same,))]
    world = World(events=pods)
    world.at(100)
    assert world.kinds() == ["SetPodCondition", "DeletePod", "SetPodPhase", "DeletePod"]
    condition = world.done[0][1]
    assert isinstance(condition, SetPodCondition)
    assert condition.condition.last_transition_time == 7 * SECOND_NS


def test_a_pod_is_deleted_once_a_run() -> None:
    flags: dict[str, object] = {"terminated-pod-gc-threshold": 1}
    pods = [pod(n, "", "Failed", terminating=True) for n in ("a", "b")]
    world = World("v1.36", flags, pods)
    assert sorted(world.deletes()) == [(0, "a"), (0, "b")]


def test_a_run_over_a_quiet_cluster_looks_at_no_pod() -> None:
    class Counting(dict[Any, Any]):
        looks = 0

        def __getitem__(self, key: Any) -> Any:
            Counting.looks += 1
            return super().__getitem__(key)

    world = World(events=[node("n1"), *[pod(f"p{i}", "n1") for i in range(50)]])
    world.cache.pods = Counting(world.cache.pods)
    world.at(1000)
    assert Counting.looks == 0
    old = world.cache.pods.get(("d", "p1"))
    assert isinstance(old, Pod)
    marked = replace(old, status=replace(old.status, reason="x"))
    assert world.controller.changed(Change("Pod", old, marked), world.cache, 1) == ()


def test_a_change_of_phase_alone_is_noted() -> None:
    world = World("v1.36", {"terminated-pod-gc-threshold": 1}, [pod("a", "n1"), node("n1")])
    old = world.cache.pods["d", "a"]
    failed = Put("Pod", replace(old, status=PodStatus(phase="Failed")))
    world.at(5, failed, pod("b", "n1", "Failed", created=9))
    world.at(21)
    assert world.deletes() == [(20.001, "a")]


def naive_deletes(world: World, announced: dict[str, int], now_ns: int, threshold: int) -> set[str]:
    """One run as upstream's text reads: full scans of all pods and nodes.

    Names whose quarantine is over wait in the queue already when the run adds those that it misses.
    """
    cache, taken = world.cache, set()
    pods = list(cache.pods.values())
    due = [name for name, since_ns in announced.items() if now_ns > since_ns + 41 * SECOND_NS]
    for name in due:
        del announced[name]
    done = [p for p in pods if p.status.phase not in ("Pending", "Running", "Unknown")]

    def order(p: Pod) -> tuple[bool, int, str]:
        evicted = p.status.phase == "Failed" and p.status.reason == "Evicted"
        return (not evicted, p.metadata.creation_timestamp or 0, p.name)

    taken |= {p.name for p in sorted(done, key=order)[: max(0, len(done) - threshold)]}
    for p in pods:
        there = cache.nodes.get(p.spec.node_name)
        if p.metadata.deletion_timestamp is not None:
            if not p.spec.node_name:
                taken.add(p.name)
            elif there is not None:
                ready = there.ready()
                out = any(t.key == OUT.key for t in there.spec.taints)
                if out and (ready is None or ready.status != "True"):
                    taken.add(p.name)
        if p.spec.node_name and there is None:
            announced.setdefault(p.spec.node_name, now_ns)
    for name in due:
        if name not in cache.nodes:
            taken |= {p.name for p in pods if p.spec.node_name == name}
    return taken


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_full_scans(seed: int) -> None:
    chance, threshold = random.Random(seed), 3
    world = World(flags={"terminated-pod-gc-threshold": threshold}, drift_ns=0)
    announced: dict[str, int] = {}
    phases = ["Pending", "Running", "Running", "Unknown", "Succeeded", "Failed", ""]
    for second in range(1, 400):
        events: list[Event] = []
        for _ in range(chance.randint(0, 2)):
            name, where = f"p{chance.randrange(10)}", chance.choice(["n1", "n2", "n3", ""])
            dice = chance.random()
            if dice < 0.5:
                old = world.cache.pods.get(("d", name))
                events.append(
                    pod(
                        name,
                        old.spec.node_name if old and old.spec.node_name else where,
                        chance.choice(phases),
                        created=chance.randrange(9),
                        terminating=chance.random() < 0.3,
                        reason=chance.choice(["", "Evicted"]),
                    )
                )
            elif dice < 0.6:
                events.append(Gone("Pod", ("d", name)))
            elif dice < 0.8:
                events.append(Gone("Node", ("", where)))
            else:
                out = [OUT] if chance.random() < 0.5 else []
                events.append(node(where or "n1", chance.choice(["True", "False"]), *out))
        world.at(second - 0.5, *events)
        if second % 20 == 0:
            wanted = naive_deletes(world, announced, second * SECOND_NS, threshold)
            before = len(world.done)
            world.at(second)
            deleted = [a.pod for _, a in world.done[before:] if isinstance(a, DeletePod)]
            assert sorted(deleted) == sorted(wanted)
    assert world.deletes()
