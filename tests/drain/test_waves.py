"""Waves of our own: limits, order, the bound, and the judge that replays them."""

import copy
import gc
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from bench._drain_cluster import cluster
from kubectl_nodelife.drain.bounds import waves_bound
from kubectl_nodelife.drain.plan import make_plan, make_wave_plan
from kubectl_nodelife.drain.results import CORDON_BY_WAVE, CORDON_FIRST, DrainPlan, WaveOptions
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import budget, node, replica_set, snapshot
from tests.drain.plan_judge import replay

OPTIONS = DrainOptions(ignore_daemonsets=True)


def waves_of(answer: DrainPlan) -> list[set[str]]:
    return [set(wave.nodes) for wave in answer.waves]


def nodes(*names: str, **more: Any) -> list[Any]:
    return [obj for name in names for obj in node(name, zone=name[0], **more)]


def one_each(name: str, *places: str, spared: int = 1) -> list[Any]:
    """A workload with a pod on each place, and a budget that spares so many."""
    count = len(places)
    guard = budget(
        name,
        name,
        healthy=count,
        desired=count - spared,
        expected=count,
        maxUnavailable=spared,
    )
    return [*replica_set(name, *places), guard]


def test_nodes_that_share_a_tight_budget_go_apart() -> None:
    found = snapshot(
        nodes("a1", "a2", "a3", "b9"), one_each("web", "a1", "a2"), replica_set("x", "a3")
    )
    answer = make_wave_plan(found, ["a1", "a2", "a3"], OPTIONS, WaveOptions(max_parallel=3))
    assert answer.verdict == "ready" and len(answer.waves) == 2 == answer.bound.waves
    assert not any({"a1", "a2"} <= wave for wave in waves_of(answer))
    starts = [wave.start for wave in answer.waves]
    assert starts[0] == 0 and starts[1] is not None and starts[1] > 2


def test_a_node_that_alone_exceeds_a_budget_goes_without_company_under_it() -> None:
    web = one_each("web", "a1", "a1", "a2")
    found = snapshot(nodes("a1", "a2", "a3", "b9"), web, replica_set("x", "a3"))
    answer = make_wave_plan(found, ["a1", "a2", "a3"], OPTIONS, WaveOptions(max_parallel=3))
    assert answer.verdict == "slow" and len(answer.waves) == 2
    assert not replay(answer, found, WaveOptions(3)).all()


def test_limits_of_waves_and_zones() -> None:
    names = ["a1", "a2", "a3", "a4", "b1", "b2"]
    found = snapshot(nodes(*names, "c1"), *[replica_set(f"w{n}", n) for n in names])
    limits = WaveOptions(max_parallel=4, max_per_zone=2)
    answer = make_wave_plan(found, names, OPTIONS, limits)
    assert len(answer.waves) == 2 == answer.bound.waves
    assert not replay(answer, found, limits).all()


def test_room_grows_as_nodes_come_back() -> None:
    """One spare node for three full ones: one at a time, and only if they come back."""
    big = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}}
    names = ["a1", "a2", "a3"]
    found = snapshot(nodes(*names, "b1"), *[replica_set(f"w{n}", n, **big) for n in names])
    limits = WaveOptions(max_parallel=3, maintenance_ns=5 * MINUTE_NS)
    answer = make_wave_plan(found, names, OPTIONS, limits)
    assert len(answer.waves) == 3 == answer.bound.waves
    assert not replay(answer, found, limits).all()
    assert {p.landing[0].node for p in answer.pods()} == {"b1", "a1", "a2"}
    assert answer.bound.seconds == 600
    stays = make_wave_plan(found, names, OPTIONS, WaveOptions(max_parallel=3))
    assert [p for p in stays.pods() if not (p.landing and p.landing[0].node)]
    assert any("stay Pending" in warning for warning in stays.warnings)


def test_low_water_keeps_capacity_free() -> None:
    half = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
    names = ["a1", "a2"]
    found = snapshot(nodes(*names, "b1"), *[replica_set(f"w{n}", n, **half) for n in names])
    assert len(make_wave_plan(found, names, OPTIONS, WaveOptions(2)).waves) == 1
    limits = WaveOptions(2, low_water_percent=50, maintenance_ns=MINUTE_NS)
    assert len(make_wave_plan(found, names, OPTIONS, limits).waves) == 2


