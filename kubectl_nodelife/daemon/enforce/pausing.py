"""What only a person ends, a restart of the daemon included: a pause, and an open breaker.

Both are kept with the journal of writes. A breaker that heals by itself, or that each beginning
decides anew, is not kept.
"""

from __future__ import annotations

import sqlite3

import msgspec

from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.guard import Breaker, Guard
from kubectl_nodelife.kube.times import format_time

_MARK = "paused"
_BREAKERS = "breakers"
SETTINGS = "settings"
"""The rule of a breaker for settings that contradict a manager's: each beginning looks anew."""


class Pause:
    """Kept with the journal of writes. Instants in ns since the epoch; 0: for ever."""

    def __init__(self, intents: Intents) -> None:
        self._intents = intents
        kept = intents.mark(_MARK)
        self._paused = bool(kept)
        self._until_ns = int(kept or 0)

    def begin(self, until_ns: int = 0) -> None:
        """Stop writing."""
        self._paused, self._until_ns = True, until_ns
        self._intents.mark(_MARK, str(until_ns))

    def end(self) -> None:
        """Go on."""
        self._paused = False
        self._intents.mark(_MARK, "")

    def because(self, now_ns: int) -> str:
        """Why nothing is written, "" where that is allowed."""
        if not self._paused or (self._until_ns and now_ns >= self._until_ns):
            return ""
        until = f" until {format_time(self._until_ns)}" if self._until_ns else ""
        return f"paused by `daemon pause`{until}"


class KeptBreakers:
    """Opens again what was open when the last process ended, and keeps what opens from now on."""

    def __init__(self, guard: Guard, intents: Intents) -> None:
        self._guard = guard
        self._intents = intents
        for breaker in _read(intents.mark(_BREAKERS)):
            guard.open(breaker)

    def keep(self) -> None:
        """Bring what needs a person to the disk. One that cannot be kept is open all the same."""
        kept = [b for b in self._guard.breakers.values() if not b.heals and b.rule != SETTINGS]
        try:
            self._intents.mark(_BREAKERS, msgspec.json.encode(kept).decode())
        except sqlite3.Error as error:
            log.error("an open breaker is lost with the process, it cannot be kept: %s", error)


def _read(text: str) -> list[Breaker]:
    """What was kept; what cannot be read is a breaker of its own: somebody must look."""
    try:
        return msgspec.json.decode(text, type=list[Breaker]) if text else []
    except msgspec.MsgspecError as error:
        return [Breaker("breakers", f"the breakers that were kept cannot be read: {error}", 0)]
