"""Notes in the journal of changes, and in that of writes, what becomes of enforced actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from kubectl_nodelife.daemon.changes import node_of, patch_text
from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import Answer, Result, request_of
from kubectl_nodelife.engine.settlement import APPLIED, FAILED, SUPERSEDED
from kubectl_nodelife.kube.codec import encode_part
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.live.action_sender import HELD
from kubectl_nodelife.live.executor_port import Recorder

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
        self._ledger.note_enforced(action, now_ns, node_of(action, seen), patch)

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
