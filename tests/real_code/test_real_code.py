"""Seeded scenarios do here what they do with Kubernetes' own controllers on virtual time.

REAL_CONTROLLERS names the program that `.ci/real-controllers` builds; without it these tests are
skipped, unless NODELIFE_REAL=required. `--seeds` says how many are played.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import NEWEST, SWITCHES, parse_profile
from kubectl_nodelife.kubelet.releases import rules_for
from tests.real_code import deployments, owners, status_manager, status_sequences
from tests.real_code.generator import generate, with_failing_writes
from tests.real_code.joined import judge_joined
from tests.real_code.judge import AGAIN, FIRST, Facts, differences, judge, play_real, simulate
from tests.real_code.workload_scenario import NO_LIMIT, RELEASE
from tests.traces.compare import CONTROLLERS, MAIN_FIELDS, compare
from tests.traces.conftest import OWN_TRACES

DIFFERED = (40625, 40630, 41128, 61013)
"""Seeds beyond those that are played each time, which found something: a Lease that went while its
watch stood still, a status post just before another one, a Lease that went twice between two
passes, and a pod that came to a node with a NoExecute taint it does not tolerate.
"""

HELD_BY_CONTROLLERS = {
    "decide_on_current": 0,
    "requeue_untainted": 7,
    "pod_not_ready_event": 1,
    "lease_gate": 1,
    "noschedule_gate": 1,
    "beta_zone_labels_only": 5,
    "beta_labels_are_truth": 1,
    "gc_quarantine": 5,
    "lease_circuit_breaker": 0,
}
"""Row of SWITCHES -> a seed that tells it from its opposite."""

HELD_BY_THE_STATUS_MANAGER = (
    "request_per_change",
    "terminate_overwrites_all",
    "terminate_keeps_never_started",
    "terminate_sets_phase",
    "phase_waits_for_containers",
    "disruption_target",
    "terminal_not_ready",
    "sidecars",
    "started_means_initialized",
    "empty_patch_skipped",
    "resize_conditions",
    "restart_rules",
    "restart_all_containers",
    "lost_condition_differs",
)
"""Rows of kubelet/releases that forty sequences tell from their opposite."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a seed."""
    count = metafunc.config.getoption("--seeds")
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(count))
    if "seed_of_faults" in metafunc.fixturenames:
        metafunc.parametrize("seed_of_faults", range(count // 10))
    if "seed_to_join" in metafunc.fixturenames:
        metafunc.parametrize("seed_to_join", range(count // 4))
    if "seed_of_owners" in metafunc.fixturenames:
        metafunc.parametrize("seed_of_owners", range(count // 2))
    if "seed_of_a_deployment" in metafunc.fixturenames:
        metafunc.parametrize("seed_of_a_deployment", range(count // 5))


@pytest.fixture(scope="session")
def program() -> Path:
    """The real controllers; REAL_RELEASE is their profile where it is not the newest."""
    told = os.environ.get("REAL_CONTROLLERS", "")
    if told and Path(told).is_file():
        return Path(told)
    why = "REAL_CONTROLLERS names no program; .ci/real-controllers builds it"
    if os.environ.get("NODELIFE_REAL") == "required":
        pytest.fail(why)
    pytest.skip(why)


def test_a_seed_agrees_with_the_real_controllers(seed: int, program: Path, tmp_path: Path) -> None:
    verdict = judge(program, generate(seed), tmp_path)
    assert not verdict.real, f"files in {tmp_path}\n{verdict}"


@pytest.mark.parametrize("seed_of_old", DIFFERED)
def test_a_seed_that_differed_once_agrees(seed_of_old: int, program: Path, tmp_path: Path) -> None:
    verdict = judge(program, generate(seed_of_old), tmp_path)
    assert not verdict.real, f"files in {tmp_path}\n{verdict}"


@pytest.mark.parametrize("rule, seed_of_row", HELD_BY_CONTROLLERS.items())
def test_a_changed_row_of_the_switches_differs_from_the_real_controllers(
    rule: str, seed_of_row: int, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if RELEASE != NEWEST:
        pytest.skip("the seeds of the rows make these situations in the newest release alone")
    document = generate(seed_of_row)
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(document))
    real = Facts.of(play_real(program, scenario, tmp_path / "real.json", FIRST))
    before = differences(real, Facts.of(simulate(document)))
    never, always = (99, None), (0, None)
    monkeypatch.setitem(SWITCHES, rule, never if parse_profile(RELEASE).has(rule) else always)
    assert differences(real, Facts.of(simulate(document))).keys() - before.keys()


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
def test_refused_writes_have_the_same_consequences(
    controller: str, seed_of_faults: int, program: Path, tmp_path: Path
) -> None:
    """Retries with back-off, expectations, slow start, a status that is written once more; pods
    that could not be patched and so are not deleted, or marked in the next pass.
    """
    verdict = judge(program, with_failing_writes(seed_of_faults, controller), tmp_path)
    assert not verdict.real, f"files in {tmp_path}\n{verdict}"


def test_a_join_goes_on_as_the_real_controllers_do(
    seed_to_join: int, program: Path, tmp_path: Path
) -> None:
    """From an instant in the midst of a scenario on: nothing is known of it but its objects, with
    late kubelets, taints that stand, pods that start or end, and half-done roll-outs.
    """
    seeds = range(seed_to_join, 10**6, 1000)  # some have no instant that shows all there is to know
    verdicts = (judge_joined(program, generate(seed), tmp_path) for seed in seeds)
    verdict = next(verdict for verdict in verdicts if verdict is not None)
    assert not verdict.real, f"files in {tmp_path}\n{verdict}"


@pytest.mark.parametrize(
    "name", ["one-node-lost", "daemonset-rolling-update", "podgc-threshold-starting-pod"]
)
def test_the_real_controllers_on_virtual_time_do_what_was_recorded(
    name: str, program: Path, tmp_path: Path
) -> None:
    trace = OWN_TRACES / name
    flags = ("-admission=false", "-gc=false")
    scenario = tmp_path / "scenario.yaml"  # of v1.36; later releases do the same here
    told = (trace / "scenario.yaml").read_text()
    scenario.write_text(told.replace("profile: v1.36", f"profile: {RELEASE}"))
    played = play_real(program, scenario, tmp_path / "played.json", flags)
    outcome = compare(json.loads((trace / "timeline.json").read_bytes()), played)
    assert outcome.matched > 0
    assert not outcome.differences, "\n".join(["", *outcome.differences])


def test_a_deployment_rolls_out_as_its_real_controllers_do(
    seed_of_a_deployment: int, program: Path, tmp_path: Path
) -> None:
    """In one of upstream's own runs, where they differ among themselves: pods that become ready at
    one instant are counted in one sync or in two.
    """
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document := deployments.generate(seed_of_a_deployment)))
    ours = simulate(document)
    for flags in (FIRST, *AGAIN):
        real = play_real(program, path, tmp_path / "real.json", flags)
        scaled = deployments.scalings(real)
        assert scaled
        agrees = deployments.agree(scaled, deployments.scalings(ours))
        if agrees and deployments.pods_at_the_end(real) == deployments.pods_at_the_end(ours):
            return
    pytest.fail(f"no run of the real controllers does what ours does; files in {tmp_path}")


def test_owners_replace_pods_as_their_real_controllers_do(
    seed_of_owners: int, program: Path, tmp_path: Path
) -> None:
    """In one of upstream's own runs: of two owners that make a pod at one instant either may be the
    first whose pod is placed.
    """
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document := owners.generate(seed_of_owners)))
    ours, apart = simulate(document), list[str]()
    for flags in (FIRST, *AGAIN):
        real = play_real(program, path, tmp_path / "real.json", flags)
        apart = list(owners.differences(real, ours))
        if not apart:
            return
    pytest.fail(f"files in {tmp_path}\n" + "\n".join(apart))


def test_a_kubelet_reports_statuses_as_its_real_status_manager_does(
    seeds: range, program: Path, tmp_path: Path
) -> None:
    """Calls with their instants and answers, statuses that are written and that are cached."""
    sequences = [status_sequences.generate(seed) for seed in seeds]
    real = status_manager.play_real(program, sequences, tmp_path)
    apart = {
        seed: told
        for seed, sequence, record in zip(seeds, sequences, real, strict=True)
        if (told := status_manager.differences(sequence, record))
    }
    assert not apart, f"files in {tmp_path}"


def test_a_difference_of_the_status_manager_is_noticed(program: Path, tmp_path: Path) -> None:
    sequences = [status_sequences.generate(seed) for seed in range(10)]
    for sequence, record in zip(
        sequences, status_manager.play_real(program, sequences, tmp_path), strict=True
    ):
        call = record["calls"].pop()
        assert status_manager.differences(sequence, record)
        record["calls"].append({**call, "at": call["at"] + 10**6})
        assert status_manager.differences(sequence, record)


@pytest.mark.parametrize("rule", HELD_BY_THE_STATUS_MANAGER)
def test_a_changed_row_of_the_kubelets_table_differs_from_its_status_manager(
    rule: str, program: Path, tmp_path: Path
) -> None:
    sequences = [status_sequences.generate(seed) for seed in range(40)]
    rules = rules_for(parse_profile(RELEASE))
    changed = replace(rules, **{rule: not getattr(rules, rule)})
    assert any(
        status_manager.differences(sequence, record, changed)
        for sequence, record in zip(
            sequences, status_manager.play_real(program, sequences, tmp_path), strict=True
        )
    )


def test_an_event_comes_before_what_kubelets_do_at_its_instant(
    program: Path, tmp_path: Path
) -> None:
    """The kubelets fall silent at an instant at which all would renew: none does, so that all nodes
    are lost in one pass, as a seed found that put ten events there.
    """
    document = generate(3)
    spec = document["spec"]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"a{i}"}, "status": status}
        for i, status in enumerate([{"conditions": [ready]}] * 10)
    ]
    stop = {"nodes": [n["metadata"]["name"] for n in nodes], "heartbeats": "stop"}
    spec |= {"controllers": ["node-lifecycle"], "duration": "200s", "objects": nodes}
    spec["flags"] = {"node-monitor-grace-period": "67.5s", **NO_LIMIT}
    spec["kubelet"] = {"leaseRenewInterval": "5s", "leaseRenewPhase": "0.87s"}
    spec["events"] = [{"at": "90.87s", "kubelet": stop}]
    verdict = judge(program, document, tmp_path)
    assert not verdict.real
    assert not verdict.by_chance


def later(timeline: Any) -> None:
    timeline["records"][0]["at"] += 0.3


def less(timeline: Any) -> None:
    del timeline["records"][0]


def another_end(timeline: Any) -> None:
    timeline["final"]["nodes"][0]["ready"] = "Unknown"


@pytest.mark.parametrize("change", [later, less, another_end])
def test_a_difference_is_noticed(change: Any) -> None:
    document = generate(3)
    timeline: Any = simulate(document)
    first = next(r for r in timeline["records"] if r["action"] in MAIN_FIELDS)
    timeline["records"] = [first]
    same = json.loads(json.dumps(timeline))
    assert not differences(Facts.of(timeline), Facts.of(same))
    change(same)
    assert len(differences(Facts.of(timeline), Facts.of(same))) == 1


def test_what_the_real_controllers_do_twice_is_the_same(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(generate(1)))
    one, other = (
        Facts.of(play_real(program, path, tmp_path / f"{i}.json", FIRST)) for i in range(2)
    )
    assert not differences(one, other)
