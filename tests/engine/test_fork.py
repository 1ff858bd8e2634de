"""An engine that is forked in the middle of an outage: both branches go on as if they had never
been one, and a fork costs the same however many objects there are.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.engine import Engine, EngineHost, drive
from kubectl_nodelife.engine.events import Event
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting, assemble
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.world import World

LOST_NS = MINUTE_NS
FORKED_NS = 4 * MINUTE_NS
BACK_NS = 5 * MINUTE_NS
END_NS = 12 * MINUTE_NS

Tick = tuple[int, list[Event]]


class Recorder(EngineHost):
    """A host that keeps what the engine was told, tick by tick, and what it decided."""

    def __init__(self, engine: Engine, world: World) -> None:
        super().__init__(engine, world)
        self.ticks: list[Tick] = []
        self.decided: list[list[Action]] = []

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        events = list(events)
        self.ticks.append((now_ns, events))
        self.decided.append([])
        for actions in super().step(now_ns, events):
            self.decided[-1] += actions
            yield actions


def scenario(nodes: int, pods: int, *, comes_back: bool) -> Setting:
    """One of three zones falls silent, and may come back. Runs of one size begin with the very same
    objects: an engine that is told the ticks of another run knows the objects of that.
    """
    zone = Targets(selector=parse_selector("topology.kubernetes.io/zone=a"))
    events = [ScenarioEvent(LOST_NS, KubeletEvent(zone, "stop"), FieldPath("test"))]
    if comes_back:
        events.append(ScenarioEvent(BACK_NS, KubeletEvent(zone, "start"), FieldPath("test")))
    told = Scenario(
        file="test", name="fork", duration_ns=END_NS, events=tuple(events), controllers=ALL
    )
    return replace(generated(nodes, pods), scenario=told)


@cache
def generated(nodes: int, pods: int) -> Setting:
    """A cluster of three zones."""
    generate = Generate(zones=3, nodes=nodes, pods_per_node=pods, seed=1)
    return assemble(Scenario(file="test", name="fork", duration_ns=END_NS, generate=generate))


ALL = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", "pod-status")


def begin(setting: Setting) -> tuple[Engine, World]:
    """A world and its engine, before the first tick."""
    api = Api(Timeline(setting.start_ns), setting.start_ns, setting.cluster.copy())
    end_ns = setting.start_ns + setting.scenario.duration_ns
    world = World(
        api,
        setting.scenario.kubelet,
        end_ns=end_ns,
        status_rules=setting.status_rules,
    )
    Script(world, setting.scenario.events)
    settings = make_settings(setting.profile, {})
    controllers = make_controllers(settings, ALL, pass_drift_ns=PASS_DRIFT_NS)
    kinds = sorted({kind for c in controllers for kind in c.watches})
    return Engine(controllers, world.begin(kinds), kinds=kinds), world


def lived(setting: Setting) -> Recorder:
    """The run of an engine that is never forked."""
    engine, world = begin(setting)
    recorder = Recorder(engine, world)
    drive(world.next, recorder)
    world.end()
    return recorder


def hold(engine: Engine, tick: Tick, decided: list[Action]) -> None:
    """The engine decides the same in this tick, under the same numbers."""
    actions = list(engine.step(*tick))
    assert [action.id for action in actions] == [action.id for action in decided]
    assert actions == decided


def hold_caches(engine: Engine, other: Engine) -> None:
    """Both show the same, in the same order."""
    mine, theirs = engine.cache, other.cache
    assert list(mine.nodes.items()) == list(theirs.nodes.items())
    assert list(mine.pods.items()) == list(theirs.pods.items())
    assert mine.pod_counts() == theirs.pod_counts()
    for kind in theirs.objects:
        assert list(mine.all(kind)) == list(theirs.all(kind))


def test_two_branches_of_an_outage_of_5000_nodes_are_as_two_runs() -> None:
    dark = lived(scenario(5000, 2, comes_back=False))
    back = lived(scenario(5000, 2, comes_back=True))
    engine, _ = begin(scenario(5000, 2, comes_back=False))
    start_ns = dark.ticks[0][0]
    fork_at = next(i for i, tick in enumerate(dark.ticks) if tick[0] > start_ns + FORKED_NS)
    for i in range(fork_at):
        hold(engine, dark.ticks[i], dark.decided[i])
    assert back.decided[:fork_at] == dark.decided[:fork_at]
    assert back.decided[fork_at:] != dark.decided[fork_at:]

    branch = engine.fork()
    for i in range(fork_at, max(len(dark.ticks), len(back.ticks))):  # in turns
        if i < len(dark.ticks):
            hold(engine, dark.ticks[i], dark.decided[i])
        if i < len(back.ticks):
            hold(branch, back.ticks[i], back.decided[i])
    hold_caches(engine, dark.engine)
    hold_caches(branch, back.engine)
    assert engine.next_due() == dark.engine.next_due()
    assert branch.next_due() == back.engine.next_due()


def test_a_fork_of_a_fork_does_not_touch_what_it_came_from() -> None:
    run = lived(scenario(60, 4, comes_back=True))
    engine, _ = begin(scenario(60, 4, comes_back=True))
    waiting: list[tuple[int, Engine]] = []
    for i, tick in enumerate(run.ticks):
        if i % 40 == 7:
            waiting.append((i, engine.fork()))
            engine = engine.fork()
        hold(engine, tick, run.decided[i])
    for began, fork in waiting:
        for i in range(began, len(run.ticks)):
            hold(fork, run.ticks[i], run.decided[i])
        hold_caches(fork, run.engine)


def settled(nodes: int, pods: int) -> Engine:
    """An engine that has watched a healthy cluster for a minute."""
    engine, world = begin(scenario(nodes, pods, comes_back=False))
    host = EngineHost(engine, world)
    end_ns = world.api.now_ns + 50 * SECOND_NS
    while (tick := world.next(host.next_due())) is not None and tick[0] < end_ns:
        for _ in host.step(*tick):
            pass
    return engine


def seconds_of_a_fork(engine: Engine) -> float:
    """The shortest of many."""
    took = []
    for _ in range(60):
        began = time.perf_counter()
        engine.fork()
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.mark.parametrize("times", [16])
def test_a_fork_costs_the_same_with_so_many_times_more_objects(times: int) -> None:
    few, many = settled(200, 10), settled(200 * times, 10)
    assert len(many.cache.pods) > (times - 1) * len(few.cache.pods)
    assert seconds_of_a_fork(many) < 3 * seconds_of_a_fork(few)
