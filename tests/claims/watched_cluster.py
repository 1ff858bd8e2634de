"""A random cluster with its controllers, and a daemon that watches it, on virtual time.

The cluster is the sandbox's, the daemon its real decision task and recorder of divergences. What
goes wrong is planted: writes that are withheld, a manager that stops or has other settings, a
person who writes. The judge (`test_divergence.py`) knows what was planted and asks what is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.daemon.gate import NEEDS
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine, EngineHost
from kubectl_nodelife.engine.events import Put, Synced
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS, format_micro_time
from kubectl_nodelife.live.client import Client, api_error
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.outlook.diverge.judgement import divergence_document, divergence_judgement
from kubectl_nodelife.sandbox.store import StoredObject
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS
from kubectl_nodelife.sim.world import InjectedFault
from tests.enforce.simulated_daemon import SimulatedWatches
from tests.enforce.virtual_time import EPOCH_NS, VirtualLoop, World
from tests.metrics.played import ALL, PlayedCluster, Situation, on_its_clock

Document = dict[str, Any]
PROFILE = "v1.36"
LEASE_S = 15
"""How long the manager's Lease lasts; it is renewed every two seconds."""


class Stage(NamedTuple):
    """What a plant has in its hands: the cluster, the daemons (the last one watches), the dice."""

    server: Managed
    daemons: list[Watcher]
    dice: random.Random

    @property
    def now_s(self) -> float:
        return (self.server.world.now_ns - EPOCH_NS) / SECOND_NS


class Story(NamedTuple):
    """A cluster and what happens. `flags`: what the daemon assumes; `real_flags`: of the cluster's
    controllers, where they are others. `hands`: (seconds, what is done then) beside the events of
    `spec`. `lease`: "held", "absent" or "forbidden". `begins_s`: when the daemon begins.
    """

    spec: Document
    flags: dict[str, str]
    seconds: int
    real_flags: dict[str, str] | None = None
    controllers: Sequence[str] = ALL
    hands: Sequence[tuple[float, Callable[[Stage], None]]] = ()
    lease: str = "held"
    begins_s: float = 0.0


class Look(NamedTuple):
    """What `diverge -o json` says at an instant, and the uids of the pods and nodes there are."""

    at_s: float
    told: Document
    there: frozenset[str]


class Managed(PlayedCluster):
    """The cluster with a manager that can be stopped and replaced, and writes that can fail."""

    pass_drift_ns = PASS_DRIFT_NS

    def __init__(self, world: World, story: Story) -> None:
        flags = story.flags if story.real_flags is None else story.real_flags
        self.settings = make_settings(PROFILE, flags)
        self.names = story.controllers
        self.holder, self.stopped_ns, self.lease = "cm-1", 0, story.lease
        self.acquired_ns = world.now_ns
        self.withheld: list[Callable[[Action, int], bool]] = []
        self.writes: list[tuple[float, Action]] = []
        super().__init__(world, Situation("", set(), story.spec, 0, story.controllers, flags))
        self.cluster.world._faults = self._fault

    def _fault(self, action: Action, now_ns: int) -> InjectedFault | None:
        if any(is_withheld(action, now_ns) for is_withheld in self.withheld):
            return InjectedFault(500, "it is withheld")
        if action.writes:
            self.writes.append(((now_ns - EPOCH_NS) / SECOND_NS, action))
        return None

    def stop_manager(self) -> None:
        """It is killed: it neither writes nor renews its Lease."""
        self.stopped_ns = self.world.now_ns
        self.cluster.world.restart_clients(None)
        self._host = cast(EngineHost, Nobody())

    def start_manager(self, holder: str) -> None:
        """Another process leads."""
        self.holder, self.stopped_ns, self.acquired_ns = holder, 0, self.world.now_ns
        api, world = self.cluster.api, self.cluster.world
        controllers = make_controllers(self.settings, self.names, pass_drift_ns=PASS_DRIFT_NS)
        kinds = sorted({kind for one in controllers for kind in one.watches})
        world.restart_clients(pace_of(self.settings))
        api.pending = [Synced(kind) for kind in kinds]
        listed = Cache()
        for kind in kinds:
            for entry in self._entries(kind):
                listed.apply(Put(kind, entry.obj), api.now_ns)
        self._host = EngineHost(Engine(controllers, listed, kinds=kinds), world)
        self.live()

    def uids(self) -> frozenset[str]:
        """Of the nodes and pods that there are."""
        return frozenset(e.obj.uid for kind in ("Node", "Pod") for e in self._entries(kind))

    def _entries(self, kind: str) -> list[StoredObject]:
        collection = self.store.collections.get(kind)
        return list(collection.entries.values()) if collection is not None else []

    def leases(self) -> bytes:
        """The manager's Lease, as a list with its name as field selector returns it."""
        now_ns = self.stopped_ns or self.world.now_ns
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": format_micro_time(self.acquired_ns),
            "renewTime": format_micro_time(now_ns - now_ns % (2 * SECOND_NS)),
        }
        lease = {"metadata": {"name": "kube-controller-manager"}, "spec": spec}
        items = [lease] if self.lease == "held" else []
        return msgspec.json.encode({"kind": "LeaseList", "metadata": {}, "items": items})

    def change(self, kind: str, key: tuple[str, str], how: Callable[[Document], None]) -> None:
        """Write an object as a client would."""
        collection = self.store.collections[kind]
        entry = collection.entries.get(key)
        if entry is not None:
            document = entry.document()
            how(document)
            self.cluster.api.write(collection.resource, document)
            self.live()


