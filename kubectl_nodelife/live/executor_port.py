"""The interfaces that the executor is given: intents, results, gate, evidence, Events, clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from kubectl_nodelife.engine.actions import Action, SetNodeConditions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result
from kubectl_nodelife.engine.events import Event
from kubectl_nodelife.engine.guard import Guard, WriteConditions
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.writer import Writer


class Recorder:
    """Receives what becomes of each action. A recorder of some of it derives from this class and
    leaves the other methods as they are."""

    def planned(self, action: Action, seen: KubeObject | None, now_ns: int) -> None:
        """It was decided."""

    def held(self, action: Action, because: str, until_ns: int) -> None:
        """A guard holds it."""

    def sending(self, action: Action) -> None:
        """A request of it is about to be sent."""

    def answered(self, action: Action, answer: Answer, took_s: float) -> None:
        """The request was answered, or not (code 0)."""

    def ended(self, action: Action, result: Result, now_ns: int) -> None:
        """It was carried out, refused, or there was nothing left to do."""


class IntentWriter(Protocol):
    """Keeps intents (`daemon/intents.py`)."""

    async def begin(self, action: Action, version: str, digest: str) -> int:
        """Bring the intent to the disk. Raises OSError."""

    def note(
        self, number: int, state: str, code: int = 0, message: str = "", version: str = ""
    ) -> None:
        """The outcome."""


class NodeLossCheck(Protocol):
    """Knows a node's last sign of life, from the API server itself and from its watch."""

    async def check_loss(self, node: str) -> Result:
        """Ok where nothing newer is there than the cache knows, `NOT_SENT` where there is."""

    def reported_since(self, action: SetNodeConditions, node: Node | None, decided_ns: int) -> str:
        """The news of the kubelet since the decision, "" for none."""


class ControllerWriter(msgspec.Struct):
    """The credentials and limits that one controller writes with."""

    writer: Writer
    bucket: TokenBucket
    events: EventSender | None = None
    """None: it records no Events, as kubectl does not."""


def _dropped(item: object) -> None:
    """An outcome or a bug of which nothing else is kept."""


class ExecutorPort(msgspec.Struct):
    """The executor's inputs. Clocks in ns since the epoch: `now_ns` is the one by which is decided,
    `monotonic_ns` one that nobody can set (`live.clock.MonotonicClock`), for guard and limits.
    """

    cache: Cache
    guard: Guard
    view: Callable[[], WriteConditions]
    journal: IntentWriter
    recorder: Recorder
    now_ns: Callable[[], int]
    monotonic_ns: Callable[[], int]
    patience_ns: int
    """An action that waited longer is not sent but decided anew: one monitor period."""

    evidence: NodeLossCheck | None = None
    """None: no node can be called lost."""

    deliver: Callable[[Event], None] = _dropped
    """Where outcomes go, and objects that an answer showed."""

    on_bug: Callable[[Bug], None] = _dropped
    """Receives an exception of ours while an action was carried out: nothing more of it is sent."""

    waits: Callable[[Action], bool] = lambda action: True
    """True if an action may wait for a next try within its conversation, such as an eviction that a
    budget refuses. False where its controller looks again, and may not want it any more.
    """
