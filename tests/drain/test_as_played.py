"""A drain plan is the run, played: what a plan says is what the whole present does.

Seeded clusters on which much is under way: nodes that are late, lost, not Ready or just back, pods
that start, stop, wait for a node or crash, budgets that are used up. A plan plays only the part of
the cluster that can matter to it; the judge plays all of it with all controllers for an hour, by
the code of `simulate` and `what-if`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.commands.cluster.dump import read_dump
from kubectl_nodelife.drain import scope
from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.drain.world import play_kubectl
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS, human_duration
from kubectl_nodelife.sim.events import DrainEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.present import join
from kubectl_nodelife.sim.timing import MIDDLE
from kubectl_nodelife.workloads.admission import Admission
from tests.what_if.stand import NOW_NS, at, budget, node, workload

DUMPS = Path(__file__).parents[1] / "dumps"
ALL_KINDS = frozenset(kind.name for kind in KINDS)
OPTIONS = DrainOptions(ignore_daemonsets=True, force=True, delete_emptydir_data=True)
STATES = [*["ok"] * 6, "late", "expired", "unknown", "not-ready", "back"]
FLAGS: list[dict[str, Any]] = [
    *[{}] * 5,
    {"timeout_ns": 45 * SECOND_NS},
    {"timeout_ns": 400 * SECOND_NS},
    {"disable_eviction": True},
    {"skip_wait_seconds": 60},
    {"grace_period_seconds": 3},
]
SCOPE_PARTS = (
    *("nodes", "pods", "owner_pods", "rules", "counts", "moving", "budgets_of", "own_budgets"),
    *("unsettled", "left_out", "daemon_sets"),
)
SEEDS = [*range(60), 306, 522, 654, 3603, 3886, 4390, 4646, 4786]
Document = dict[str, Any]


class Troubled(NamedTuple):
    """A cluster, the nodes to drain, and how."""

    objects: list[KubeObject]
    nodes: list[str]
    options: DrainOptions


def troubled(seed: int) -> Troubled:
    """A cluster on which much is under way, by chance."""
    chance = random.Random(seed)
    names = [f"{zone}{i}" for zone in "ab" for i in range(1, chance.randint(3, 5))]
    cpu = chance.choice(["600m", "1", "4"])
    states = {name: chance.choice(STATES) for name in names}
    documents = [d for name in names for d in troubled_node(name, states[name], cpu, chance)]
    for number in range(chance.randint(2, 5)):
        documents += troubled_workload(f"w{number}", states, chance)
    nodes = chance.sample(names, chance.randint(1, 2))
    options = replace(OPTIONS, **chance.choice(FLAGS))
    return Troubled([decode(d["kind"], d) for d in documents], nodes, options)


def troubled_node(name: str, state: str, cpu: str, chance: random.Random) -> list[Document]:
    ages = {"late": 25.0, "expired": chance.choice([45.0, 120.0]), "unknown": 200.0}
    found = node(name, lease_age=ages.get(state, 4.0), cpu=cpu)
    ready, since = found[0]["status"]["conditions"][0], chance.choice([10, 100, 250])
    keys = {"unknown": "unreachable", "not-ready": "not-ready", "back": "unreachable"}
    if state in keys:
        taint = {"key": f"node.kubernetes.io/{keys[state]}"}
        without_pods = {**taint, "effect": "NoExecute", "timeAdded": at(-since)}
        found[0]["spec"]["taints"] = [{**taint, "effect": "NoSchedule"}, without_pods]
    if state == "unknown":
        ready |= {"status": "Unknown", "lastTransitionTime": at(-since)}
    elif state == "not-ready":
        ready |= {"status": "False", "lastTransitionTime": at(-since)}
    return found


def troubled_workload(name: str, states: dict[str, str], chance: random.Random) -> list[Document]:
    """An owner, its pods, and often a budget whose status counts those that are healthy."""
    kind = chance.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet"])
    on = [chance.choice(list(states)) for _ in range(chance.randint(2, 5))]
    seconds = chance.choice([300, 300, 30, 0, None])
    if kind == "DaemonSet":
        on, seconds = list(states), None
    found = workload(name, on, kind, cpu=chance.choice(["100m", "200m"]), tolerates=seconds)
    pods = found[1:]
    for pod in pods:
        trouble(pod, states[pod["spec"]["nodeName"]], kind, chance)
    if chance.random() < 0.7:
        least = max(0, len(on) - chance.choice([0, 1, 1, 1, 2]))
        found += budget(name, least, len(on))
        healthy = sum(is_healthy(pod) for pod in pods)
        allowed = {"currentHealthy": healthy, "disruptionsAllowed": max(0, healthy - least)}
        found[-1]["status"] |= allowed
    return found


def trouble(pod: Document, state: str, kind: str, chance: random.Random) -> None:
    status, meta, at_risk = pod["status"], pod["metadata"], chance.random()
    if state in ("unknown", "not-ready"):
        unready(pod, -30, {"running": {"startedAt": at(-3598)}})
    elif at_risk < 0.1 and kind != "DaemonSet":
        meta["creationTimestamp"] = at(-1)
        unready(pod, -1, {"waiting": {"reason": "ContainerCreating"}})
        status["phase"] = "Pending"
    elif at_risk < 0.2:
        unready(pod, -3, {"running": {"startedAt": at(-1)}})
    elif at_risk < 0.27:
        unready(pod, -20, {"waiting": {"reason": "CrashLoopBackOff"}})
    elif at_risk < 0.34:
        meta |= {"deletionTimestamp": at(12), "deletionGracePeriodSeconds": 30}
    elif at_risk < 0.4 and kind == "ReplicaSet":
        pod["spec"]["nodeName"] = ""
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {"phase": "Pending", "conditions": [waits]}


def unready(pod: Document, since: float, state: Document) -> None:
    for condition in pod["status"]["conditions"][1:]:
        condition |= {"status": "False", "lastTransitionTime": at(since)}
    pod["status"]["containerStatuses"][0] |= {"ready": False, "state": state}


def is_healthy(pod: Document) -> bool:
    ready = [c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    return ready == ["True"] and "deletionTimestamp" not in pod["metadata"]


def told_by_play(
    objects: Sequence[KubeObject],
    nodes: Sequence[str],
    options: DrainOptions,
    now_ns: int,
    *,
    late_renew: bool = False,
) -> dict[str, tuple[str, float]]:
    """Node -> how its turn ends and when, in a play of everything for an hour."""
    cluster = Cache()
    cluster.fill(objects, now_ns)
    snapshot = PlanSnapshot(objects, now_ns)
    present = join(cluster, snapshot.settings, now_ns, ALL_KINDS, late_renew=late_renew)
    branch = present.begin(HOUR_NS)
    for name in nodes:  # one process drains them in the order of the command
        assert name in snapshot.nodes
    what = DrainEvent(Targets(nodes=tuple(nodes)), options)
    branch.add([ScenarioEvent(0, what, FieldPath("test"))])
    branch.play()
    ends = {"Drained", "DrainFailed"}
    return {
        record.object.name: (record.detail["reason"], record.at)
        for record in branch.records()
        if record.detail.get("reason") in ends
    }


def told_by_plan(
    objects: Sequence[KubeObject], nodes: Sequence[str], options: DrainOptions, now_ns: int
) -> dict[str, tuple[str, float]]:
    """The same by the plan."""
    plan = make_plan(PlanSnapshot(objects, now_ns), nodes, options)
    failed = {pod.node for pod in plan.pods() if pod.verdict == "never"}
    return {
        found.name: ("DrainFailed" if found.name in failed else "Drained", found.end)
        for found in plan.nodes
        if found.end is not None
    }


def assert_same(one: dict[str, tuple[str, float]], other: dict[str, tuple[str, float]]) -> None:
    """The same nodes end, the same way, and within a second: kubectl looks once a second."""
    assert one.keys() == other.keys()
    for name, (how, at_s) in one.items():
        assert other[name] == (how, pytest.approx(at_s, abs=1.1)), name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_says_what_the_play_of_everything_does(seed: int) -> None:
    objects, nodes, options = troubled(seed)
    played = told_by_play(objects, nodes, options, NOW_NS)
    assert_same(told_by_plan(objects, nodes, options, NOW_NS), played)


def test_a_pod_that_lands_before_the_cordon_may_hold_the_drain() -> None:
    """It waits for a node at the moment of the plan, and b1 is the only one with room."""
    documents = [d for name in ("a1", "b1") for d in node(name, cpu="200m")]
    documents += workload("full", ["a1", "a1"])
    documents += workload("web", ["b1", "b1"])
    waits = documents[-1]
    waits["spec"]["nodeName"] = ""
    waits["status"] = {"phase": "Pending", "conditions": []}
    objects = [decode(d["kind"], d) for d in documents]
    options = replace(OPTIONS, timeout_ns=20 * SECOND_NS)  # less than its grace
    played = told_by_play(objects, ["b1"], options, NOW_NS)
    assert_same(told_by_plan(objects, ["b1"], options, NOW_NS), played)
    landed = {
        pod.name: pod for pod in make_plan(PlanSnapshot(objects, NOW_NS), ["b1"], options).pods()
    }[waits["metadata"]["name"]]
    assert landed.verdict == "never" and "cordon the node before" in (landed.hint or "")


@pytest.mark.parametrize("seed", SEEDS)
def test_so_it_does_where_late_kubelets_are_only_slow(seed: int) -> None:
    objects, nodes, options = troubled(seed)
    snapshot = PlanSnapshot(objects, NOW_NS)
    scope, admission = Scope(snapshot, nodes), Admission(snapshot)
    slow = play_kubectl(scope, admission, options, MIDDLE, late_renew=True)
    played = told_by_play(objects, nodes, options, NOW_NS, late_renew=True)
    told = {
        name: ("Drained" if run.drained else "DrainFailed", run.end_ns / SECOND_NS)
        for name, run in slow.runs.items()
        if run.end_ns is not None
    }
    assert_same(told, played)
    plan = make_plan(snapshot, nodes, options)
    if plan.verdict == "never" and snapshot.late:
        ends = {at_s for how, at_s in played.values() if how == "Drained"}
        drained = [how for how, _ in played.values()] == ["Drained"] * len(nodes)
        took = f"finishes in {human_duration(round(max(ends) * SECOND_NS))}" if drained else ""
        said = [line for line in plan.assumptions if "are only slow and renew again" in line]
        assert [line[-len(took) :] for line in said] == ([took] if drained else [])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [scope.MOST_UNSETTLED, 3])
def test_a_part_of_a_scope_is_the_scope_of_that_part(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope, "MOST_UNSETTLED", most)
    objects, nodes, _ = troubled(seed)
    snapshot = PlanSnapshot(objects, NOW_NS)
    whole = Scope(snapshot, nodes)
    for part in (nodes[:1], nodes[1:], nodes[::-1]):
        taken, found = whole.part(part), Scope(snapshot, part)
        for what in SCOPE_PARTS:
            assert getattr(taken, what) == getattr(found, what), what
        assert list(taken.ledgers) == list(found.ledgers)
        for key, ledger in found.ledgers.items():
            assert taken.ledgers[key].budget == ledger.budget
            assert taken.ledgers[key].entries == ledger.entries
            assert taken.ledgers[key].healthy == ledger.healthy


@pytest.mark.parametrize(
    "kind, drained",
    [
        pytest.param("ReplicaSet", True, id="waits for the room, and has it before the next one"),
        pytest.param("StatefulSet", False, id="is made later, and finds no room"),
    ],
)
def test_the_next_pod_of_a_daemon_set_takes_the_room_of_one_that_goes(
    kind: str, drained: bool
) -> None:
    """a1 has room for nothing but the DaemonSet's pod, which goes at 12 s and is made anew."""
    documents = [d for name in ("a1", "b1") for d in node(name, cpu="300m")]
    agents = workload("agent", ["a1", "b1"], "DaemonSet", tolerates=None)
    agents[1]["metadata"] |= {"deletionTimestamp": at(12), "deletionGracePeriodSeconds": 30}
    documents += agents + workload("web", ["a1", "a1", "b1", "b1"], kind) + budget("web", 3, 4)
    objects = [decode(d["kind"], d) for d in documents]
    played = told_by_play(objects, ["b1"], OPTIONS, NOW_NS)
    assert_same(told_by_plan(objects, ["b1"], OPTIONS, NOW_NS), played)
    assert ("b1" in played) == drained