def test_nodes_that_cannot_be_drained_come_last_and_hold_nobody_up() -> None:
    never = budget("stuck", "stuck", healthy=1, desired=1, expected=1, minAvailable=1)
    found = snapshot(
        nodes("a1", "a2", "b9"), replica_set("stuck", "a1"), never, replica_set("ok", "a2")
    )
    answer = make_wave_plan(found, ["a1", "a2"], OPTIONS, WaveOptions(max_parallel=2))
    assert [wave.nodes for wave in answer.waves] == [["a2"], ["a1"]]
    assert {n.name: n.verdict for n in answer.nodes} == {"a2": "ready", "a1": "never"}
    assert answer.estimate is None


def scarce(*more: Any) -> PlanSnapshot:
    """Three nodes that are half full, and no other: what leaves one needs the other two."""
    half = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
    names = ["a1", "a2", "a3"]
    return snapshot(nodes(*names), *[replica_set(f"w{n}", n, **half) for n in names], *more)


def test_where_room_is_scarce_each_wave_is_cordoned_by_itself() -> None:
    """All cordoned first, the pod of the first wave would wait for its node to come back."""
    names = ["a1", "a2", "a3"]
    limits = WaveOptions(1, maintenance_ns=5 * MINUTE_NS)
    answer = make_wave_plan(scarce(), names, OPTIONS, limits)
    assert answer.cordon is not None
    assert answer.cordon.when == CORDON_BY_WAVE
    assert answer.cordon.because.startswith("with all nodes cordoned first, workloads would have")
    assert max(w.seconds or 0 for w in answer.workloads) < 10
    assert any("twice: to a node that is drained later" in text for text in answer.warnings)
    assert not replay(answer, scarce(), limits).all()

    first = make_wave_plan(scarce(), names, OPTIONS, replace(limits, cordon=CORDON_FIRST))
    assert max(w.seconds or 0 for w in first.workloads) > 299
    (said,) = [text for text in first.warnings if "room" in text]
    assert said.startswith("1 replacement would wait for room, up to 30")
    assert "the nodes of the plan are cordoned, and come back later" in said


def test_where_there_is_room_all_are_cordoned_first() -> None:
    limits = WaveOptions(1, maintenance_ns=5 * MINUTE_NS)
    found = scarce(nodes("b1", cpu="64"))
    answer = make_wave_plan(found, ["a1", "a2", "a3"], OPTIONS, limits)
    assert answer.cordon is not None and answer.cordon.when == CORDON_FIRST
    assert answer.cordon.because == "so that no pod moves twice"


def test_a_single_wave_leaves_nothing_to_choose() -> None:
    answer = make_wave_plan(scarce(), ["a1"], OPTIONS, WaveOptions(1, maintenance_ns=MINUTE_NS))
    assert answer.cordon is not None and answer.cordon.because == "so that no pod moves twice"


def test_an_estimate_never_lies_below_its_own_bound() -> None:
    limits = WaveOptions(1, maintenance_ns=10 * MINUTE_NS)
    for more in ([], nodes("b1", cpu="64")):
        answer = make_wave_plan(scarce(more), ["a1", "a2", "a3"], OPTIONS, limits)
        assert answer.estimate is not None
        assert answer.bound.seconds == 1200 <= answer.estimate.low <= answer.estimate.high


def test_the_next_wave_waits_for_those_that_got_room_when_nodes_came_back() -> None:
    limits = WaveOptions(1, maintenance_ns=5 * MINUTE_NS, cordon=CORDON_FIRST)
    answer = make_wave_plan(scarce(), ["a1", "a2", "a3"], OPTIONS, limits)
    (first,) = answer.waves[0].pods
    second = answer.waves[1].start
    assert first.end is not None and second is not None and first.end <= second


# --- the bound against brute force ---------------------------------------------------------------


def fewest(names: list[str], loads: dict[str, dict[str, int]], spared: int, most: int) -> int:
    """The least number of waves, by trying every assignment."""
    for count in range(1, len(names) + 1):
        for choice in product(range(count), repeat=len(names)):
            if all(_wave_holds(w, choice, names, loads, spared, most) for w in range(count)):
                return count
    raise AssertionError("each node by itself always does")


