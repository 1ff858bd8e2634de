"""A daemon's inside on a table: a feed and clocks that the test moves, a journal in a folder."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from kubectl_nodelife.daemon.changes import ChangeFilter, ChangeRecord
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.decisions import DecisionTask, Message
from kubectl_nodelife.daemon.gate import KINDS, NEEDS
from kubectl_nodelife.daemon.journal import Journal, open_journal
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Lease, Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.live.news import (
    ABSENT,
    FAILING,
    REFUSED,
    WATCHING,
    KindPhase,
    KindState,
    ListNews,
    News,
    WatchNews,
)
from kubectl_nodelife.outlook.view import ClusterView
from tests import objects
from tests.objects import UNREACHABLE, typed

SECOND = 10**9
T0 = 1_767_225_600 * SECOND
CLUSTER = WatchedCluster("0123456789abcdef0123", "here", "https://10.0.0.1:6443")

__all__ = ["ABSENT", "FAILING", "REFUSED"]


class Feed:
    """What `live.source.Source` is to a decision task."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Message] = asyncio.Queue()
        self.states = {kind: KindState(kind) for kind in KINDS}
        self.relisted: set[str] = set()

    def relist(self, kinds: Iterable[str]) -> None:
        """The kinds that are to be listed anew; a test lets the lists come (`Lab.relist`)."""
        self.relisted |= set(kinds)


class Lab:
    """A decision task with everything around it. Time stands still unless `after` moves it."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self.steady = self.awake = 1_000 * SECOND
        self.wall = T0
        self.server_offset: int | None = T0 - self.steady
        self.feed = Feed()
        self.journal = journal
        clock = DaemonClock(
            self._server,
            wall=lambda: self.wall,
            steady=lambda: self.steady,
            awake=lambda: self.awake,
        )
        self.decisions = DecisionTask(self.feed, clock, journal.ledger, settings, list(NEEDS))
        self.sources = Sources(CLUSTER, cast(Client, None), self.decisions, journal)
        self.versions = 100

    def _server(self) -> int | None:
        return None if self.server_offset is None else self.steady + self.server_offset

    @property
    def now(self) -> int:
        """Ns since the epoch by the daemon's clock."""
        return self.decisions.clock.now_ns()

    def look(self) -> ClusterView:
        """What status would be made from."""
        return self.sources.view()

    async def begin(self, *objects: KubeObject, refused: Iterable[str] = ()) -> None:
        """The first lists come, and every watch is opened."""
        news: list[News] = []
        for kind in KINDS:
            state = self.feed.states[kind]
            if kind in refused:
                state.phase, state.error = REFUSED, f"{kind} is forbidden"
                news.append(KindPhase(kind, REFUSED))
                continue
            state.phase, state.synced = WATCHING, True
            news.append(ListNews(kind, [self.version(o) for o in objects if kind_of(o) == kind]))
        await self.decisions.take(news)

    def version(self, obj: Any) -> Any:
        """The object in its next version."""
        from msgspec.structs import replace

        self.versions += 1
        metadata = replace(obj.metadata, resource_version=str(self.versions))
        return replace(obj, metadata=metadata)

    async def see(self, *objects: KubeObject | Gone) -> None:
        """The watches tell of objects."""
        events = [o if isinstance(o, Gone) else Put(kind_of(o), self.version(o)) for o in objects]
        await self.decisions.take([WatchNews(e.kind, [e]) for e in events])

    async def relist(self, *objects: KubeObject) -> None:
        """The lists that were asked for come, and show these objects."""
        kinds, self.feed.relisted = self.feed.relisted, set()
        found = [self.version(o) for o in objects if kind_of(o) in kinds]
        await self.tell(
            *(ListNews(kind, [o for o in found if kind_of(o) == kind]) for kind in sorted(kinds))
        )

    async def tell(self, *news: Message) -> None:
        """Any messages."""
        await self.decisions.take(news)

    def pass_by(self, seconds: float) -> None:
        """Time goes by, and the task is not asked."""
        step = round(seconds * SECOND)
        self.steady += step
        self.awake += step
        self.wall += step

    def sleep(self, seconds: float) -> None:
        """The machine is suspended: the clock that does not count sleep stands still."""
        self.steady += round(seconds * SECOND)
        self.wall += round(seconds * SECOND)

    async def after(self, seconds: float, *renewing: str, every: float = 1.0) -> None:
        """Time goes by in steps; these nodes' leases are renewed every ten seconds."""
        end = self.steady + round(seconds * SECOND)
        while self.steady < end:
            step = min(round(every * SECOND), end - self.steady)
            self.pass_by(step / SECOND)
            beats = []
            if self.steady // SECOND % 10 == 0:
                beats = [lease(name, self.now - T0) for name in renewing]
            await self.see(*beats)

    async def changes(self, **wanted: Any) -> list[ChangeRecord]:
        """What the journal holds."""
        return await self.journal.select(ChangeFilter(**wanted))

    async def told(self, **wanted: Any) -> list[tuple[str, str, str]]:
        """(action, object's name, outcome) of what the journal holds, Events left out."""
        found = await self.changes(**wanted)
        return [(c.action, c.name, c.outcome) for c in found if c.action != "RecordEvent"]


def run(coroutine: Any) -> Any:
    """Run a test's coroutine."""
    return asyncio.run(coroutine)


def make_lab(folder: Path, **flags: str) -> Lab:
    """A lab whose journal is in the folder. Call it inside the loop."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    return Lab(open_journal(str(folder / "journal.db")), make_settings("v1.36", given))


def node(
    name: str = "n1",
    ready: str = "True",
    *,
    posted_ns: int = 0,
    taints: tuple[Taint, ...] = (),
    uid: str | None = None,
    reason: str = "",
    zone: str = "a",
) -> Node:
    """A node that posted its status at T0 + posted_ns."""
    times = {"heartbeat": T0 + posted_ns, "since": T0 + posted_ns, "created": T0 - 3600 * SECOND}
    return typed(objects.node(name, ready, reason, taints=taints, uid=uid, zone=zone, **times))


def lease(name: str = "n1", renewed_ns: int = 0) -> Lease:
    """The node's lease, renewed at T0 + renewed_ns."""
    return typed(objects.lease(name, T0 + renewed_ns, uid=""))


def pod(name: str = "p1", on: str = "n1", *, tolerates_s: int = 300, owner: str = "") -> Pod:
    """A running pod."""
    of = objects.owner("ReplicaSet", owner) if owner else None
    return typed(objects.pod(name, on, ready=True, tolerates=tolerates_s, owner=of))


def unreachable(effect: str = "NoExecute", added_ns: int = 0) -> Taint:
    """The taint of a lost node."""
    return Taint(key=UNREACHABLE, effect=effect, time_added=Time(T0 + added_ns))
