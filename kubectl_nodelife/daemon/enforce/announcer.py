"""Says when enforcing begins and ends, by whose order, which breaker opens and closes, and what is
left behind.

Each is an Event on our Lease, so that `kubectl describe` shows it to everyone, a row of the journal
of changes, and a line of the log. An Event that is lost is no failure. What is not cleaned up once
enforcing ends is listed with the kubectl lines that would do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import shlex
import socket
from collections.abc import Callable, Collection, Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import is_own
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import Breaker
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import UNKNOWN
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.lease import LeaseKeeper

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