def test_a_pod_without_an_owner_that_goes_leaves_its_room() -> None:
    documents = [d for name in ("a1", "b1") for d in node(name, cpu="200m")]
    alone = workload("alone", ["a1"])[1]
    del alone["metadata"]["ownerReferences"]
    alone["metadata"] |= {"deletionTimestamp": at(12), "deletionGracePeriodSeconds": 30}
    documents += [alone, *workload("web", ["a1", "b1", "b1"]), *budget("web", 2, 3)]
    objects = [decode(d["kind"], d) for d in documents]
    played = told_by_play(objects, ["b1"], OPTIONS, NOW_NS)
    assert_same(told_by_plan(objects, ["b1"], OPTIONS, NOW_NS), played)
    assert "b1" in played


def test_a_budget_of_pods_that_land_meanwhile_guards_them() -> None:
    """web's pod waits for a node, and b1, which comes last, is the only one with room."""
    documents = [d for name in ("a1", "b1", "c1") for d in node(name, cpu="200m")]
    documents += workload("full", ["a1", "a1", "c1", "c1"])
    documents += workload("web", ["b1"]) + budget("web", 1, 0)
    waits = next(d for d in documents if d["metadata"]["name"] == "web-0")
    waits["spec"]["nodeName"] = ""
    waits["status"] = {"phase": "Pending", "conditions": []}
    objects = [decode(d["kind"], d) for d in documents]
    played = told_by_play(objects, ["c1", "b1"], OPTIONS, NOW_NS)
    assert_same(told_by_plan(objects, ["c1", "b1"], OPTIONS, NOW_NS), played)
    plan = make_plan(PlanSnapshot(objects, NOW_NS), ["c1", "b1"], OPTIONS)
    assert played.keys() == {"c1"}
    assert {pod.name: pod.budgets for pod in plan.pods() if pod.node == "b1"} == {"web-0": ["web"]}
    assert [found.name for found in plan.budgets] == ["web"]


