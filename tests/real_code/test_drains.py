"""Seeded drains do here what they do with the real kubectl, Eviction API and disruption controller.

Like `test_real_code.py`, whose program plays them.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl import drain
from tests.real_code import drain_plans, drains, evictions
from tests.real_code.judge import FIRST, Difference, Key, play_real, simulate
from tests.real_code.owners import pod_of
from tests.real_code.test_real_code import program
from tests.real_code.workload_scenario import RELEASE, ready_node, scenario

__all__ = ["program"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a seed."""
    for name in {"seed_of_a_drain", "seed_of_a_plan"} & set(metafunc.fixturenames):
        metafunc.parametrize(name, range(metafunc.config.getoption("--seeds")))


def test_a_drain_goes_as_the_real_one(seed_of_a_drain: int, program: Path, tmp_path: Path) -> None:
    apart = differences_of(drains.generate(seed_of_a_drain), program, tmp_path)
    assert not apart, f"files in {tmp_path}\n" + "\n".join(apart)


ONCE_APART = (110, 112, 256, 288, 449, 546, 561, 580, 813, 972, 1164, 1721)
"""Seeds that have shown a kind of difference: a Job's finalizer, its syncs and the failure of its
pods; a conflict at a budget while another drain evicts the pod; an eviction after --timeout; a GET
of each node that kubectl is given.
"""


@pytest.mark.parametrize("seed", ONCE_APART)
def test_a_kind_of_difference_does_not_come_back(seed: int, program: Path, tmp_path: Path) -> None:
    apart = differences_of(drains.generate(seed), program, tmp_path)
    assert not apart, f"files in {tmp_path}\n" + "\n".join(apart)


@pytest.mark.parametrize("count", [1, 2, 5, 14, 25])
def test_the_first_eviction_comes_when_all_nodes_are_read_and_cordoned(
    count: int, program: Path, tmp_path: Path
) -> None:
    """Two clients of kubectl's, each with a rate limit: one that reads and one that cordons."""
    names, grace = [f"n{i:02}" for i in range(count)], {"terminationGracePeriodSeconds": 1}
    container = {"name": "c", "image": "registry.example/app:1"}
    bare = pod_of(None, "bare", {}, {**grace, "containers": [container], "nodeName": names[0]})
    event = {"at": "12s", "drain": {"nodes": names, "force": True}}
    kubelet = {"podStartDuration": "2s", "podStopDuration": "1.5s"}
    objects = [*map(ready_node, names), bare]
    document = scenario(f"{count}-nodes", 60, {}, kubelet, objects, [event])
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document))
    real = play_real(program, path, tmp_path / "real.json", FIRST)
    ((theirs,), (ours,)) = (
        drains.facts(timeline, document)["evicted", "bare"]
        for timeline in (real, simulate(document))
    )
    assert ours == pytest.approx(theirs, abs=0.02)


def differences_of(document: dict[str, Any], program: Path, folder: Path) -> list[str]:
    """Each fact that none of upstream's own runs shares with ours. A run throws several coins: the
    one that throws them all as ours may be one of hundreds, while each fact hangs on few.
    """
    path = folder / "scenario.json"
    path.write_text(json.dumps(document))
    ours, apart = simulate(document), dict[Key, Difference]()
    for i, flags in enumerate(drains.RUNS):
        real = play_real(program, path, folder / "real.json", flags)
        found = drains.differences(document, real, ours)
        apart = {key: found[key] for key in found if i == 0 or key in apart}
        if not apart:
            break
    return [f"{' '.join(key)}: {difference.text}" for key, difference in apart.items()]


def test_an_eviction_is_answered_as_by_the_real_api(
    seeds: range, program: Path, tmp_path: Path
) -> None:
    """Twenty for each seed, of any pod under budgets in any state."""
    names_budget = parse_profile(RELEASE).has("refusals_name_budget")
    cases = [evictions.generate(seed) for seed in range(20 * seeds.start, 20 * seeds.stop)]
    apart = {
        json.dumps(case): told
        for case, real in zip(cases, evictions.play_real(program, cases, tmp_path), strict=True)
        if (told := list(evictions.differences(case, real, names_budget=names_budget)))
    }
    assert not apart, f"files in {tmp_path}"


def test_a_plan_is_what_then_happens(seed_of_a_plan: int, program: Path, tmp_path: Path) -> None:
    """Made of the objects that there are when the drain begins, in one of upstream's own runs."""
    apart = differences_of_the_plan(drain_plans.generate(seed_of_a_plan), program, tmp_path)
    assert not apart, f"files in {tmp_path}\n" + "\n".join(apart)


def differences_of_the_plan(document: dict[str, Any], program: Path, folder: Path) -> list[str]:
    """None where one of the real runs agrees, else those of the last."""
    apart = list[str]()
    for flags in drains.RUNS:
        real = drain_plans.real_drain(document, program, folder, flags)
        apart = list(drain_plans.differences(real, drain_plans.plan_of(document, folder)))
        if not apart:
            break
    return apart


@pytest.mark.parametrize(
    "change",
    [
        {"exit": False},
        {"seconds": (0.0, 0.1)},
        {"evicted": Counter()},
        {"at_once": Counter()},
        {"refused": {"another"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_plan_that_says_something_else_is_noticed(
    change: dict[str, Any], program: Path, tmp_path: Path
) -> None:
    document = refused_once(drain_plans.generate)
    real = drain_plans.real_drain(document, program, tmp_path, FIRST)
    plan = drain_plans.plan_of(document, tmp_path)
    assert real.exit and not list(drain_plans.differences(real, plan))
    assert list(drain_plans.differences(real, plan._replace(**change)))


def test_another_pause_before_a_retry_is_noticed(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubectl asks again after 5 s."""
    document = refused_once()
    assert not differences_of(document, program, tmp_path)
    monkeypatch.setattr(drain, "EVICTION_RETRY_NS", 6 * SECOND_NS)
    assert differences_of(document, program, tmp_path)


@pytest.mark.parametrize("change", ["later", "less", "another end"])
def test_a_difference_is_noticed(change: str) -> None:
    document = refused_once()
    ours: Any = simulate(document)
    same = json.loads(json.dumps(ours))
    assert not drains.differences(document, ours, same)
    told = [r for r in same["records"] if (r["detail"] or {}).get("reason") == "EvictionRefused"]
    if change == "later":
        told[0]["at"] += 0.3
    elif change == "less":
        same["records"].remove(told[0])
    else:
        same["final"]["podList"][0]["terminating"] ^= True
    assert drains.differences(document, ours, same)


def refused_once(generate: Callable[[int], dict[str, Any]] = drains.generate) -> dict[str, Any]:
    """The first seed of a drain of which an eviction is refused before it is accepted."""
    for seed in range(100):
        document = generate(seed)
        facts = drains.facts(simulate(document), document)
        refused = {key[1]: min(times) for key, times in facts.items() if key[0] == "refused"}
        accepted = {key[1]: max(times) for key, times in facts.items() if key[0] == "evicted"}
        if any(accepted.get(owner, 0) > at for owner, at in refused.items()):
            return document
    raise AssertionError("no seed has one")
