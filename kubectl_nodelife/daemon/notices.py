"""Brings what is worth a notification to a command and to a webhook, never two at once.

A condition is sent when it begins (firing) and when it is over (resolved), under the same key
(`cluster_conditions`, `NoticeBoard`: pure, from the samples that the metrics are made from).

`Notifier` looks for notices every second, and passes them to the ways out that were asked for. Of
several notices of one key that wait only the newest is sent. A webhook that does not take one is
tried again after 1, 2, 4 ... 60 s, for an hour at most; a hundred notices wait, and no more than
one a second and twenty an hour are sent: one more says that others are left out. No redirect is
followed, and answers are not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.flags import NotifyOptions
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.cluster_sample import ClusterSample

FIRING, RESOLVED = "firing", "resolved"

_SOON_NS: Final = 60 * SECOND_NS
_STUCK_S: Final = 900.0
_TROUBLE: Final = "status --trouble"


class NotedCondition(msgspec.Struct, frozen=True):
    """Something that holds now, in a sentence, and the command that shows more."""

    event: str
    sentence: str
    command: str


class Notice(msgspec.Struct, frozen=True):
    """A condition that begins or is over. `key`: the same for both."""

    key: str
    event: str
    state: str
    sentence: str
    command: str
    server: str
    time: str


Conditions = Mapping[str, NotedCondition]


ConditionWords = tuple[str, str, str, str]
"""Event, what it is about, sentence, the verb that shows more."""


def cluster_conditions(
    sample: ClusterSample, more: Iterable[ConditionWords] = ()
) -> dict[str, NotedCondition]:
    """The conditions in a look at nodes and zones, and others, by key."""
    conditions = {}
    for event, about, sentence, verb in (*_conditions(sample), *more):
        key = f"{event}/{about}" if about else event
        conditions[key] = NotedCondition(event, sentence, f"kubectl nodelife {verb}")
    return conditions


def _conditions(sample: ClusterSample) -> Iterator[ConditionWords]:
    for name in sorted(sample.soon_lost):
        sentence = f"node {name} turns Unknown within 20s unless it reports"
        yield "nodeWillBeLost", name, sentence, _TROUBLE
    for name in sorted(sample.unreachable):
        yield "nodeLost", name, f"node {name} is lost", f"explain node {shlex.quote(name)}"
    due_ns = sample.next_eviction_ns
    if due_ns and due_ns - sample.now_ns < _SOON_NS:
        count = sample.pods_due["300"]
        sentence = f"pods of lost or tainted nodes are deleted within a minute, {count} within five"
        yield "evictionsWillBegin", "", sentence, _TROUBLE
    if sample.zones and all(z.states == {"FullDisruption"} for z in sample.zones.values()):
        sentence = "no zone has a ready node: nothing is evicted anywhere"
        yield "allZonesDark", "", sentence, _TROUBLE
    for key, zone in sorted(sample.zones.items()):
        name = key.replace(":\x00:", "/")
        explain = f"explain zone {shlex.quote(name)}"
        if zone.stops:
            yield "zoneWillStop", name, f"zone {name}: {zone.stops}", explain
        if "PartialDisruption" in zone.states and not zone.rate:
            sentence = f"zone {name}: {zone.unhealthy} of {zone.size} not ready, evictions stop"
            yield "zoneStops", name, sentence, explain
    for gate, seconds in sorted(sample.drain_waits.items()):
        if seconds > _STUCK_S:
            sentence = f"a drain has waited at {gate} for more than {_STUCK_S / 60:.0f} minutes"
            yield "drainStuck", gate, sentence, "drain-plan NODE"


class NoticeBoard:
    """Remembers what holds, and makes notices of what begins and what is over."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._holds: dict[str, NotedCondition] = {}

    def take(self, now: Conditions, now_ns: int) -> list[Notice]:
        """Take in the conditions that hold now; the notices that follow."""
        before, self._holds = self._holds, dict(now)
        begun = [(key, now[key], FIRING) for key in now if key not in before]
        over = [(key, before[key], RESOLVED) for key in before if key not in now]
        at = format_micro_time(now_ns)
        return [
            Notice(key, it.event, state, it.sentence, it.command, self._server, at)
            for key, it, state in (*over, *begun)
        ]


COMMAND_SECONDS: Final = 10.0
POST_SECONDS: Final = 10.0
MOST_WAITING: Final = 100
MOST_AN_HOUR: Final = 20
_APART_S: Final = 1.0
_LAST_PAUSE_S: Final = 60.0
_GIVES_UP_S: Final = 3600.0
_READ_BYTES: Final = 4096

Deliver = Callable[[Notice], Awaitable[bool]]
"""Sends a notice; True if it was taken."""

TOKEN: Final = "NODELIFE_WEBHOOK_TOKEN"
_LOOK_SECONDS: Final = 1.0