def test_a_pod_that_another_deletes_before_may_be_skipped() -> None:
    """b1's pod is evicted by its taint at 0 s; kubectl comes to b1 when a1 is done, at 91 s."""
    documents = [d for name in ("a1", "b1", "c1") for d in node(name)]
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": at(-100)}
    for found in documents:
        if found["kind"] == "Node" and found["metadata"]["name"] != "c1":
            found["status"]["conditions"][0] |= {"status": "Unknown"}
            found["spec"]["taints"] = [taint]
        elif found["kind"] == "Lease" and found["metadata"]["name"] != "c1":
            found["spec"]["renewTime"] = at(-200)[:-1] + ".000000Z"
    documents += workload("one", ["a1"], tolerates=None)
    documents += workload("two", ["b1"], "StatefulSet", tolerates=0)
    objects = [decode(d["kind"], d) for d in documents]
    options = replace(OPTIONS, skip_wait_seconds=30)
    played = told_by_play(objects, ["a1", "b1"], options, NOW_NS)
    assert_same(told_by_plan(objects, ["a1", "b1"], options, NOW_NS), played)
    plan = make_plan(PlanSnapshot(objects, NOW_NS), ["a1", "b1"], options)
    told = {pod.name: pod.reason for node in plan.nodes for pod in node.kept}
    assert told == {"two-0": "skipped: it is terminating for longer than the flag allows"}


