"""A world with its controllers, played tick by tick on virtual time, and forked between two ticks.

Every play is one: `simulate` plays a scenario's to its end, a forecast forks that of the present.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Synced
from kubectl_nodelife.engine.loop import EngineHost
from kubectl_nodelife.sim.api import Api, told
from kubectl_nodelife.sim.attached_volumes import AttachedVolumes
from kubectl_nodelife.sim.defaults import DefaultTolerationSeconds
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.failing_writes import failing_writes
from kubectl_nodelife.sim.joined import joined_cluster, joined_kubelets
from kubectl_nodelife.sim.preemption import Preemption
from kubectl_nodelife.sim.scenario import Setting
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.timeline import Record, Timeline
from kubectl_nodelife.sim.world import Faults, World


class Branch:
    """See the module. `timeline` is what has happened on it since t=0."""

    def __init__(self, world: World, engine: Engine, timeline: Timeline) -> None:
        self.world, self.engine, self.timeline = world, engine, timeline
        self.host = EngineHost(engine, world, timeline)

    @classmethod
    def begin(
        cls,
        setting: Setting,
        controllers: Sequence[Controller],
        *,
        duration_ns: int | None = None,
        faults: Faults | None = None,
    ) -> Branch:
        """Before the first tick. `controllers`: fresh ones; `duration_ns`: the scenario's, if None.

        The events of t=0 are still to come, so that a fork may have others before them.
        """
        scenario, timeline = setting.scenario, Timeline(setting.start_ns)
        length_ns = scenario.duration_ns if duration_ns is None else duration_ns
        cluster = joined_cluster(setting) if scenario.join else setting.cluster.copy()
        api = Api(timeline, setting.start_ns, cluster)
        api.admission = setting.admission
        api.stamped = setting.stamped or setting.admission
        world = World(
            api,
            scenario.kubelet,
            end_ns=setting.start_ns + length_ns,
            kinds_read=setting.kinds_read,
            faults=faults,
            failing=failing_writes(scenario.failing_writes, setting.start_ns),
            status_rules=setting.status_rules,
            scoring=setting.scoring,
        )
        Script(world, scenario.events, setting.profile)
        Preemption(world, marks=setting.profile.has("disruption_target"))
        AttachedVolumes(world, setting.kinds_read)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        listed = world.begin(kinds, joined_kubelets(setting) if scenario.join else None)
        engine = Engine(controllers, listed, join=scenario.join, kinds=kinds, numbers=api.numbers)
        return cls(world, engine, timeline)

    def fork(self) -> Branch:
        """Another one at the same point. Raises NotForkableError."""
        timeline = self.timeline.fork()
        world = self.world.fork(timeline)
        return Branch(world, self.engine.fork(world.api.numbers), timeline)

    def prepare(self) -> None:
        """Find once what each of many forks would find for itself: nodes for each class of pods."""
        self.world.scheduler.placement.prepare(self.world.api.store.pods.values())

    @property
    def script(self) -> Script:
        """The acts of people in it."""
        found = self.world.agenda.parts[Script]
        assert isinstance(found, Script)
        return found

    def add(self, events: Iterable[ScenarioEvent]) -> None:
        """Let these happen as well, each so long after now as it says."""
        self.script.add(events)

    def step(self) -> bool:
        """Play one tick; whether there was one."""
        tick = self.world.next(self.host.next_due())
        if tick is not None:
            deque(self.host.step(*tick), maxlen=0)
        return tick is not None

    def restart(
        self, controllers: Sequence[Controller], at_ns: int, admission: DefaultTolerationSeconds
    ) -> None:
        """Play up to that instant, at which the controllers are started anew, as these, and pods
        begin to get other tolerations."""
        world = self.world
        if at_ns > world.api.now_ns:
            self.play_to(at_ns - 1)
        if at_ns > world.end_ns:
            return
        kinds = sorted({kind for c in controllers for kind in c.watches})
        world.advance(at_ns)
        why = "kube-controller-manager is started anew"
        api = world.api
        api.note(told(("Controllers", "", "kube-controller-manager"), "Restarted", why))
        api.admission = admission
        world.kubelets.tell_of_all(None)
        api.pending.extend(Synced(kind) for kind in kinds)
        self.engine = Engine(controllers, api.store.copy(), kinds=kinds, numbers=api.numbers)
        self.host = EngineHost(self.engine, world, self.timeline)

    def due(self) -> Iterator[tuple[int, str]]:
        """(instant, whose it is) of all that is still to happen, but for rounds that look at
        nothing: controllers by name, parts of the world by their class."""
        yield from self.world.agenda.due()
        yield from ((at_ns, name) for at_ns, name, _ in self.engine.due())

    @property
    def rests(self) -> bool:
        """True if nothing happens any more: all that is due are heartbeats, and rounds of
        controllers that look at nothing."""
        return self.world.rests and self.engine.rests

    def play_to(self, at_ns: int) -> None:
        """Play all that happens up to that instant, itself included."""
        world = self.world
        end_ns, world.end_ns = world.end_ns, min(world.end_ns, at_ns)
        self.play()
        world.end_ns = end_ns

    def play_until_quiet(self) -> None:
        """Play until nothing happens any more, or to the end."""
        while not self.rests and self.step():
            pass

    def play(self, ticks: int | None = None) -> int:
        """Play so many ticks, or to the end; how many there were."""
        played = 0
        while played != ticks and self.step():
            played += 1
        return played

    def records(self) -> list[Record]:
        """The records of all that has happened so far."""
        return self.timeline.records(self.world.failures)
