"""Simulating a scenario in a test: as the command does it, or tick by tick, to be forked."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.loop import EngineHost
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.run import PASS_DRIFT_NS, Run, run
from kubectl_nodelife.sim.scenario import Scenario, Setting, assemble
from kubectl_nodelife.sim.scenario_document import parse_scenario
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.story import Story, tell
from kubectl_nodelife.sim.timeline import Record, Timeline
from kubectl_nodelife.sim.upgrade_reading import UpgradeEvent
from kubectl_nodelife.sim.world import Faults, World
from kubectl_nodelife.upgrade.simulated import decider_for


def simulate_file(path: Path) -> Story:
    """The story of a scenario in a file; one without a snapshot."""
    return simulate_scenario(parse_scenario(path.read_bytes(), path.name))


def simulate_scenario(scenario: Scenario) -> Story:
    """The story of a scenario without a snapshot."""
    setting = assemble(scenario)
    return tell(play(setting), make_settings(setting.profile, scenario.flags))


def play(setting: Setting, faults: Faults | None = None, until_ns: int | None = None) -> Run:
    """Run a setting with fresh controllers, to its end or for so long."""
    settings = make_settings(setting.profile, setting.scenario.flags)
    setting = setting.under(settings)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    upgrades = any(isinstance(event.what, UpgradeEvent) for event in setting.scenario.events)
    decider = decider_for(settings) if upgrades else None
    return run(setting, controllers, until_ns=until_ns, faults=faults, make_decider=decider)


class Branch:
    """A scenario that is played tick by tick, and can be forked between two of them."""

    def __init__(self, world: World, engine: Engine, timeline: Timeline) -> None:
        self.world, self.engine, self.timeline = world, engine, timeline
        self._host = EngineHost(engine, world, timeline)

    @classmethod
    def begin(cls, setting: Setting) -> Branch:
        """Before the first tick."""
        scenario, timeline = setting.scenario, Timeline(setting.start_ns)
        settings = make_settings(setting.profile, scenario.flags)
        setting = setting.under(settings)
        controllers = make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)
        api = Api(timeline, setting.start_ns, setting.cluster.copy())
        api.admission = setting.admission
        world = World(
            api,
            setting.scenario.kubelet,
            end_ns=setting.start_ns + scenario.duration_ns,
            kinds_read=setting.kinds_read,
            status_rules=setting.status_rules,
        )
        Script(world, scenario.events)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        listed = world.begin(kinds)
        engine = Engine(
            controllers, listed, join=scenario.join, kinds=kinds, numbers=world.api.numbers
        )
        return cls(world, engine, timeline)

    def fork(self) -> Branch:
        """Another one at the same point."""
        timeline = self.timeline.fork()
        world = self.world.fork(timeline)
        return Branch(world, self.engine.fork(world.api.numbers), timeline)

    def step(self) -> bool:
        """Play one tick; whether there was one."""
        tick = self.world.next(self._host.next_due())
        if tick is not None:
            deque(self._host.step(*tick), maxlen=0)
        return tick is not None

    def play(self, ticks: int | None = None) -> int:
        """Play so many ticks, or to the end; how many there were."""
        played = 0
        while played != ticks and self.step():
            played += 1
        return played

    def records(self) -> list[Record]:
        """What has happened so far."""
        return self.timeline.records(self.world.failures)
