"""A cluster with its own controllers and a daemon that watches it, played on virtual time.

The cluster is the sandbox's, called in the process; the daemon is the real decision task with the
real recorders of divergences and metrics. Its metrics are taken every fifteen seconds, as a scraper
would, and kept as series that `promtool test rules` reads.
"""

import asyncio
import contextlib
import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.daemon import divergence_recorder, gate
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.daemon.gate import NEEDS
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.metrics import WHAT_IF_BUCKETS
from kubectl_nodelife.daemon.metrics import recorder as metrics_recorder
from kubectl_nodelife.daemon.metrics.cluster_sample import sample_steps
from kubectl_nodelife.daemon.metrics.recorder import (
    ChangeCounts,
    Histogram,
    MetricsRecorder,
    Values,
)
from kubectl_nodelife.engine.engine import EngineHost
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.live.news import FAILING, WATCHING
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.sandbox.cluster import SandboxCluster
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.enforce.simulated_daemon import SimulatedWatches
from tests.enforce.virtual_time import VirtualLoop, World
from tests.sim.documents import document

STEP_S = 15
ALL = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")
Json = dict[str, Any]


class Situation(NamedTuple):
    """What happens to a cluster, and which alerts it fires.

    `spec`: of a scenario. `minutes`: how long it is played. `controllers`: those that run in the
    cluster. `cluster_flags`: what they assume, and our copy does not. `restarts_at`: when another
    daemon takes the place of the first. `unwatched`: from when to when the watches are down.
    `more`: values that the cluster does not give.
    """

    name: str
    alerts: set[str]
    spec: Json
    minutes: int = 10
    controllers: Sequence[str] = ALL
    cluster_flags: Mapping[str, object] = {}
    restarts_at: int = 0
    unwatched: tuple[int, int] | None = None
    more: Callable[[float], Values] = lambda at_s: {}


class PlayedCluster:
    """The sandbox's cluster with its controllers on virtual time, for `SimulatedWatches`.

    `pass_drift_ns`: by how much later than a period after the one before a monitor pass begins.
    """

    pass_drift_ns = 0

    def __init__(self, world: World, situation: Situation) -> None:
        self.world = world
        spec = {"profile": "v1.36", "time": "2026-01-01T00:00:00Z", **situation.spec}
        content = msgspec.json.encode(document(**spec))
        setting = assemble(parse_scenario(content, situation.name))
        settings = make_settings("v1.36", situation.cluster_flags)
        controllers = make_controllers(
            settings, situation.controllers, pass_drift_ns=self.pass_drift_ns
        )
        setting = setting.under(settings)
        self.cluster = SandboxCluster(setting, controllers, now_ns=lambda: world.now_ns)
        self.store = self.cluster.api.served
        self.changed: list[Callable[[], None]] = []
        self._host = EngineHost(self.cluster.engine, self.cluster.world)
        self._version = 0
        world.next_due, world.live = self._next_due, self.live
        self.live()

    def _next_due(self) -> int | None:
        cluster = self.cluster
        parts = (cluster.world.agenda.next_at(), cluster._renewals.next_due())
        due = [at_ns for at_ns in (self._host.next_due(), *parts) if at_ns is not None]
        return min(due, default=None)

    def live(self) -> None:
        """Let the cluster do what is due."""
        cluster, now_ns = self.cluster, self.world.now_ns
        while True:
            _, events = cluster.world.advance(now_ns)
            cluster._renewals.run(now_ns)
            events = [*events, *cluster.api.pending]
            cluster.api.pending = []
            deque(self._host.step(now_ns, list(cluster._react(events))), maxlen=0)
            due_ns = self._host.next_due()
            again = any(isinstance(e, Heartbeats) for e in events) or cluster.api.pending
            if not again and (due_ns is None or due_ns > now_ns):
                break
        if self.store.version != self._version:
            self._version = self.store.version
            for tell in self.changed:
                tell()


