"""What enforcing writes, and where it is noted.

The writers of the enforcing controllers have a client, a token bucket, Events and limits each: the
caps of the guard and the controller's client QPS. What becomes of an action is noted in the journal
of changes, and in that of writes. When enforcing begins and ends, by whose order, which breaker
opens and closes, and what is left behind (with the kubectl lines that would clean it up) is a row
of the journal of changes, a line of the log, and an Event on our Lease, so that `kubectl describe`
shows it to everyone; an Event that is lost is no failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.rolling_update import (
    InvalidBudgetError,
    surge_count,
    unavailable_count,
)
from kubectl_nodelife.controllers.nodelifecycle.taints import is_own
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.changes import patch_text
from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.daemon.settings import EMPTY_CONFIG, ClusterConfig
from kubectl_nodelife.engine.actions import Action, CreatePod, DeletePod, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result, request_of
from kubectl_nodelife.engine.guard import CAP_NAMES, UPSTREAM, Breaker, Caps
from kubectl_nodelife.engine.pace import ENFORCED_BURST, ENFORCED_QPS
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.encode import encode_part
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import UNKNOWN
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.live.action_sender import HELD
from kubectl_nodelife.live.clock import ServerClock
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import ControllerWriter
from kubectl_nodelife.live.executor_port import Recorder
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.writer import Writer, WritingSession

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
            namespace, name = work.pod
            left = format_duration(max(0, work.due_ns - now_ns) // SECOND_NS * SECOND_NS)
            command = f"kubectl delete pod {shlex.join(('-n', namespace, name))}"
            yield f"pod/{name} was to be evicted in {left}: {command}"


def _rollouts(cache: Cache) -> Iterator[str]:
    for found in cache.all("DaemonSet"):
        assert isinstance(found, DaemonSet)
        status = found.status
        if status.updated_number_scheduled < status.desired_number_scheduled:
            namespace, name = found.key
            yield (
                f"daemonset/{name} has {status.updated_number_scheduled} of "
                f"{status.desired_number_scheduled} pods up to date: "
                f"kubectl rollout undo -n {shlex.quote(namespace)} {subject('daemonset', name)}"
            )


def client_rate(settings: Settings) -> tuple[float, int]:
    """Requests a second and at once, of each controller: ours, unless the user set upstream's."""
    given = {n for n in ("kube-api-qps", "kube-api-burst") if settings.origins.get(n) == "--set"}
    qps = float(settings.flags["kube-api-qps"]) if "kube-api-qps" in given else ENFORCED_QPS
    burst = int(settings.flags["kube-api-burst"]) if "kube-api-burst" in given else ENFORCED_BURST
    return qps, burst


def daemon_set_syncs(settings: Settings) -> int:
    """How many DaemonSets have writes on their way at once."""
    return int(settings.flags["concurrent-daemonset-syncs"])


def caps_of(orders: Orders, section: ClusterConfig = EMPTY_CONFIG) -> Caps:
    """The caps that the user asked for: flags before what the config file says of the cluster, none
    of which counts beside `--caps=upstream`. `NAME=N` of a single cap: see `CAP_NAMES`.
    """
    upstream = orders.caps == "upstream"
    given = {} if upstream else dict(section.caps)
    for text in orders.single_caps:
        name, _, value = text.partition("=")
        given[name] = int(value)
    caps = UPSTREAM if upstream else Caps()
    for name, number in given.items():
        field, in_percent = CAP_NAMES[name]
        caps = replace(caps, **{field: number / 100 if in_percent else number})
        if field == "set_deletions_a_minute":
            caps = replace(caps, set_deletions_by_budget=False)
    total = section.max_writes if orders.max_writes is None else orders.max_writes
    return replace(caps, total=total)


