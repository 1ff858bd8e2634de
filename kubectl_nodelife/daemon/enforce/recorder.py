"""Notes what becomes of enforced actions, and says when enforcing begins and ends, by whose order,
which breaker opens and closes, and what is left behind.

What becomes of an action goes to the journal of changes, and to that of writes. What is said is an
Event on our Lease, so that `kubectl describe` shows it to everyone, a row of the journal of
changes, and a line of the log. An Event that is lost is no failure. What is not cleaned up once
enforcing ends is listed with the kubectl lines that would do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.taints import is_own
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.changes import node_of, patch_text
from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result, request_of
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.engine.guard import Breaker
from kubectl_nodelife.engine.settlement import APPLIED, FAILED, SUPERSEDED
from kubectl_nodelife.kube.codec import encode_part
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import UNKNOWN
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor_port import Recorder
from kubectl_nodelife.live.lease import LeaseKeeper

_NOT_KEPT = ("cause", "manifest", "patch")
"""Nor an object that is created, nor a status: a template may hold secrets, and messages too."""

_json = msgspec.json.Encoder(enc_hook=encode_part)


class ChangeRecorder(Recorder):
    """Keeps in the ledger what becomes of each action. `counts`: how many ended how.

    `on_sending`, `on_answered`: further listeners. `answers`: requests by controller, action and
    class of answer.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.on_sending: Callable[[Action], None] = lambda action: None
        self.on_answered: Callable[[Action, Answer, float], None] = lambda action, answer, s: None
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.counts: dict[str, int] = {APPLIED: 0, FAILED: 0, SUPERSEDED: 0, "held": 0}
        self._ledger = ledger

    def planned(self, action: Action, seen: KubeObject | None, now_ns: int) -> None:
        """A decision."""
        patch = patch_text(request_of(action, seen, now_ns), self._ledger.digest)
        self._ledger.note(action, now_ns, node_of(action, seen), patch, enforced=True)

    def held(self, action: Action, because: str, until_ns: int) -> None:
        """A guard holds it."""
        self.counts["held"] += 1
        self._ledger.hold(action, because, until_ns)

    def sending(self, action: Action) -> None:
        """A request of it is about to be sent."""
        self._ledger.attempted(action)
        self.on_sending(action)

    def answered(self, action: Action, answer: Answer, took_s: float) -> None:
        """The request was answered, or not."""
        self.answers[action.controller, type(action).__name__, _class_of(answer.code)] += 1
        self.on_answered(action, answer, took_s)

    def ended(self, action: Action, result: Result, now_ns: int) -> None:
        """It was carried out, or not."""
        if result.ok and result.changed:
            outcome, why = APPLIED, ""
        elif result.ok or result.code == 404:
            outcome, why = SUPERSEDED, result.recorded or "there was nothing left to do"
        elif result.code == NOT_SENT:
            outcome, why = SUPERSEDED, f"not sent: {result.recorded}"
        else:
            outcome, why = FAILED, ""
        self.counts[outcome] += 1
        error = f"{result.code}: {result.recorded}" if outcome == FAILED else ""
        self._ledger.settle(action, outcome, now_ns, why, error)


def _class_of(code: int) -> str:
    """The code where it says much, else its class; `lost` without an answer."""
    if code in (404, 409, 429):
        return str(code)
    return f"{code // 100}xx" if 200 <= code < 600 else "lost"


class IntentJournal(NamedTuple):
    """The executor's `IntentWriter` over the journal of writes. `epoch`: that of the Lease."""

    intents: Intents
    now_ns: Callable[[], int]
    epoch: Callable[[], int]

    async def begin(self, action: Action, version: str, digest: str) -> int:
        """Bring the intent to the disk. Raises OSError."""
        kind, key = action.target
        of = (self.now_ns(), action.controller, action_text(action), kind, *key, action.uid)
        return await self.intents.begin(Intent(*of, version, digest, self.epoch()))

    def note(
        self, number: int, state: str, code: int = 0, message: str = "", version: str = ""
    ) -> None:
        """Write down the state of a write."""
        self.intents.note(number, state, code, message, version)


def action_text(action: Action) -> str:
    """An action as tagged JSON, without what led to it."""
    fields: dict[str, Any] = {
        name: value
        for name in action.__struct_fields__
        if name not in _NOT_KEPT and (value := getattr(action, name)) is not None
        if not isinstance(value, msgspec.Struct)
    }
    return _json.encode({"type": type(action).__name__, **fields}).decode()


BEGAN, ENDED = "EnforcingBegan", "EnforcingEnded"
OPENED, CLOSED = "BreakerOpened", "BreakerClosed"
_WARNINGS: Final = frozenset({ENDED, OPENED})
_FLUSH_S: Final = 2.0