def _wave_holds(
    wave: int,
    choice: tuple[int, ...],
    names: list[str],
    loads: dict[str, dict[str, int]],
    spared: int,
    most: int,
) -> bool:
    members = [name for name, chosen in zip(names, choice, strict=True) if chosen == wave]
    if len(members) > most:
        return False
    for app in {app for name in members for app in loads[name]}:
        needing = [loads[name][app] for name in members if app in loads[name]]
        if len(needing) > 1 and sum(needing) > spared:
            return False
    return True


@pytest.mark.parametrize("seed", range(12))
def test_bound_and_plan_against_every_assignment(seed: int) -> None:
    import random

    chance = random.Random(seed)
    names = ["a1", "a2", "a3", "b1", "b2", "b3"]
    spared, most = chance.choice([1, 2]), chance.choice([2, 3, 6])
    loads: dict[str, dict[str, int]] = {name: {} for name in names}
    objects = [nodes(*names, "c1", "c2")]
    for number in range(4):
        places = chance.choices(names, k=chance.randint(2, 4))
        # Others elsewhere, so that the budget spares just so many.
        app = f"w{number}"
        objects.append(one_each(app, *places, "c1", "c1", spared=spared))
        for place in places:
            loads[place][app] = loads[place].get(app, 0) + 1
    found = snapshot(*objects)
    limits = WaveOptions(max_parallel=most)
    best = fewest(names, loads, spared, most)
    bound = waves_bound(found, names, OPTIONS, limits).waves
    answer = make_wave_plan(found, names, OPTIONS, limits)
    assert bound <= best <= len(answer.waves)
    assert len(answer.waves) <= best + 1
    assert not replay(answer, found, limits).all()


# --- the judge ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good() -> tuple[DrainPlan, PlanSnapshot, WaveOptions]:
    found = cluster(30, 700, 3, 7)
    limits = WaveOptions(max_parallel=4, max_per_zone=2, maintenance_ns=MINUTE_NS)
    return make_wave_plan(found, sorted(found.nodes)[:9], OPTIONS, limits), found, limits


def test_the_judge_finds_nothing_wrong(good: tuple[DrainPlan, PlanSnapshot, WaveOptions]) -> None:
    assert not replay(*good).all()
    sequential = make_plan(good[1], sorted(good[1].nodes)[:3], OPTIONS)
    assert not replay(sequential, good[1]).all()


def test_the_judge_sees_a_broken_budget(good: tuple[DrainPlan, PlanSnapshot, WaveOptions]) -> None:
    answer = copy.deepcopy(good[0])
    for pod in answer.pods():
        if pod.start is not None:
            pod.start = 0.0
    assert replay(answer, *good[1:]).budgets_broken


def test_the_judge_sees_a_second_move(good: tuple[DrainPlan, PlanSnapshot, WaveOptions]) -> None:
    answer = copy.deepcopy(good[0])
    first = next(p for p in answer.waves[0].pods if p.landing and p.landing[0].node)
    later = answer.waves[-1].nodes[0]
    first.landing = [type(first.landing[0])(node=later)]
    assert replay(answer, *good[1:]).moved_twice


def test_the_judge_sees_limits_and_lost_pods(
    good: tuple[DrainPlan, PlanSnapshot, WaveOptions],
) -> None:
    assert replay(good[0], good[1], WaveOptions(1)).limits_broken
    answer = copy.deepcopy(good[0])
    answer.waves[0].pods.pop()
    assert replay(answer, *good[1:]).pods_missing


@pytest.mark.parametrize("cordon", [CORDON_FIRST, CORDON_BY_WAVE])
def test_a_plan_leaves_nothing_that_only_the_garbage_collector_would_find(cordon: str) -> None:
    found = cluster(60, 1200, 12, 1)
    asked = WaveOptions(max_parallel=3, cordon=cordon, maintenance_ns=MINUTE_NS)
    names = sorted(found.nodes)[:6]
    make_wave_plan(found, names, OPTIONS, asked)  # what is made once and kept
    gc.collect()
    gc.disable()
    try:
        pods = len(make_wave_plan(found, names, OPTIONS, asked).pods())
        assert (gc.collect(), pods > 10) == (0, True)
        pods = len(make_plan(found, names, OPTIONS).pods())
        assert (gc.collect(), pods > 10) == (0, True)
    finally:
        gc.enable()