def set_of(cache: Cache) -> Callable[[DeletePod], tuple[str, int]]:
    """For the guard: a daemon pod's set, and how many of its pods an update may take down."""

    def found(action: DeletePod) -> tuple[str, int]:
        pod = cache.pods.get(action.target[1])
        owner = controller_of(pod.metadata) if pod is not None else None
        if pod is None or owner is None:
            return "", 0
        daemon_set = cache.get("DaemonSet", (pod.namespace, owner.name))
        if not isinstance(daemon_set, DaemonSet):
            return owner.uid, 0
        desired = daemon_set.status.desired_number_scheduled
        try:
            down, surge = unavailable_count(daemon_set, desired), surge_count(daemon_set, desired)
        except InvalidBudgetError:
            return owner.uid, 0
        return owner.uid, max(down, surge)

    return found


_EVENT_SHARE: Final = 8
_GIVES_WAY_S: Final = 2.0
_LOOK_S: Final = 0.02


def controller_writers(
    controllers: Iterable[str],
    settings: Settings,
    session: WritingSession,
    now_ns: Callable[[], int],
    monotonic_ns: Callable[[], int],
    clock: ServerClock,
    closed_because: Callable[[], str],
    is_sending: Callable[[], bool],
) -> dict[str, ControllerWriter]:
    """By controller. Events get an eighth of its tokens, and are sent while the gate is open.

    While writes are on their way (`is_sending`) an Event waits up to two seconds: upstream sends
    both at once, here they share one thread, and a mark or taint matters more.
    """
    qps, burst = client_rate(settings)

    def writing(name: str) -> ControllerWriter:
        writer = Writer(session, name, monotonic_ns, clock)
        tokens = TokenBucket(qps / _EVENT_SHARE, max(1, burst // _EVENT_SHARE))

        async def admitted() -> bool:
            at_ns = tokens.reserve(monotonic_ns())
            await asyncio.sleep(max(0.0, (at_ns - monotonic_ns()) / SECOND_NS))
            until_ns = monotonic_ns() + int(_GIVES_WAY_S * SECOND_NS)
            while is_sending() and monotonic_ns() < until_ns:
                await asyncio.sleep(_LOOK_S)
            return not closed_because()

        events = EventSender(writer, now_ns, admitted)
        return ControllerWriter(writer, TokenBucket(qps, burst), events)

    return {name: writing(name) for name in controllers}


APPLIED, FAILED, SUPERSEDED = "applied", "failed", "superseded"

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
        self._ledger.note_enforced(action, now_ns, _node_of(action, seen), patch)

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
        elif result.code == HELD:
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


class IntentJournal:
    """`executor.Journal` over the journal of writes. `epoch`: that of the Lease."""

    def __init__(
        self, intents: Intents, now_ns: Callable[[], int], epoch: Callable[[], int]
    ) -> None:
        self._intents = intents
        self._now_ns = now_ns
        self._epoch = epoch

    async def begin(self, action: Action, version: str, digest: str) -> int:
        """Bring the intent to the disk. Raises OSError."""
        kind, (namespace, name) = action.target
        intent = Intent(
            self._now_ns(),
            action.controller,
            action_text(action),
            kind,
            namespace,
            name,
            action.uid,
            version,
            digest,
            self._epoch(),
        )
        return await self._intents.begin(intent)

    def note(
        self, number: int, state: str, code: int = 0, message: str = "", version: str = ""
    ) -> None:
        """Write down the state of a write."""
        self._intents.note(number, state, code, message, version)


def action_text(action: Action) -> str:
    """An action as tagged JSON, without what led to it."""
    fields: dict[str, Any] = {
        name: value
        for name in action.__struct_fields__
        if name not in _NOT_KEPT and (value := getattr(action, name)) is not None
        if not isinstance(value, msgspec.Struct)
    }
    return _json.encode({"type": type(action).__name__, **fields}).decode()


def _node_of(action: Action, seen: KubeObject | None) -> str:
    if isinstance(action, CreatePod):
        return action.node
    if isinstance(seen, Pod):
        return seen.spec.node_name
    kind, key = action.target
    return key[1] if kind == "Node" else ""
