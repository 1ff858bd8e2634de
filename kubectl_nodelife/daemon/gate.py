"""The input of whoever decides on a live cluster, and whether it may decide, and if not, why not.

A `GatedFeed` is that input: of the daemon's decision tasks, and of the leader of an upgrade. The
messages are watches, orders, outcomes, and Leases read anew. A source (`live.source`) has one
queue; `Tee` gives its news to each task that opens a feed of its own. A list of a kind becomes
events by comparing it with the objects shown so far (`events_of`).

No controller decides while a required watch (Node, Lease, Pod) is down. Nor does one, after a
suspend, a gap in a watch, a stop of this process or a change of the server's clock, before the
kinds concerned have been listed anew: what was seen before may be out of date, and a watch that
looks alive may be a dead connection. Nor does any controller decide while another cluster is meant
or seen than the one that the plans and the journal are of. There is no upstream to follow: a
kube-controller-manager that was suspended loses its lease, ends, and begins anew. After such a time
of which nothing is known the input is *cold* for a grace period: the gate is open, but silence so
far counts for nothing. A controller is not run while a kind that it needs may not be read: what it
would do is reported as not evaluated, and never taken for nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kubectl_nodelife.daemon.lease_check import LeasesRead
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Gone, Outcome, Put, Unreadable
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import NAMELESS
from kubectl_nodelife.live.clock import DRIFT_NS, DaemonClock
from kubectl_nodelife.live.loop import TimeSlices
from kubectl_nodelife.live.news import (
    ABSENT,
    REFUSED,
    WATCHING,
    KindPhase,
    KindState,
    ListNews,
    News,
    OtherCluster,
)
from kubectl_nodelife.live.source import ListWatchSource

# controller -> the kinds without which it would decide wrongly, and what is then not evaluated
NEEDS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "node-lifecycle": (
        frozenset({"Node", "Lease"}),
        "when a node whose kubelet does not report becomes Unknown and is tainted",
    ),
    "taint-eviction": (frozenset({"Node", "Pod"}), "when taints evict pods"),
    "daemonset": (
        frozenset({"Node", "Pod", "DaemonSet", "ControllerRevision"}),
        "what DaemonSets do",
    ),
    "pod-gc": (frozenset({"Node", "Pod"}), "which pods the garbage collector takes"),
}
"""The pod status manager is missing: it is a part of every kubelet, not a controller to look at."""

KINDS: Final = ("Node", "Lease", "Pod", "DaemonSet", "ControllerRevision")

REQUIRED_WATCHES: Final = ("Node", "Lease", "Pod")
"""No decision is taken while the watch of one of these is down."""

_OUT_OF_REACH = (REFUSED, ABSENT)


def out_of_reach(states: Mapping[str, KindState]) -> dict[str, str]:
    """The kinds that are not to be had, with what the server says."""
    return {k: s.error for k, s in states.items() if s.phase in _OUT_OF_REACH}


def runnable(names: Iterable[str], missing: Iterable[str]) -> list[str]:
    """The controllers that can do without these kinds."""
    gone = set(missing)
    return [name for name in names if name in NEEDS and not NEEDS[name][0] & gone]


def warnings(states: Mapping[str, KindState]) -> list[str]:
    """Sentences on the kinds that may not be read, and on what is not evaluated for that reason."""
    sentences = []
    missing = out_of_reach(states)
    for kind, error in missing.items():
        lost = [what for needs, what in NEEDS.values() if kind in needs]
        sentences.append(f"{kind} cannot be read: not evaluated: {'; '.join(lost)} ({error})")
    return sentences + failing(states)


def failing(states: Mapping[str, KindState]) -> list[str]:
    """A line for each error that the server fails with: of which kinds, and when it is asked again.

    Kinds that fail in the same way share a line: a sick server fails for all of them.
    """
    kinds: dict[str, list[str]] = {}
    next_s: dict[str, float] = {}
    for kind, state in states.items():
        if state.phase == "failing":
            kinds.setdefault(state.error, []).append(kind)
            left_s = retry_seconds(state)
            next_s[state.error] = min(next_s.get(state.error, left_s), left_s)
    lines = [
        f"not being watched: {', '.join(names)}: {error} (asked again in {next_s[error]:.0f}s)"
        for error, names in kinds.items()
    ]
    return [*lines, *_nameless(states)]


def _nameless(states: Mapping[str, KindState]) -> list[str]:
    """A line for each kind of which events came that cannot be read and have no name."""
    return [
        f"{state.nameless} events of a {kind} came that cannot be read and have no "
        f"name ({state.nameless_because}): the kind is listed anew from time to time"
        for kind, state in states.items()
        if state.nameless
    ]


def retry_seconds(state: KindState) -> float:
    """Seconds until the kind is asked for again."""
    return round(max(0, state.retry_at_ns - time.monotonic_ns()) / 1e9, 1)


_MOST_WAITING = 1_000
_LOOK_AROUND_S: Final = 1.0
_GATHER_S: Final = 0.05
_MOST_STANDSTILL_NS: Final = 5 * SECOND_NS

ShownEvent = Put | Gone | Unreadable


class ChangeSettings(NamedTuple):
    """An order: go on with these settings. `done` is resolved once they are in force."""

    settings: Settings
    done: asyncio.Future[None] | None = None


class ManagerBegan(NamedTuple):
    """Another kube-controller-manager leads since then, by the daemon's clock, and has nothing of
    what the one before it remembered.
    """

    at_ns: int
    holder: str


Message = News | ChangeSettings | ManagerBegan | Outcome | LeasesRead


class TeeFeed(NamedTuple):
    """One reader's feed: a queue of its own; what is listed anew comes to every reader."""

    queue: asyncio.Queue[Any]
    states: Mapping[str, KindState]
    relist: Callable[[Iterable[str]], None]


