"""An enforcing daemon on a simulated server: the real `Enforcement`, from Lease to executor.

Played are only what it reads with (watches, with gaps) and its disk. A process can be killed at any
point: what it had on its way still arrives, what was not on its disk is lost.
"""

import asyncio
import contextvars
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import aiohttp

from kubectl_nodelife.daemon.enforce import enforcement as enforcement_module
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.gate import KINDS, Tee
from kubectl_nodelife.daemon.intents import Intent, Unsettled
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.live.client import api_error
from kubectl_nodelife.live.clock import DaemonClock, ServerClock
from kubectl_nodelife.live.news import FAILING, WATCHING, KindPhase, KindState, ListNews, WatchNews
from kubectl_nodelife.sandbox.store import DELETED
from tests.enforce.simulated_api import Network, SimulatedServer
from tests.enforce.withdrawn_causes import WithdrawnCauses

OWNER: contextvars.ContextVar[Any] = contextvars.ContextVar("process")


class Disk:
    """The journal of writes as it is on the disk: what survives a kill."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, Intent]] = {}
        self.marks: dict[str, str] = {}


class SimulatedIntents:
    """As `daemon.intents.Intents`, over a simulated disk that takes some ms to write."""

    def __init__(self, disk: Disk, dice: random.Random) -> None:
        self.error = self.fails = ""
        self.dead = False
        self.has_unsettled = True
        self.unknown_ends = 0
        self._disk = disk
        self._dice = dice
        self._ends: list[tuple[int, str]] = []
        self.first = self._number = max(disk.rows, default=0)

    async def begin(self, intent: Intent) -> int:
        self._number += 1
        number = self._number
        await asyncio.sleep(self._dice.randint(1, 5) / 1000)
        if self.fails:
            self.error = self.fails
            raise OSError(self.error)
        if not self.dead:
            self._disk.rows[number] = ("intent", intent)
            await self.flush()
        return number

    def note(self, number: int, state: str, *_: Any) -> None:
        self._ends.append((number, state))
        self.unknown_ends += state == "unknown"
        self.has_unsettled = self.has_unsettled or state == "unknown"

    async def flush(self) -> None:
        if not self.dead:
            for number, state in self._ends:
                self._disk.rows[number] = (state, self._disk.rows[number][1])
            self._ends = []

    async def run(self, now_ns: Any) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.error = self.fails
            await self.flush()

    def unsettled(self) -> list[Unsettled]:
        return [
            Unsettled(n, state, row)
            for n, (state, row) in self._disk.rows.items()
            if state == "unknown" or (state in ("intent", "sent") and n <= self.first)
        ]

    def mark(self, name: str, value: str | None = None) -> str:
        if value is not None:
            self._disk.marks[name] = value
        return self._disk.marks.get(name, "")

    async def close(self) -> None:
        await self.flush()


class SimulatedWatches:
    """As `ListWatchSource`: lists and watches of all kinds, which may break or fall silent."""

    def __init__(self, server: SimulatedServer, dice: random.Random) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.states = {kind: KindState(kind, WATCHING, synced=True) for kind in KINDS}
        self.dead = False
        self._server = server
        self._dice = dice
        self._seen = dict.fromkeys(KINDS, 0)
        self._broken: dict[str, int] = {}
        self._hung: set[str] = set()
        self._stale: dict[str, list[Any]] = {}
        self._demanded: set[str] = set()
        self._ready_ns = dict.fromkeys(KINDS, 0)
        server.changed.append(self._changed)

    def relist(self, kinds: Iterable[str]) -> None:
        """List anew; the answer shows the state as of its arrival at the server."""
        for kind in kinds:
            if kind in self._broken:
                self._demanded.add(kind)  # as soon as it is there again
            else:
                self._list(kind)

    def _list(self, kind: str) -> None:
        world, asked_ns = self._server.world, self._server.world.steady_ns

        def answer() -> None:
            if self.dead or kind in self._broken:
                return
            self._server.live()
            objects = self._stale.get(kind)
            if objects is None:
                self._hung.discard(kind)  # over a connection of its own
                entries = self._server.store.collections[kind].entries.values()
                self._seen[kind] = self._server.store.version
                objects = [entry.obj for entry in entries]
            self._tell(kind, ListNews(kind, objects, asked_ns, (), str(self._seen[kind])))

        world.at(world.now_ns + self._dice.randint(2, 30) * MILLISECOND_NS, answer)

    def _changed(self) -> None:
        for kind in KINDS:
            if self._seen[kind] and kind not in self._broken and kind not in self._hung:
                self._catch_up(kind)

    def _catch_up(self, kind: str) -> None:
        events: list[Any] = []
        collection = self._server.store.collections[kind]
        if not collection.log or collection.log[-1].version <= self._seen[kind]:
            return
        for change in collection.since(self._seen[kind]):
            obj = change.entry.obj
            self._seen[kind] = change.version
            gone = change.type == DELETED
            events.append(Gone(kind, obj.key) if gone else Put(kind, obj))
        if events:
            self._tell(kind, WatchNews(kind, events))

    def _tell(self, kind: str, news: Any) -> None:
        """In order, some ms later."""
        world = self._server.world
        at_ns = world.now_ns + self._dice.randint(1, 8) * MILLISECOND_NS
        self._ready_ns[kind] = at_ns = max(at_ns, self._ready_ns[kind])
        world.at(at_ns, lambda: None if self.dead else self.queue.put_nowait(news))

    def break_off(self, kind: str, duration_ns: int, *, relist: bool) -> None:
        """The watch is down for so long, and then goes on where it was, or with a list."""
        if self.dead or kind in self._broken:
            return
        world = self._server.world
        self._broken[kind] = world.steady_ns
        self.states[kind].broken_since_ns = world.steady_ns
        self._tell(kind, KindPhase(kind, FAILING))

        def mend() -> None:
            if self.dead:
                return
            gap_ns = world.steady_ns - self._broken.pop(kind)
            self.states[kind].broken_since_ns = None
            lists = relist or kind in self._demanded or not self._seen[kind]
            self._demanded.discard(kind)
            if lists:
                self._list(kind)
            else:
                self._catch_up(kind)
            later_ns = world.now_ns + 50 * MILLISECOND_NS
            phase = KindPhase(kind, WATCHING, gap_ns, relisted=lists)
            world.at(later_ns, lambda: self._tell(kind, phase))

        world.at(world.now_ns + duration_ns, mend)

    def fall_behind(self, kind: str) -> None:
        """From now on lists and watches of the kind come from a replica that stands still."""
        self._hung.add(kind)
        entries = self._server.store.collections[kind].entries.values()
        self._stale[kind] = [entry.obj for entry in entries]

    def go_on(self, kind: str) -> None:
        """What was held back is told."""
        self._stale.pop(kind, None)
        self._hung.discard(kind)
        if not self.dead and self._seen[kind] and kind not in self._broken:
            self._catch_up(kind)

    def hang(self, kind: str, duration_ns: int) -> None:
        """The watch stays open and says nothing for so long."""
        self._hung.add(kind)
        world = self._server.world
        world.at(world.now_ns + duration_ns, lambda: self.go_on(kind))


class SimulatedClient:
    """As `live.client.Client`: it lists, over the same network as what is written."""

    def __init__(self, network: Network) -> None:
        self.clock = ServerClock()
        self.session = SimpleNamespace(target=SimpleNamespace(server="https://simulated"))
        self._network = network

    async def read(self, url: str, *, retry: bool = True) -> bytes:
        """The answer's body. Raises ApiError, Unreachable."""
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            response, _ = await self._network.send(
                "GET", url, None, {"User-Agent": "lists"}, timeout
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable("no answer", on=url) from error
        body = await response.content.readany()
        if response.status >= 300:
            raise api_error(response.status, body)
        return body


class Process:
    """One daemon, from its start to its end or its death."""

    def __init__(
        self,
        server: SimulatedServer,
        network: Network,
        disk: Disk,
        dice: random.Random,
        orders: Orders,
        settings: Settings,
    ) -> None:
        self.network = network
        self.disk = disk
        self.tasks: set[asyncio.Task[Any]] = set()
        self.intents = SimulatedIntents(disk, dice)
        self.watches = SimulatedWatches(server, dice)
        world = server.world
        clock = DaemonClock(
            lambda: world.now_ns + world.server_ahead_ns,
            dates_count_from_ns=lambda: world.server_set_ns,
            wall=lambda: world.wall_ns,
            steady=lambda: world.steady_ns,
            awake=lambda: world.awake_ns,
        )
        tee = Tee(self.watches)  # type: ignore[arg-type]

        async def read_settings(cache: Cache) -> Settings:
            return settings

        enforcement_module.WritingSession = lambda *_, **__: network  # type: ignore
        sources: Any = SimpleNamespace(
            client=SimulatedClient(network),
            journal=SimpleNamespace(ledger=Ledger(), fault=str),
            decisions=SimpleNamespace(clock=clock, settings=settings, synced=asyncio.Event()),
        )
        flags = SimpleNamespace(orders=orders, assignments=())
        options: Any = SimpleNamespace(environ={}, report=lambda text: None, flags=flags)
        followed: Any = SimpleNamespace(warnings=[], read=read_settings)
        kept: Any = self.intents
        self.enforcement = Enforcement(options, sources, tee, followed, kept)
        self.enforcement.keeper._steady = lambda: world.steady_ns
        self.causes = WithdrawnCauses(self.enforcement.recorder)
        self._server = server
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        loop = asyncio.get_running_loop()
        self.main = loop.create_task(self._run(tee), context=context)

    async def _run(self, tee: Tee) -> None:
        feeding = asyncio.get_running_loop().create_task(tee.run())
        self.watches.relist(KINDS)
        try:
            await self.enforcement.run()
        finally:
            feeding.cancel()

    def kill(self) -> None:
        """kill -9: what is on its way arrives, nothing else happens any more."""
        self.network.dead = self.intents.dead = self.watches.dead = True
        for task in list(self.tasks):
            task.cancel()

    async def stop(self) -> None:
        """SIGTERM."""
        await self.enforcement.stop_sending()
        self.main.cancel()
        await asyncio.gather(self.main, return_exceptions=True)
        await self.enforcement.close()
        self.kill()


def make_task(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
    """A task that its process knows of, so that it dies with it."""
    context = more.get("context") or contextvars.copy_context()
    owner = context.get(OWNER)
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **more)
    if owner is not None:
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
    return task