class _Journal:
    """A journal without a file: listeners are told at once."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.store = SimpleNamespace(path="/nonexistent")
        self.warning = self.error = ""
        self.dropped = 0

    def waiting(self) -> int:
        return 0


class PlayedDaemon:
    """A daemon in dry-run, as far as metrics are concerned."""

    def __init__(self, server: PlayedCluster, dice: random.Random) -> None:
        world = server.world
        self.feed = SimulatedWatches(server, dice)  # type: ignore[arg-type]
        clock = DaemonClock(
            lambda: world.now_ns,
            wall=lambda: world.now_ns,
            steady=lambda: world.steady_ns,
            awake=lambda: world.awake_ns,
        )
        self.journal: Any = _Journal()
        self.client: Any = SimpleNamespace(answers={"2xx": 1})
        self.cluster = WatchedCluster("0123456789abcdef0123", "here", "https://10.0.0.1:6443")
        settings = make_settings("v1.36")
        self.decisions = DecisionTask(
            self.feed,
            clock,
            self.journal.ledger,
            settings,
            list(NEEDS),
        )
        self.sources = Sources(self.cluster, self.client, self.decisions, self.journal)
        self.divergence = DivergenceRecorder(self.sources)
        self.metrics = MetricsRecorder(self.sources, self.divergence, None, _of_page_and_answers)
        self.metrics._counts = ChangeCounts(world.now_ns)
        self._store = server.store
        self.feed.relist(self.feed.states)
        self.task = asyncio.get_running_loop().create_task(self.decisions.run())

    def tell(self) -> None:
        """What the journal would tell, and the tick of the recorder of divergences."""
        _, _, changed = self.journal.ledger.take_batch()
        self.divergence.take(changed)
        self.metrics.take_changes(changed)
        self.divergence.note_watching(self.decisions.clock.now_ns())

    async def scrape(self) -> Values:
        """The metrics as of now."""
        if self.decisions.synced.is_set():
            self.metrics.take_sample(
                await sliced(sample_steps(self.sources.view(), per_node=False))
            )
            record, now_ns = self.metrics.observations()
            self.metrics.take_judgement(divergence_judgement(record, now_ns))
            budgets = self._store.collections["PodDisruptionBudget"].entries.values()
            found = [entry.obj for entry in budgets]
            self.metrics.take_budgets([b for b in found if isinstance(b, PodDisruptionBudget)])
        return self.metrics.values()

    async def end(self) -> None:
        self.feed.dead = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _of_page_and_answers() -> Values:
    return {
        "nodelife_ui_listeners": [((), 0)],
        "nodelife_what_if_duration_seconds": [((), Histogram(WHAT_IF_BUCKETS))],
    }


def play(situation: Situation) -> list[Values]:
    """The metrics of each scrape."""
    world = World()
    with on_its_clock(world):
        loop = VirtualLoop(world)
        try:
            return loop.run_until_complete(_play(situation, world))
        finally:
            loop.close()
            gc.enable()
            gc.unfreeze()


async def _play(situation: Situation, world: World) -> list[Values]:
    server, dice = PlayedCluster(world, situation), random.Random(1)
    daemon = PlayedDaemon(server, dice)
    scrapes: list[Values] = []
    for second in range(1, situation.minutes * 60 + 1):
        await asyncio.sleep(1)
        if daemon.task.done():
            daemon.task.result()
        if situation.unwatched is not None:
            _cut(daemon, second, *situation.unwatched)
        if second == situation.restarts_at:
            await daemon.end()
            daemon = PlayedDaemon(server, dice)
        daemon.tell()
        if second % STEP_S == 0:
            scrapes.append({**await daemon.scrape(), **situation.more(second)})
    await daemon.end()
    return scrapes


def _cut(daemon: PlayedDaemon, second: int, begin: int, end: int) -> None:
    if second == begin:
        for kind, state in daemon.feed.states.items():
            daemon.feed.break_off(kind, (end - begin) * SECOND_NS, relist=True)
            state.phase = FAILING
    if second == end:
        for state in daemon.feed.states.values():
            state.phase = WATCHING


@contextlib.contextmanager
def on_its_clock(world: World) -> Iterator[None]:
    clock = SimpleNamespace(
        monotonic=lambda: world.awake_ns / 1e9,
        monotonic_ns=lambda: world.awake_ns,
        thread_time=time.thread_time,
        perf_counter=time.perf_counter,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (gate, metrics_recorder, divergence_recorder):
            if hasattr(module, "time"):
                patch.setattr(module, "time", clock)
        yield