def test_of_too_many_pods_elsewhere_only_those_that_matter_are_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost zone has thousands; the plan says how many it leaves out, and is else the same."""
    documents = [d for name in ("a1", "b1") for d in node(name)]
    for name in ("web", "other"):
        documents += workload(name, ["a1", "b1"] if name == "web" else ["b1", "b1"])
        documents[-1]["spec"]["nodeName"] = ""
        documents[-1]["status"] = {"phase": "Pending", "conditions": []}
    snapshot = PlanSnapshot([decode(d["kind"], d) for d in documents], NOW_NS)
    told = "the room that 1 pod elsewhere may take or leave meanwhile is not counted"
    assert told not in make_plan(snapshot, ["a1"], OPTIONS).assumptions
    monkeypatch.setattr(scope, "MOST_UNSETTLED", 1)
    assert told in make_plan(snapshot, ["a1"], OPTIONS).assumptions


@pytest.mark.parametrize("name", [f"worker-{zone}{i}" for zone in "ab" for i in (1, 2, 3)])
def test_so_does_the_plan_of_a_dump(name: str) -> None:
    """`worker-a3` waits for a budget that taint-eviction refills; it was called `never`."""
    dump = read_dump([str(DUMPS / "two-zones")])
    played = told_by_play(dump.objects, [name], OPTIONS, dump.moment_ns)
    assert_same(told_by_plan(dump.objects, [name], OPTIONS, dump.moment_ns), played)
    assert (name in played) == (name not in ("worker-a2", "worker-b2")), "their kubelets are silent"