MOST: Final = 10
"""So many lines of each sort are printed."""


class Announcer:
    """Says in Events, the journal and the log when enforcing begins, is held up, and ends."""

    def __init__(
        self, ledger: Ledger, sender: EventSender, keeper: LeaseKeeper, now_ns: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._keeper = keeper
        self._now_ns = now_ns
        self._sender = sender
        self._begun = False

    def began(self, controllers: str) -> None:
        """The controllers decide from now on, for the first time or again."""
        if self._begun:
            return
        self._begun = True
        before = self._keeper.election.taken_from
        after = f", after {before}" if before else ""
        self._announce(BEGAN, f"{controllers} by order of {user_and_host()}{after}")

    def ended(self, because: str) -> None:
        """They do no longer."""
        if self._begun:
            self._begun = False
            self._announce(ENDED, because)

    def opened(self, breaker: Breaker) -> None:
        """Something is held back from now on."""
        self._announce(OPENED, f"{breaker.rule}: {breaker.because}")

    def closed(self, breaker: Breaker, how: str) -> None:
        """It is not any more."""
        self._announce(CLOSED, f"{breaker.rule}: {how}")

    async def run(self) -> None:
        """Send Events until cancelled."""
        await self._sender.run()

    async def flush(self) -> None:
        """Let what waits be sent, for two seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._sender.sent()

    def _announce(self, reason: str, message: str) -> None:
        log.warning("%s: %s", reason, message)
        namespace, name = self._keeper.election.key
        event = RecordEvent(
            controller="enforce",
            because=message,
            cause=None,
            kind="Lease",
            namespace=namespace,
            name=name,
            object_uid=self._keeper.election.uid,
            type="Warning" if reason in _WARNINGS else "Normal",
            reason=reason,
            message=message,
        )
        self._ledger.note_done(event, self._now_ns())
        self._sender.put(event)


def user_and_host() -> str:
    """Who runs this process, and where."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user has no name
        user = "an unknown user"
    return f"{user} on {socket.gethostname()}"


def left_behind(
    cache: Cache,
    eviction: TaintEvictionController | None,
    controllers: Collection[str],
    now_ns: int,
) -> list[str]:
    """A line for each thing, of the controllers that were enforced."""
    sorts = []
    if "node-lifecycle" in controllers:
        sorts += [_tainted(cache), _unknown(cache)]
    if "taint-eviction" in controllers and eviction is not None:
        sorts.append(_evictions(cache, eviction, now_ns))
    if "daemonset" in controllers:
        sorts.append(_rollouts(cache))
    return [line for sort in sorts for line in _some(list(sort))]


def _some(lines: list[str]) -> list[str]:
    what = lines[0].partition("/")[0] if lines else ""
    more = [f"{what}: and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [*lines[:MOST], *more]


def _tainted(cache: Cache) -> Iterator[str]:
    for name in sorted(cache.nodes):
        taints = [f"{t.key}:{t.effect}" for t in cache.nodes[name].spec.taints if is_own(t)]
        if taints:
            off = shlex.join(f"{taint}-" for taint in taints)
            command = f"kubectl taint {subject('node', name)} {off}"
            yield f"node/{name} keeps {', '.join(taints)}: {command}"


def _unknown(cache: Cache) -> Iterator[str]:
    for name in sorted(cache.nodes):
        ready = cache.nodes[name].ready()
        if ready is not None and ready.status == UNKNOWN:
            command = f"kubectl describe {subject('node', name)}"
            yield f"node/{name} is Unknown until its kubelet posts: {command}"


def _evictions(cache: Cache, eviction: TaintEvictionController, now_ns: int) -> Iterator[str]:
    for node in sorted(eviction.workers.nodes()):
        for work in eviction.pending(node):
            namespace, name = work.key
            remaining = format_duration(max(0, work.due_ns - now_ns) // SECOND_NS * SECOND_NS)
            command = f"kubectl delete pod {shlex.join(('-n', namespace, name))}"
            yield f"pod/{name} was to be evicted in {remaining}: {command}"


def _rollouts(cache: Cache) -> Iterator[str]:
    for daemon_set in cache.all("DaemonSet"):
        assert isinstance(daemon_set, DaemonSet)
        status = daemon_set.status
        if status.updated_number_scheduled < status.desired_number_scheduled:
            namespace, name = daemon_set.key
            yield (
                f"daemonset/{name} has {status.updated_number_scheduled} of "
                f"{status.desired_number_scheduled} pods up to date: "
                f"kubectl rollout undo -n {shlex.quote(namespace)} {subject('daemonset', name)}"
            )