class Nobody:
    """In place of a manager that was killed."""

    def next_due(self) -> int | None:
        return None

    def step(self, *_: object) -> Iterator[None]:
        return iter(())


class MemoryJournal:
    """A journal without a file, which tells its listeners every quarter of a second."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._listeners: list[asyncio.Queue[Any]] = []

    @contextlib.contextmanager
    def following(self) -> Iterator[AsyncIterator[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._listeners.append(queue)
        yield self._batches(queue)

    async def _batches(self, queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
        while True:
            yield await queue.get()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            _, _, changed = self.ledger.take_batch()
            for queue in self._listeners if changed else ():
                queue.put_nowait(changed)


class ManagerClient:
    """Reads the manager's Lease."""

    def __init__(self, server: Managed) -> None:
        self._server = server

    async def read(self, url: str, **_: bool) -> bytes:
        if self._server.lease == "forbidden":
            raise api_error(403, b"{}")
        nothing = b'{"kind": "List", "metadata": {}, "items": []}'
        return self._server.leases() if "/leases?" in url else nothing


class Watcher:
    """A daemon in dry-run, as far as `diverge` is concerned."""

    def __init__(self, server: Managed, settings: Settings, dice: random.Random) -> None:
        world = server.world
        self.feed = SimulatedWatches(server, dice)  # type: ignore[arg-type]
        clock = DaemonClock(
            lambda: world.now_ns,
            wall=lambda: world.wall_ns,
            steady=lambda: world.steady_ns,
            awake=lambda: world.awake_ns,
        )
        self.journal = MemoryJournal()
        names = list(NEEDS)
        self.decisions = DecisionTask(self.feed, clock, self.journal.ledger, settings, names)
        cluster = WatchedCluster("0123456789abcdef0123", "here", "https://10.0.0.1:6443")
        client, journal = cast(Client, ManagerClient(server)), cast(Journal, self.journal)
        sources = Sources(cluster, client, self.decisions, journal)
        self.recorder = DivergenceRecorder(sources)
        self.feed.relist(self.feed.states)
        loop = asyncio.get_running_loop()
        parts = (self.decisions.run(), self.recorder.run(), self.journal.run())
        self.tasks = [loop.create_task(part) for part in parts]

    def look(self) -> Document:
        """What `diverge -o json` says now."""
        for task in self.tasks:
            if task.done():
                task.result()
        now_ns = self.decisions.clock.now_ns()
        record = self.recorder.record(now_ns, now_ns - HOUR_NS)
        return divergence_document(divergence_judgement(record, now_ns), record, now_ns, {})

    async def end(self) -> None:
        self.feed.dead = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Played(NamedTuple):
    """What was said every five seconds, and the cluster at the end."""

    looks: list[Look]
    server: Managed


def watched(story: Story, seed: int) -> Played:
    """Play the story."""
    world, log = World(), logging.getLogger("nodelife")
    level = log.level
    log.setLevel(logging.CRITICAL)
    with on_its_clock(world):
        loop = VirtualLoop(world)
        try:
            return loop.run_until_complete(_watched(story, world, random.Random(seed)))
        finally:
            log.setLevel(level)
            loop.close()
            gc.enable()
            gc.unfreeze()


async def _watched(story: Story, world: World, dice: random.Random) -> Played:
    server = Managed(world, story)
    settings = make_settings(PROFILE, story.flags)
    await asyncio.sleep(story.begins_s)
    stage = Stage(server, [Watcher(server, settings, dice)], dice)
    hands, looks = deque(sorted(story.hands, key=lambda hand: hand[0])), []
    for second in range(1, story.seconds + 1):
        while hands and hands[0][0] <= stage.now_s:
            hands.popleft()[1](stage)
        await asyncio.sleep(1)
        if second % 5 == 0:
            looks.append(Look(stage.now_s, stage.daemons[-1].look(), server.uids()))
    for daemon in stage.daemons:
        await daemon.end()
    return Played(looks, server)