def where(url: str) -> str:
    """The URL without what may be secret: user, password, path, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


class Outbox:
    """The notices that wait for one way out. `clock`: monotonic seconds."""

    def __init__(self, deliver: Deliver, clock: Callable[[], float] = time.monotonic) -> None:
        self._deliver = deliver
        self._clock = clock
        self._waiting: OrderedDict[str, Notice] = OrderedDict()
        self._sent: deque[float] = deque()
        self._summed_up = 0
        self._some = asyncio.Event()

    def put(self, notices: Iterable[Notice]) -> None:
        """Notices to be sent."""
        for notice in notices:
            self._waiting.pop(notice.key, None)
            self._waiting[notice.key] = notice
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
            self._some.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                _, notice = self._waiting.popitem(last=False)
                await self._send_within_limits(notice)

    async def _send_within_limits(self, notice: Notice) -> None:
        now = self._clock()
        while self._sent and self._sent[0] < now - 3600:
            self._sent.popleft()
        if len(self._sent) == MOST_AN_HOUR:
            self._summed_up += 1
            if self._summed_up > 1:
                return
            notice = _summing_up(notice)
        else:
            self._summed_up = 0
            self._sent.append(now)
        await self._send(notice)
        await asyncio.sleep(_APART_S)

    async def _send(self, notice: Notice) -> None:
        """Until it is taken, a newer one of its key waits, or an hour is over."""
        pause_s, gives_up = 1.0, self._clock() + _GIVES_UP_S
        while not await self._deliver(notice):
            if self._clock() > gives_up or notice.key in self._waiting:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)


def _summing_up(notice: Notice) -> Notice:
    sentence = (
        f"{MOST_AN_HOUR} notices were sent within an hour; more are left out until it is over"
    )
    return msgspec.structs.replace(
        notice,
        key="tooManyNotices",
        event="tooManyNotices",
        state=FIRING,
        sentence=sentence,
        command="kubectl nodelife status",
    )


class CommandDelivery:
    """Runs a program with the notice as JSON on its standard input; what fails is not repeated."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    async def __call__(self, notice: Notice) -> bool:
        """Run it, for ten seconds at most."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            log.warning("--notify: %s cannot be run: %s", self._argv[0], error.strerror)
            return True
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await process.communicate(msgspec.json.encode(notice))
        except (TimeoutError, asyncio.CancelledError) as ended:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(ended, asyncio.CancelledError):
                raise
            log.warning("--notify: %s took longer than %.0fs", self._argv[0], COMMAND_SECONDS)
        else:
            if process.returncode:
                log.warning("--notify: %s ended with %d", self._argv[0], process.returncode)
        return True


class WebhookDelivery:
    """Posts the notice as JSON. `token`: sent as bearer token, "" for none."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"kubectl-nodelife/{__version__}",
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._failed = False

    async def __call__(self, notice: Notice) -> bool:
        """Post it once. A 4xx other than 408 and 429 is final: it would be refused again."""
        timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    self._url,
                    data=msgspec.json.encode(notice),
                    headers=self._headers,
                    allow_redirects=False,
                ) as answer,
            ):
                await answer.content.read(_READ_BYTES)
                code = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._complain(type(error).__name__)
            return False
        if 200 <= code < 300:
            self._failed = False
            return True
        self._complain(f"it answered {code}")
        return 300 <= code < 500 and code not in (408, 429)

    def _complain(self, why: str) -> None:
        if not self._failed:
            log.warning("--webhook: %s does not take notices: %s", where(self._url), why)
        self._failed = True


class Notifier:
    """Looks for notices every second, and passes them to the ways out that were asked for."""

    def __init__(
        self,
        conditions: Callable[[], Mapping[str, NotedCondition] | None],
        now_ns: Callable[[], int],
        options: NotifyOptions,
        server: str,
        environ: Mapping[str, str],
    ) -> None:
        """`conditions`: those that hold, by key; None while that cannot be judged. `now_ns`: the
        instant, by the API server's clock.
        """
        self._conditions, self._now_ns = conditions, now_ns
        self._wanted = options.wanted
        self._board = NoticeBoard(server)
        self._outboxes: list[Outbox] = []
        if options.command:
            self._outboxes.append(Outbox(CommandDelivery(options.argv())))
        if options.webhook:
            webhook = WebhookDelivery(options.webhook, environ.get(TOKEN, ""))
            self._outboxes.append(Outbox(webhook))

    async def run(self) -> None:
        """Notify until cancelled."""
        async with asyncio.TaskGroup() as group:
            for outbox in self._outboxes:
                group.create_task(outbox.run())
            group.create_task(self._look())

    async def _look(self) -> None:
        while True:
            now = self._conditions()
            if now is not None:
                wanted = {key: it for key, it in now.items() if it.event in self._wanted}
                notices = self._board.take(wanted, self._now_ns() // SECOND_NS * SECOND_NS)
                for outbox in self._outboxes:
                    outbox.put(notices)
            await asyncio.sleep(_LOOK_SECONDS)
