"""What a drain plan says is what every forecast says: `kubectl drain` as an event on a branch of
the present, as `simulate` and `what-if` play it, ends the same way and at the same time.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS
from kubectl_nodelife.sim.events import DrainEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.present import join
from tests.deep import one_of
from tests.drain.troubled import OPTIONS, troubled
from tests.what_if.stand import NOW_NS, at, budget, node, workload

DUMPS = Path(__file__).parents[1] / "dumps"
ALL_KINDS = frozenset(kind.name for kind in KINDS)
SEEDS = [*range(24), 306, 522, 654, 3603, 3886, 4390, 4646, 4786]


def told_by_play(
    objects: Sequence[KubeObject],
    nodes: Sequence[str],
    options: DrainOptions,
    now_ns: int,
) -> dict[str, tuple[str, float]]:
    """Node -> how its turn ends and when, in a play of everything for an hour."""
    cluster = Cache()
    cluster.fill(objects, now_ns)
    snapshot = PlanSnapshot(objects, now_ns)
    present = join(cluster, snapshot.settings, now_ns, ALL_KINDS)
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


@pytest.mark.parametrize("seed", one_of(3, SEEDS))
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
    waits["metadata"]["finalizers"] = ["example.com/hold"]
    objects = [decode(d["kind"], d) for d in documents]
    options = replace(OPTIONS, timeout_ns=20 * SECOND_NS)
    played = told_by_play(objects, ["b1"], options, NOW_NS)
    assert_same(told_by_plan(objects, ["b1"], options, NOW_NS), played)
    landed = {
        pod.name: pod for pod in make_plan(PlanSnapshot(objects, NOW_NS), ["b1"], options).pods()
    }[waits["metadata"]["name"]]
    assert landed.verdict == "never" and "cordon the node before" in (landed.hint or "")


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


@pytest.mark.parametrize("name", [f"worker-{zone}{i}" for zone in "ab" for i in (1, 2, 3)])
def test_so_does_the_plan_of_a_dump(name: str) -> None:
    """`worker-a3` waits for a budget that taint-eviction refills; it was called `never`."""
    dump = read_dump([str(DUMPS / "two-zones")])
    played = told_by_play(dump.objects, [name], OPTIONS, dump.moment_ns)
    assert_same(told_by_plan(dump.objects, [name], OPTIONS, dump.moment_ns), played)
    assert (name in played) == (name not in ("worker-a2", "worker-b2")), "their kubelets are silent"
