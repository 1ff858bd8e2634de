"""The recorded drains of real clusters, played as scenarios: the world that everything else shares.

What `tests/drain/test_recorded.py` asks of the planner is asked of `drain:` here. The kubelet that
was stopped in one of them is stopped here too.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.drained import kubectl_of
from kubectl_nodelife.sim.events import DrainEvent, KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.run import RunSummary, summarize_run
from kubectl_nodelife.sim.scenario import Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.timeline import Record
from tests.drain.recorded import DRAINS, Recorded, alike, counted, read
from tests.sim.documents import found
from tests.simulating import begin, play

NAMES = sorted(folder.name for folder in DRAINS.iterdir() if (folder / "outcome.json").exists())


def setting_of(name: str, recorded: Recorded, *, drained: bool) -> Setting:
    """The cluster that was recorded; `drained`: a user runs the command at once."""
    here = FieldPath("recorded")
    nodes = Targets(nodes=recorded.nodes)
    events = [ScenarioEvent(0, DrainEvent(nodes, recorded.options), here)] if drained else []
    if name == "dead-kubelet":
        events.insert(0, ScenarioEvent(0, KubeletEvent(nodes, "stop"), here))
    scenario = Scenario("recorded", name, join=True, events=tuple(events))
    dump = read_dump([str(DRAINS / name / "cluster.json")])
    kinds = frozenset(kind.name for kind in KINDS) if dump.complete else dump.kinds_read
    given = Given(dump.objects, frozenset(kinds), recorded.snapshot.now_ns)
    return assemble(scenario, given)


@cache
def played(name: str) -> tuple[Recorded, RunSummary]:
    recorded = read(DRAINS / name)
    setting = setting_of(name, recorded, drained=True)
    run = play(setting)
    return recorded, summarize_run(run, make_settings(setting.profile, {}))


def named(record: Record) -> str:
    return f"{record.object.namespace}/{record.object.name}"


@pytest.mark.parametrize("name", NAMES)
def test_how_it_ends(name: str) -> None:
    recorded, told = played(name)
    ends = [found(told, "RecordEvent", reason=f"Drain{how}") for how in ("ed", "Failed", "Refused")]
    drained, failed, refused = ([r.object.name for r in records] for records in ends)
    outcome = recorded.outcome
    if outcome["exitCode"] == 0:
        assert drained == list(recorded.nodes)
    elif outcome["accepted"] or outcome["refused"]:
        assert failed or len(drained) < len(recorded.nodes)
        assert not refused
    else:
        assert refused


@pytest.mark.parametrize("name", NAMES)
def test_who_is_evicted(name: str) -> None:
    recorded, told = played(name)
    evicted = [
        named(r)
        for r in found(told, "SetPodCondition", type="DisruptionTarget", controller="cluster")
    ]
    accepted = [accepted["pod"] for accepted in recorded.outcome["accepted"]]
    assert counted(recorded, evicted) == counted(recorded, accepted)
    refused = {
        alike(recorded, named(r)) for r in found(told, "RecordEvent", reason="EvictionRefused")
    }
    assert refused == {alike(recorded, r["pod"]) for r in recorded.outcome["refused"]}


@pytest.mark.parametrize("name", NAMES)
def test_how_long_it_takes(name: str) -> None:
    """A second less for each node: a simulated pod is gone when its grace is over, and not a moment
    later, so that kubectl's look at that second finds it gone already.
    """
    recorded, told = played(name)
    if recorded.outcome["exitCode"] == 0:
        end = found(told, "RecordEvent", reason="Drained")[-1].at
        assert -0.1 < recorded.outcome["seconds"] - end < 1.1 * len(recorded.nodes)


def printed(name: str, recorded: Recorded) -> list[tuple[str, bool]]:
    """What the simulated kubectl prints, and whether on stderr."""
    branch = begin(setting_of(name, recorded, drained=False))
    lines: list[tuple[str, bool]] = []
    nodes = [branch.world.api.store.nodes[node] for node in recorded.nodes]
    kubectl_of(branch.world).start(
        nodes, recorded.options, lambda line, is_error: lines.append((line, is_error))
    )
    branch.play()
    return lines


def alike_lines(recorded: Recorded, lines: Iterable[str]) -> Counter[str]:
    """The lines, with pods of one controller under one name. Which of them a budget lets go, and in
    which order kubectl's threads come to them, is chance.
    """
    names = {
        pod.name: str(hash(alike(recorded, f"{pod.namespace}/{pod.name}")))
        for pod in recorded.snapshot.all_of(Pod)
    }
    found = []
    for line in lines:
        for name, other in names.items():
            line = line.replace(name, other)
        found.append(line)
    return Counter(found)


@pytest.mark.parametrize("name", NAMES)
def test_it_prints_what_kubectl_printed(name: str) -> None:
    """Both streams, to the letter. The live session prints by the same code."""
    recorded = read(DRAINS / name)
    lines = printed(name, recorded)
    for stream, is_error in (("stdout", False), ("stderr", True)):
        ours = alike_lines(recorded, [line for line, error in lines if error == is_error])
        assert ours == alike_lines(recorded, recorded.outcome[stream])
