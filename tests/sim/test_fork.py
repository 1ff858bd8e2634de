"""A world that is forked in the middle of a scenario: each branch goes on as if it were alone, and
a fork copies the same, however many objects the cluster has.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.drained import kubectl_of
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets, UpgradeEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.scenario import Scenario, Setting, assemble, parse_scenario
from kubectl_nodelife.sim.timeline import SCRIPT, NotForkableError
from tests.simulating import begin, play

SCENARIOS = Path(__file__).parents[1] / "scenarios"
DRAIN = DrainOptions(force=True, ignore_daemonsets=True, delete_emptydir_data=True)


def settings() -> dict[str, Setting]:
    """Each golden scenario, but for those of upgrades."""
    found = {}
    for path in sorted(SCENARIOS.glob("*.yaml")):
        scenario = parse_scenario(path.read_bytes(), path.name)
        if not any(isinstance(event.what, UpgradeEvent) for event in scenario.events):
            found[path.stem] = assemble(scenario)
    return found


SETTINGS = settings()


@pytest.mark.parametrize("name", SETTINGS)
def test_each_fork_ends_as_the_world_that_was_never_forked(name: str) -> None:
    whole = begin(SETTINGS[name])
    ticks, base = whole.play(), begin(SETTINGS[name])
    forks = []
    for _ in range(4):
        base.play(ticks // 5)
        forks += [base.fork(), base.fork().fork()]
    for fork in forks[::2]:
        fork.play(ticks // 7)  # the branches play in turns
    for branch in (base, *reversed(forks)):
        branch.play()
        assert branch.records() == whole.records()
        assert branch.world.api.store.pods == whole.world.api.store.pods
        assert branch.world.api.store.nodes == whole.world.api.store.nodes


def outage(zones: int = 3, nodes: int = 30, pods: int = 6) -> Setting:
    """One of the zones falls silent after a minute, and comes back four minutes later."""
    zone = Targets(selector=parse_selector("topology.kubernetes.io/zone=a"))
    falls = ScenarioEvent(MINUTE_NS, KubeletEvent(zone, "stop"), FieldPath("test"))
    rises = ScenarioEvent(7 * MINUTE_NS, KubeletEvent(zone, "start"), FieldPath("test"))
    return assemble(
        Scenario(
            file="test",
            name="fork",
            duration_ns=12 * MINUTE_NS,
            generate=Generate(zones=zones, nodes=nodes, pods_per_node=pods, seed=1),
            events=(falls, rises),
            controllers=("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", "pod-status"),
        )
    )


def drain(branch: Branch) -> None:
    """Somebody drains two nodes now."""
    nodes = list(branch.world.api.store.nodes.values())
    kubectl_of(branch.world).start([nodes[1], nodes[4]], DRAIN)


def test_what_is_done_in_one_branch_the_other_never_sees() -> None:
    """Also in the middle of a `kubectl drain`, whose process goes on in both."""
    setting = outage()
    without, drained = begin(setting), begin(setting)
    ticks = without.play()
    drained.play(ticks // 3)
    drain(drained)
    drained.play()
    assert "Drained" in {record.detail.get("reason") for record in drained.records()}

    base = begin(setting)
    base.play(ticks // 3)
    fork = base.fork()
    drain(fork)
    going = True
    while going:
        going = fork.step()
        half_way = fork.fork()
        going |= base.step()
    half_way.play()
    assert base.records() == without.records()
    assert fork.records() == half_way.records() == drained.records()


def blocks_of(branch: Branch) -> int:
    """How many blocks of memory a fork takes, which is how many objects it copies."""
    branch.fork()
    gc.collect()
    before = sys.getallocatedblocks()
    fork = branch.fork()
    taken = sys.getallocatedblocks() - before
    assert fork.world is not branch.world
    return taken


def bytes_of(branch: Branch) -> int:
    """How many bytes a fork takes."""
    tracemalloc.start()
    try:
        fork = branch.world.fork(branch.timeline)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fork is not branch.world
    return taken


@pytest.mark.parametrize("measure", [blocks_of, bytes_of])
def test_a_fork_copies_the_same_of_a_cluster_of_sixteen_times_the_size(
    measure: Callable[[Branch], int],
) -> None:
    few, many = begin(outage(nodes=60)), begin(outage(nodes=60 * 16))
    for branch in (few, many):
        while branch.world.api.now_ns < branch.timeline.start_ns + 50 * SECOND_NS:
            branch.step()
    assert len(many.world.api.store.pods) > 15 * len(few.world.api.store.pods)
    assert measure(many) <= 1.1 * measure(few)


def acts(branch: Branch) -> None:
    branch.world.agenda.add(branch.world.api.now_ns + SECOND_NS, SCRIPT, lambda _: None)


def listens(branch: Branch) -> None:
    branch.world.api.on_node(lambda old, new, cause: None)


@pytest.mark.parametrize("takes_part", [acts, listens])
def test_what_is_no_part_of_a_world_keeps_it_from_being_forked(
    takes_part: Callable[[Branch], None],
) -> None:
    """So do an upgrade's leaders and their work."""
    branch = begin(outage(nodes=6))
    takes_part(branch)
    with pytest.raises(NotForkableError):
        branch.fork()


def test_the_branches_play_what_the_command_plays() -> None:
    setting = SETTINGS["zone-outage"]
    branch = begin(setting)
    branch.play()
    run = play(setting)
    assert branch.records() == run.timeline.records(run.failures)