Feed = ListWatchSource | TeeFeed
"""Where news come from, in order for each kind; orders and outcomes are put into its queue, too."""


class Tee:
    """Gives each of the source's news to every reader; the slowest sets the pace."""

    def __init__(self, source: ListWatchSource) -> None:
        self._source = source
        self._feeds: list[TeeFeed] = []

    def open(self) -> TeeFeed:
        """A feed with all news from now on."""
        feed = TeeFeed(asyncio.Queue(), self._source.states, self._source.relist)
        self._feeds.append(feed)
        return feed

    def close(self, feed: TeeFeed) -> None:
        """The reader has gone."""
        self._feeds.remove(feed)

    async def run(self) -> None:
        """Pass news on until cancelled."""
        while True:
            news = await self._source.queue.get()
            while any(feed.queue.qsize() > _MOST_WAITING for feed in self._feeds):
                await asyncio.sleep(0.02)
            for feed in self._feeds:
                feed.queue.put_nowait(news)


_PULSE_S = 0.25


_WORDS_AT_MOST = 3


class DecisionGate:
    """`closed_because`: why nothing is decided, "" where the controllers may decide.

    `other_cluster`: what says that this is another cluster now, and why. `clock_set`: why the
    controllers must begin anew once they may decide, "" for no reason.
    """

    def __init__(self, feed: Feed, clock: DaemonClock) -> None:
        self.closed_because = ""
        self.clock_set = ""
        self.other_cluster: dict[str, str] = {}
        self._feed = feed
        self._clock = clock
        self._needed: dict[str, int] = {}  # kind -> a list must have been asked for at or after it
        self._asked: dict[str, int] = {}  # kind -> when the newest list was asked for
        self._because = ""  # what is needed is needed because of that
        self._down: set[str] = set()  # required kinds of which no working watch was reported since
        self._demanded = ""
        self._pulse = time.monotonic()
        self._stood_still_s = 0.0

    def may_decide(self, missing: Collection[str]) -> bool:
        """True if all watches work and nothing has to be read anew. `missing`: what cannot be."""
        states = self._feed.states
        self._down |= {
            k for k in REQUIRED_WATCHES if k in states and states[k].broken_since_ns is not None
        }
        self._down -= set(missing)
        for kind in missing:
            self._needed.pop(kind, None)
        self.closed_because = self.waiting()
        if not self.closed_because and self._down:
            down = [kind for kind in REQUIRED_WATCHES if kind in self._down]
            self.closed_because = f"no working watch of {', '.join(down)}"
        if not self.closed_because:
            self._demanded = ""
        return not self.closed_because

    def waiting(self) -> str:
        """Which cluster this is not, or what must be listed anew, and why; "" for nothing."""
        if self.other_cluster or not self._needed:
            return "; ".join(self.other_cluster.values())
        kinds = sorted(self._needed)
        named = ", ".join(kinds[:_WORDS_AT_MOST]) + (", …" if kinds[_WORDS_AT_MOST:] else "")
        return f"{self._because}: waiting for a new list of {named}"

    def listed(self, kind: str, asked_ns: int) -> None:
        """A list came that was asked for at that instant of the steady clock; 0: just now."""
        asked_ns = asked_ns or self._clock.steady_ns()
        self._asked[kind] = max(asked_ns, self._asked.get(kind, 0))
        if kind in self._needed and asked_ns >= self._needed[kind]:
            del self._needed[kind]

    def phase(self, news: KindPhase, period_ns: int) -> str:
        """It stands differently with a watch. Why silence counts afresh, "" where it does not."""
        if news.kind not in REQUIRED_WATCHES or news.phase != WATCHING:
            return ""
        self._down.discard(news.kind)
        if news.gap_ns <= period_ns:
            return ""
        because = self._demanded or f"nothing was seen for {news.gap_ns / SECOND_NS:.0f}s"
        if not news.relisted:
            self._demand([news.kind], because)
        return because

    def accept(self, news: OtherCluster) -> str:
        """Decide nothing while this is another cluster. Why silence counts afresh, once it is not
        any more: all kinds are listed anew then.
        """
        before = bool(self.other_cluster)
        self.other_cluster.pop(news.reported_by, None)
        if news.because:
            self.other_cluster[news.reported_by] = news.because
        if not before or self.other_cluster:
            return ""
        because = "another cluster was in this one's place"
        self._demand(list(self._feed.states), because)
        return because

    def demand_all(self, because: str) -> None:
        """Decide nothing before all kinds have been listed anew."""
        self._demand(list(self._feed.states), because)

    def check_clocks(self, standstill_s: float) -> str:
        """Notice a suspend, a stop of this process, a change of the server's clock: why silence
        counts afresh, "" where it does not. `standstill_s`: so short a stop does not count.
        """
        slept_ns = self._clock.slept_ns()
        stood_still_s, self._stood_still_s = self._stood_still_s, 0.0
        because = ""
        if slept_ns:
            because = f"this machine slept for {slept_ns / SECOND_NS:.0f}s"
        elif stood_still_s > standstill_s:
            because = f"this process stood still for {stood_still_s:.0f}s"
        elif abs(self._clock.drift_ns()) > DRIFT_NS and not self.clock_set:
            drift_s = self._clock.drift_ns() / SECOND_NS
            because = self.clock_set = f"the API server's clock was set by {drift_s:+.0f}s"
        if because:
            self._demand(list(self._feed.states), because)
        return because

    def begin(self) -> None:
        """The controllers begin now, on what was read by now."""
        self.clock_set = ""
        self._clock.set()
        self._pulse, self._stood_still_s = time.monotonic(), 0.0

    async def watch_for_standstill(self) -> None:
        """Notice when this process gets no time at all: stopped, swapped out, a frozen machine."""
        while True:
            await asyncio.sleep(_PULSE_S)
            self.note_running()

    def note_running(self) -> None:
        """This process is running now."""
        now = time.monotonic()
        self._stood_still_s = max(self._stood_still_s, now - self._pulse - _PULSE_S)
        self._pulse = now

    def _demand(self, kinds: Iterable[str], because: str) -> None:
        """Wait for a list of each of these kinds that is asked for from now on. Those of which none
        such has come yet are listed anew.
        """
        since_ns = self._clock.steady_ns()
        wanting = [kind for kind in kinds if self._asked.get(kind, -1) < since_ns]
        for kind in wanting:
            self._needed[kind] = max(since_ns, self._needed.get(kind, 0))
        if wanting:
            self._because = because
        self._demanded = because
        self._feed.relist(wanting)
        self.closed_because = self.waiting()


