"""Sends a controller's Events, in order, beside its writes and never ahead of them.

Follows client-go/tools/record/event.go (`recordToSink`): so many may wait and more are dropped; a
refusal is final; without a connection twelve tries ten seconds apart. Losing one is no failure.

`Correlator` decides whether an Event is sent as a new one, as a higher count of an earlier one, or
dropped. It follows client-go/tools/record/events_cache.go: the same event again raises the count of
the first; from the tenth different message of one source, object, type and reason, none ten minutes
apart, one combined event stands for them; of a source, object and type 25 go through, then one in
five minutes. Pure: the sender says what time it is and what the server answered.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.calls import Patch, Post
from kubectl_nodelife.engine.calls.call import NO_ANSWER, NOT_FOUND
from kubectl_nodelife.engine.calls.conversations import event_body
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.live.writer import Writer

MOST_WAITING: Final = 2_000
"""Upstream's thousand, and as many again since ours let writes go first."""

TRIES: Final = 12
RETRY_SECONDS: Final = 10.0

KEPT: Final = 4096
SIMILAR: Final = 10
SIMILAR_WITHIN_NS: Final = 600 * SECOND_NS
SPAM_BURST: Final = 25
SPAM_QPS: Final = 1 / 300
COMBINED: Final = "(combined from similar events): "
V = TypeVar("V")
Key = tuple[str, ...]


class EventSender:
    """One controller's sender. `admitted` waits for a token, and says whether writing is allowed
    at that moment. `dropped`: how many were lost.
    """

    def __init__(
        self, writer: Writer, now_ns: Callable[[], int], admitted: Callable[[], Awaitable[bool]]
    ) -> None:
        self.dropped = 0
        self._writer = writer
        self._now_ns = now_ns
        self._admitted = admitted
        self._correlator = Correlator()
        self._queue: asyncio.Queue[tuple[RecordEvent, int]] = asyncio.Queue(MOST_WAITING)

    def put(self, event: RecordEvent) -> None:
        """Have it sent in its turn."""
        try:
            self._queue.put_nowait((event, self._now_ns()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            event, at_ns = await self._queue.get()
            correlated = self._correlator.correlate(event, at_ns)
            if correlated is not None:
                await self._send(correlated)
            self._queue.task_done()

    async def sent(self) -> None:
        """Wait until nothing waits any more."""
        await self._queue.join()

    async def _send(self, correlated: Correlated) -> None:
        call = correlated.call
        for _ in range(TRIES):
            if not await self._admitted():
                self.dropped += 1
                return
            answer = await self._writer.call(call)
            if answer.code == NOT_FOUND and isinstance(call, Patch):
                answer = await self._writer.call(correlated.instead)
            if answer.code != NO_ANSWER:
                self.dropped += not answer.ok
                return
            await asyncio.sleep(RETRY_SECONDS)
        self.dropped += 1


class _Recent(Generic[V]):
    """The entries used last, 4,096 of them."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: Key, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > KEPT:
            self._entries.popitem(last=False)


class _Similar(msgspec.Struct):
    messages: set[str]
    last_ns: int


class _Sent(NamedTuple):
    key: tuple[str, str]
    times: int
    first: str


class Correlated(msgspec.Struct, frozen=True):
    """The request to send; `instead` where the event that is patched is gone."""

    call: Post | Patch
    instead: Post


class Correlator:
    """One sender's memory of its events."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._sent: _Recent[_Sent] = _Recent()
        self._spam: _Recent[TokenBucket] = _Recent()

    def correlate(self, event: RecordEvent, now_ns: int) -> Correlated | None:
        """The call that records the event; None where it is one too many."""
        about = (event.controller, event.kind, event.namespace, event.name, event.object_uid)
        message, key = self._aggregated(event, (*about, event.type, event.reason), now_ns)
        body = event_body(event, now_ns)
        body["message"] = message
        own = body["metadata"]["namespace"], body["metadata"]["name"]
        sent = self._sent.get(key) or _Sent(own, 0, body["firstTimestamp"])
        count = sent.times + 1
        body["count"], body["firstTimestamp"] = count, sent.first
        self._sent.put(key, sent._replace(times=count))
        if not self._passes((*about, event.type), now_ns):
            return None
        create = Post("Event", own, body)
        if count == 1:
            return Correlated(create, create)
        patch = {"count": count, "lastTimestamp": format_time(now_ns), "message": message}
        return Correlated(Patch("Event", sent.key, patch), create)

    def _aggregated(self, event: RecordEvent, similar: Key, now_ns: int) -> tuple[str, Key]:
        """The message to send, and what counts as the same event. Follows `EventAggregate`."""
        record = self._similar.get(similar)
        if record is None or now_ns - record.last_ns > SIMILAR_WITHIN_NS:
            record = _Similar(set(), now_ns)
        record.messages.add(event.message)
        record.last_ns = now_ns
        self._similar.put(similar, record)
        if len(record.messages) < SIMILAR:
            return event.message, (*similar, event.message)
        record.messages.discard(next(iter(record.messages)))
        return COMBINED + event.message, similar

    def _passes(self, key: Key, now_ns: int) -> bool:
        bucket = self._spam.get(key) or TokenBucket(SPAM_QPS, SPAM_BURST)
        self._spam.put(key, bucket)
        return bucket.try_accept(now_ns)
