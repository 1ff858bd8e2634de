"""Records what `diverge` judges: our writes and their outcomes, observed writes, unwatched times.

It listens to the journal and to changes of objects (`node_write_observer`), reads the leader lease
every few seconds, asks what removed a node, and notes when the cluster was not watched. An hour is
kept, in memory: a daemon that has just started has seen nothing. Pods' writes that came in time are
only counted, so that a lost zone of thousands of pods costs little.

The questions to the API server are lists with a name as field selector, so that the rights to list
nodes and leases are enough. Whether the Lease is held is decided as other candidates for it decide:
by whether a renewal was seen within its duration, not by the instants that are written in it, since
clocks differ. A Lease of which no renewal was ever seen proves nothing: without leader election
what an earlier process left is not renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.zones import Zones
from kubectl_nodelife.daemon.changes import ChangeRecord
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.foreign_writes import NodeWriteObserver
from kubectl_nodelife.daemon.gate import ManagerBegan
from kubectl_nodelife.daemon.gate import warnings as kind_warnings
from kubectl_nodelife.daemon.journal import TooSlow
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.deletion import deletion_asked_ns
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, LeaseSpec, zone_display, zone_key
from kubectl_nodelife.kube.pod import is_daemon_pod
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listwatch import list_all, read_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.transport import Backoff
from kubectl_nodelife.outlook.diverge.judgement import divergence_document, divergence_judgement
from kubectl_nodelife.outlook.diverge.observations import (
    EVICTION,
    JUDGED,
    MANAGER,
    REMOVED,
    WRITES,
    AssumedSettings,
    ExpectedWrite,
    LeaseObservation,
    Observations,
    ObservedWrite,
    UnwatchedSpan,
    WriteAuthor,
)
from kubectl_nodelife.outlook.view import WARMING_UP

KEPT_NS: Final = HOUR_NS
WATCH_SECONDS: Final = 1.0

_TICK_SECONDS: Final = 1.0
_ABSENT_NS: Final = 3 * SECOND_NS
_MOST_OBSERVED: Final = 20_000
_MOST_LINKS: Final = 200_000
_MOST_QUESTIONS: Final = 200
_AT_ONCE: Final = 200
_FORGET_SECONDS: Final = 10.0
_IN_TIME_NS: Final = 2 * SECOND_NS

Query = Mapping[str, list[str]]

POLL_SECONDS: Final = 5.0
_SILENT_POLL_SECONDS: Final = 0.5
"""How often the lease is read when it is not renewed any more: its next holder acts at once."""

_SOON_NS: Final = 60 * SECOND_NS
_LEASE: Final = Resource(kind_named("Lease"), "kube-system", f"metadata.name={MANAGER}")
_DEFAULT_DURATION_S: Final = 15
_NEAR_NS: Final = 5 * SECOND_NS
_MOST_SPANS: Final = 1_000
# Reasons of Events on a deleted node -> the component that records them
_REMOVERS: Final = {
    "DeletingNode": "cloud-node-lifecycle-controller",
    "ScaleDown": "cluster-autoscaler",
}


_SAME: Final = ("id", "controller", "action", "kind", "namespace", "name", "node")
"""The fields that an expected write has of its change."""


class DivergenceRecorder:
    """Records our writes, those of the cluster and the times unwatched, for `diverge`.

    Everything is called in the daemon's loop.
    """

    def __init__(self, sources: Sources) -> None:
        self._cluster, self._client = sources.cluster, sources.client
        self._decisions, self._journal = sources.decisions, sources.journal
        self._observer = NodeWriteObserver(self._decisions.host.cache)
        self._lease = LeaseWatch()
        self._began_ns: int | None = None
        self._writes: dict[int, ExpectedWrite] = {}
        self._links: dict[int, int | None] = {}
        self._seen: dict[int, ObservedWrite] = {}
        self._next_seen = 0
        self._questions: asyncio.Queue[int] = asyncio.Queue(_MOST_QUESTIONS)
        self._spans: list[UnwatchedSpan] = []
        self._ticked_ns = 0
        self._in_time: dict[int, int] = {}
        self._last_writes: dict[str, int] = {}
        for change in list(self._journal.ledger.inherited()):
            self._add(change)
        self._decisions.host.on_change = self.observe

    async def run(self) -> None:
        """Attend until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._tick())
            group.create_task(self._housekeeping())
            group.create_task(self._look_at_lease())
            group.create_task(self._ask())

    # What is noted

    def observe(self, old: KubeObject, new: KubeObject | None, now_ns: int) -> None:
        """The cluster showed an object as `old` before, and as `new` now; None: it is gone."""
        if new is None:
            writes = self._observer.gone(old, now_ns)
        else:
            watched_ns = self._decisions.cold_since_ns
            writes = self._observer.changed(old, new, now_ns, watched_ns, self._zones())
        for seen in writes:
            self._note_observed(seen)

    def _note_observed(self, seen: ObservedWrite) -> None:
        number = self._next_seen
        self._next_seen += 1
        self._seen[number] = seen
        if len(self._seen) > _MOST_OBSERVED:
            del self._seen[next(iter(self._seen))]
        if seen.what == REMOVED and not self._questions.full():
            self._questions.put_nowait(number)

    def take(self, changes: Iterable[ChangeRecord]) -> None:
        """Take in what the journal sends: new changes, and those that have ended."""
        for change in changes:
            expected = self._writes.get(change.id)
            if expected is not None:
                self._settle(expected, change)
            elif change.id not in self._links:
                self._add(change)

    def _add(self, change: ChangeRecord) -> None:
        cause = change.cause
        if cause is not None and cause not in self._writes:
            cause = self._links.get(cause)
        if change.action not in WRITES or change.controller not in JUDGED:
            self._links[change.id] = cause
            if len(self._links) > _MOST_LINKS:
                del self._links[next(iter(self._links))]
            return
        zone = self._zone(change.node)
        write = ExpectedWrite(
            **{name: getattr(change, name) for name in _SAME},
            time_ns=max(change.latest_ns or change.time_ns, self._began_ns or 0),
            what=_what(change),
            because=change.reason,
            cause=cause,
            zone=zone_display(zone),
            rate=self._rate(zone),
            others=self._others_delete(change),
        )
        self._writes[change.id] = write
        self._settle(write, change)

    def _settle(self, write: ExpectedWrite, change: ChangeRecord) -> None:
        if change.outcome == write.outcome or change.settled_ns is None:
            return
        first = change.settled_ns <= write.time_ns
        ended = msgspec.structs.replace(
            write, outcome=change.outcome, settled_ns=change.settled_ns, first=first
        )
        self._writes[change.id] = ended
        if change.outcome != "confirmed":
            return
        if not write.others:
            last_ns = max(self._last_writes.get(write.controller, 0), change.settled_ns)
            self._last_writes[write.controller] = last_ns
        after_ns = change.settled_ns - write.time_ns
        if write.kind == "Pod" and after_ns <= _IN_TIME_NS:
            minute = change.settled_ns // MINUTE_NS
            self._in_time[minute] = self._in_time.get(minute, 0) + 1
            del self._writes[change.id]
            self._links[change.id] = write.cause

    def _others_delete(self, change: ChangeRecord) -> bool:
        """True if a pod's going does not show who deleted it: the DaemonSet controller deletes its
        own where a taint is not tolerated, and a kubelet those that are being deleted already.
        """
        if change.action != "DeletePod":
            return False
        pod = self._decisions.host.cache.pod(change.namespace, change.name)
        if pod is None:
            return False
        if change.controller == EVICTION and is_daemon_pod(pod):
            return True
        asked_ns = deletion_asked_ns(pod.metadata)
        return asked_ns is not None and asked_ns < change.time_ns - SECOND_NS

    def _zone(self, name: str) -> str:
        node = self._decisions.host.cache.node(name)
        return zone_key(node.metadata.labels) if node is not None else ""

    def _zones(self) -> Zones | None:
        lifecycle = self._decisions.host.lifecycle
        return lifecycle.memory.zones if lifecycle is not None else None

    def _rate(self, zone: str) -> float:
        zones = self._zones()
        return zones.rate(zone) if zones is not None and zone in zones.queues else 0.0

    # The tasks

    async def _listen(self) -> None:
        while True:
            try:
                with self._journal.following() as batches:
                    async for batch in batches:
                        for at in range(0, len(batch), _AT_ONCE):
                            self.take(batch[at : at + _AT_ONCE])
                            await asyncio.sleep(0)
            except TooSlow:
                now_ns = self._decisions.clock.now_ns()
                self._spans.append(
                    UnwatchedSpan(self._ticked_ns, now_ns, "too many changes came at once")
                )

    async def _tick(self) -> None:
        while True:
            self.note_watching(self._decisions.clock.now_ns())
            await asyncio.sleep(_TICK_SECONDS)

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_FORGET_SECONDS)
            self._forget(self._decisions.clock.now_ns() - KEPT_NS)

    def note_watching(self, now_ns: int) -> None:
        """Write down whether the cluster is watched at this moment, and if not, why not: begin or
        end an unwatched span.
        """
        began = self._began_ns is not None
        self._began_ns = self._began_ns or now_ns
        last_ns, self._ticked_ns = self._ticked_ns, now_ns
        why = self._blind(now_ns)
        cold = why.startswith(WARMING_UP)
        if began and now_ns - last_ns > _ABSENT_NS:
            self._spans.append(UnwatchedSpan(last_ns, now_ns, "the daemon was held up"))
            self._spans.sort(key=lambda span: span.end_ns is None)
        is_open = bool(self._spans) and self._spans[-1].end_ns is None
        if is_open and self._spans[-1].why != why:
            self._spans[-1] = msgspec.structs.replace(self._spans[-1], end_ns=now_ns)
            is_open = False
        if why and not is_open:
            self._spans.append(UnwatchedSpan(last_ns or now_ns, None, why, in_sight=cold))

    def _blind(self, now_ns: int) -> str:
        """Why nothing can be judged now, "" where it can."""
        decisions = self._decisions
        if not decisions.synced.is_set():
            return "the daemon still reads the cluster"
        if decisions.stands_still:
            return decisions.stands_still
        if decisions.is_cold(now_ns):
            return f"{WARMING_UP}{decisions.cold_because}"
        return ""

    def _forget(self, before_ns: int) -> None:
        """Drop what ended before."""
        old = [i for i, w in self._writes.items() if w.settled_ns and w.settled_ns < before_ns]
        for number in old:
            del self._writes[number]
        for number in [i for i, s in self._seen.items() if s.at_ns < before_ns]:
            del self._seen[number]
        for minute in [m for m in self._in_time if m < before_ns // MINUTE_NS]:
            del self._in_time[minute]
        self._spans = [s for s in self._spans if s.end_ns is None or s.end_ns >= before_ns]

    async def _look_at_lease(self) -> None:
        while True:
            before = self._lease.leader
            await self._lease.look(self._client, self._decisions.clock.now_ns())
            leader = self._lease.leader
            if leader is not None and leader != before:
                await self._decisions.feed.queue.put(ManagerBegan(*leader))
            await asyncio.sleep(self._lease.pause_s)

    async def _ask(self) -> None:
        while True:
            number = await self._questions.get()
            seen = self._seen.get(number)
            author = await who_removed(self._client, seen) if seen is not None else None
            if author is not None and number in self._seen:
                self._seen[number] = msgspec.structs.replace(self._seen[number], author=author)

    # The answers

    def record(self, now_ns: int, since_ns: int) -> Observations:
        """The observations to judge from, as of now."""
        self.note_watching(now_ns)
        decisions = self._decisions
        return Observations(
            assumed=AssumedSettings.of(decisions.settings),
            since_ns=max(since_ns, self._began_ns or 0),
            writes=tuple(self._writes.values()),
            observed=tuple(self._seen.values()),
            lease=self._lease.observation,
            leaders=tuple(self._lease.leaders),
            stale=tuple(self._lease.stale),
            unwatched=tuple(self._spans),
            evaluated=tuple(name for name in decisions.running() if name in JUDGED),
            not_evaluated=tuple(kind_warnings(decisions.feed.states)),
            on_time=sum(self._in_time.values()),
            last_write_ns=max(self._last_writes.values(), default=None),
            last_writes=dict(self._last_writes),
        )

    async def answer(self, query: Query) -> dict[str, Any]:
        """The judgement as of now. `since` in the query: ns before now."""
        since = query.get("since")
        now_ns = self._decisions.clock.now_ns()
        record = self.record(now_ns, now_ns - (int(since[-1]) if since else KEPT_NS))
        source = {"kind": "daemon", "context": self._cluster.context or None}
        source["server"] = self._cluster.server

        def judged() -> dict[str, Any]:
            return divergence_document(divergence_judgement(record, now_ns), record, now_ns, source)

        return {"document": await asyncio.to_thread(judged)}

    async def watch(self, query: Query) -> AsyncGenerator[dict[str, Any]]:
        """The judgement, again whenever there is something else to say."""
        sent: object = None
        while True:
            answer = await self.answer(query)
            fingerprint = _fingerprint(answer["document"])
            if fingerprint != sent:
                sent = fingerprint
                yield answer
            await asyncio.sleep(WATCH_SECONDS)


def _fingerprint(answer: dict[str, Any]) -> object:
    """The part of a judgement that is worth telling again when it changes: all but times."""
    items = [
        (i["kind"], i["object"], i.get("action"), i.get("detail"), i.get("by"), i["sure"])
        for i in answer["items"]
    ]
    settings = [(s["flag"], s["likely"], s["sure"]) for s in answer["settings"]]
    return (answer["verdict"], items, settings, answer["notEvaluated"])


def _what(change: ChangeRecord) -> str:
    """The condition, taint or label, in as few words as name it."""
    if change.action in ("DeletePod", "MarkPodNotReady"):
        return ""
    detail = msgspec.json.decode(change.detail)
    match change.action:
        case "AddTaint" | "RemoveTaint":
            return f"{detail['key']}:{detail['effect']}"
        case "SetNodeCondition" | "SetPodCondition":
            return f"{detail['type']}={detail['status']}"
        case "SetNodeLabel":
            return f"{detail['key']}={detail['value']}"
    return ""


class LeaseWatch:
    """Follows the leader lease. `leaders` and `stale` are as `Observations` has them.

    `pause_s`: when to look again.
    """

    def __init__(self) -> None:
        self.observation = LeaseObservation(error="it was not read yet")
        self.leaders: list[tuple[int, str]] = []
        self.stale: list[UnwatchedSpan] = []
        self.pause_s = POLL_SECONDS
        self._holder = ""
        self._renew: int | None = None
        self._is_renewed = False
        self._backoff = Backoff()

    @property
    def leader(self) -> tuple[int, str] | None:
        """Since when the newest leader leads, and its name; None where it was there before us."""
        return self.leaders[-1] if self.leaders else None

    async def look(self, client: Client, now_ns: int) -> None:
        """Read it once more."""
        try:
            listed = await list_all(client, _LEASE)
        except NodelifeError as error:
            refused = isinstance(error, ApiError) and error.code in (401, 403)
            self._failed("it may not be read" if refused else str(error), now_ns)
            return
        self._backoff.went_well()
        for lease in listed.objects:
            if isinstance(lease, Lease) and lease.name == MANAGER:
                self.note(lease.spec, now_ns)
                return
        self.pause_s = POLL_SECONDS
        unread = [f"it cannot be read: {each.why}" for each in listed.unreadable]
        self._unknown((*unread, f"there is no lease kube-system/{MANAGER}")[0], now_ns)

    def note(self, spec: LeaseSpec, now_ns: int) -> None:
        """Take in what the lease says now."""
        before = self.observation
        holder, renew = spec.holder_identity or "", spec.renew_time
        seconds = spec.lease_duration_seconds or _DEFAULT_DURATION_S
        if self._holder and holder and holder != self._holder:
            self.leaders.append((self._since(spec, before.read_ns, now_ns), holder))
            del self.leaders[:-_MOST_SPANS]
        self._holder = holder or self._holder  # one that was released names no holder
        renewed_ns = before.renewed_ns
        if renew != self._renew or not renewed_ns:
            self._is_renewed = bool(renewed_ns)
            self._renew, renewed_ns = renew, now_ns
            self.pause_s = min(POLL_SECONDS, seconds / 3)
        else:
            self.pause_s = POLL_SECONDS
        free = self._is_renewed and (not holder or renewed_ns < now_ns)
        if free and now_ns - renewed_ns < _SOON_NS:
            self.pause_s = _SILENT_POLL_SECONDS
        lasts_ns = round((max(seconds, 2 * POLL_SECONDS) + 1) * SECOND_NS)
        self.observation = LeaseObservation(holder, lasts_ns, renewed_ns, now_ns)
        if self.observation.stale_ns() is not None and not self._is_renewed:
            self._unknown("it has not been renewed since the daemon began to watch", now_ns)
        else:
            self._note_stale(now_ns)

    def _note_stale(self, now_ns: int) -> None:
        is_open = bool(self.stale) and self.stale[-1].end_ns is None
        if self.observation.stale_ns() is None:
            if is_open:
                self.stale[-1] = msgspec.structs.replace(self.stale[-1], end_ns=now_ns)
        elif not is_open:
            renewed_ns = self.observation.renewed_ns
            renewed_ns = min(renewed_ns, self._renew or renewed_ns)
            self.observation = msgspec.structs.replace(self.observation, renewed_ns=renewed_ns)
            self.stale.append(UnwatchedSpan(renewed_ns, None, "the lease was not renewed"))
            del self.stale[:-_MOST_SPANS]

    def _failed(self, error: str, now_ns: int) -> None:
        """It could not be read: a server that is sick is asked as seldom as by a watch."""
        self.pause_s = min(POLL_SECONDS, self._backoff.next_s())
        self._unknown(error, now_ns)

    def _unknown(self, error: str, now_ns: int) -> None:
        self.observation = msgspec.structs.replace(self.observation, error=error, read_ns=now_ns)

    @staticmethod
    def _since(spec: LeaseSpec, read_ns: int, now_ns: int) -> int:
        """When the new leader began: as it says, within the two looks at the lease."""
        return max(read_ns, min(now_ns, spec.acquire_time or now_ns))


async def who_removed(client: Client, seen: ObservedWrite) -> WriteAuthor | None:
    """The component that said in an Event that the node goes. Needs the right to list Events."""
    selector = f"involvedObject.kind=Node,involvedObject.name={seen.node}"
    try:
        events = await read_all(client, Resource(kind_named("Event"), fields=selector))
    except NodelifeError:
        return None
    for event in reversed(events):
        if isinstance(event, Event) and (remover := _REMOVERS.get(event.reason)) is not None:
            at_ns = event.last_timestamp or event.event_time
            if at_ns is not None and abs(at_ns - seen.at_ns) < 12 * _NEAR_NS:
                return WriteAuthor(event.source.component or remover, "Event", int(at_ns))
    return None