class GatedFeed:
    """A feed behind its gate, and since when silence is watched.

    `read`: the kinds whose first list has come. `cold_until_ns`: before that no silence counts, for
    time has passed of which nothing is known, which ended at `cold_since_ns` (`cold_because`).
    """

    def __init__(self, feed: Feed, clock: DaemonClock, settings: Settings) -> None:
        self.feed = feed
        self.clock = clock
        self.settings = settings
        self.gate = DecisionGate(feed, clock)
        self.slices = TimeSlices()
        self.read: set[str] = set()
        self.cold_since_ns = 0
        self.cold_until_ns = 0
        self.cold_because = ""

    def out_of_reach(self) -> dict[str, str]:
        """The kinds that cannot be read, and why."""
        return out_of_reach(self.feed.states)

    def unread(self) -> list[str]:
        """The kinds whose first list is still to come."""
        beyond = self.out_of_reach()
        return [k for k in self.feed.states if k not in self.read and k not in beyond]

    def is_cold(self, now_ns: int) -> bool:
        """True if silence so far counts for nothing."""
        return now_ns < self.cold_until_ns

    def cold_for_ns(self) -> int:
        """How much longer harm is held back, since a grace period has not been watched; 0: it is
        not.
        """
        return max(0, self.cold_until_ns - self.clock.now_ns())

    async def gather(self, due_ns: int | None) -> list[Message]:
        """Wait for a message, and return it with those of the next hundredths of a second; none
        where something is due before, or a look at clocks and connections is.
        """
        queue, patience_s = self.feed.queue, _LOOK_AROUND_S
        if due_ns is not None:
            patience_s = min(patience_s, max(0.0, (due_ns - self.clock.now_ns()) / SECOND_NS))
        try:
            async with asyncio.timeout(patience_s):
                messages = [await queue.get()]
        except TimeoutError:
            return []
        await asyncio.sleep(_GATHER_S)
        while not queue.empty():
            messages.append(queue.get_nowait())
        return messages

    def _note_list(self, listed: ListNews, cache: Cache) -> bool:
        """A list has come, with what of it cannot be read; True for the first one of its kind."""
        is_first = listed.kind not in self.read
        self.read.add(listed.kind)
        self.gate.listed(listed.kind, listed.asked_ns)
        cache.quarantine.relisted(listed.kind, listed.unreadable, self.clock.now_ns())
        return is_first

    def _note_watch(self, news: KindPhase | OtherCluster) -> None:
        """It stands differently with a watch, or this is another cluster, or no more."""
        if isinstance(news, OtherCluster):
            because = self.gate.accept(news)
        else:
            because = self.gate.phase(news, self.settings.node_monitor_period_ns)
        if because:
            self._watch_afresh(because)

    def _check_clocks(self) -> None:
        """Notice a time of which nothing is known."""
        settings = self.settings
        half_ns = settings.node_monitor_grace_period_ns // 2
        limit_ns = max(settings.node_monitor_period_ns, min(_MOST_STANDSTILL_NS, half_ns))
        if because := self.gate.check_clocks(limit_ns / SECOND_NS):
            self._time_passed_unseen()
            self._watch_afresh(because)

    def _time_passed_unseen(self) -> None:
        """Something may have happened of which nothing is known: a suspend, a stop, a halt."""

    def _watch_afresh(self, because: str) -> None:
        """Silence so far counts for nothing."""
        self._note_cold(because)

    def _note_cold(self, because: str) -> None:
        self.cold_since_ns = self.clock.now_ns()
        self.cold_until_ns = self.cold_since_ns + self.settings.node_monitor_grace_period_ns
        self.cold_because = because


def same_version(before: KubeObject, after: KubeObject) -> bool:
    """True if these are the same version of one object."""
    version = after.metadata.resource_version
    return version != "" and version == before.metadata.resource_version


class ShownObjects(Protocol):
    """The objects as the cluster has shown them so far."""

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object, or None."""

    def shown_keys(self, kind: str) -> Iterator[Key]:
        """The keys of all objects of a kind."""


async def events_of(listed: ListNews, before: ShownObjects, slices: TimeSlices) -> list[ShownEvent]:
    """The list as events. What is missing in it is gone; but where it holds an object without a
    name, that may be the one, and it is set aside instead.
    """
    kind = listed.kind
    events: list[ShownEvent] = []
    keys = {each.key for each in listed.unreadable}  # there all the same
    for obj in listed.objects:
        keys.add(obj.key)
        shown = before.shown(kind, obj.key)
        if shown is None or not same_version(shown, obj):
            events.append(Put(kind, obj))
        await slices.pause()
    why = "it may be the one that the list does not name"
    for key in before.shown_keys(kind):
        if key not in keys:
            events.append(Unreadable(kind, key, why) if NAMELESS in keys else Gone(kind, key))
    return events
