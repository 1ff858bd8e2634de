"""Keeps over restarts what only a person ends: a pause, and an open breaker.

Both are kept with the journal of writes. A breaker that closes by itself, or that each start
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
_ADOPTED = "adopted"
SETTINGS = "settings"
"""The rule of a breaker for settings that contradict a manager's: each beginning looks anew."""


class Pause:
    """Kept with the journal of writes. Instants in ns since the epoch; 0: for ever."""

    def __init__(self, intents: Intents) -> None:
        self._intents = intents
        kept = intents.mark(_MARK)
        self._paused = bool(kept)
        self._until_ns = int(kept) if kept.isdecimal() else 0  # what cannot be read is for ever

    def begin(self, until_ns: int = 0) -> str:
        """Stop writing. Why a restart would end it, "" where it would not."""
        self._paused, self._until_ns = True, until_ns
        return self._keep(str(until_ns), "writing is paused, until the daemon ends")

    def end(self) -> str:
        """Go on. Why a restart would pause again, "" where it would not."""
        self._paused = False
        return self._keep("", "writing goes on, until the daemon ends")

    def _keep(self, text: str, meanwhile: str) -> str:
        try:
            self._intents.mark(_MARK, text)
        except sqlite3.Error as error:
            line = f"{meanwhile}: a restart will not know of it, it cannot be kept ({error})"
            log.error("%s", line)
            return line
        return ""

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


def adopt(own: Intents, moved: Intents) -> None:
    """Take over a pause and open breakers from a journal that was moved, once. Raises
    sqlite3.Error.
    """
    if moved.mark(_ADOPTED):
        return
    if (paused := moved.mark(_MARK)) and not own.mark(_MARK):
        own.mark(_MARK, paused)
    if breakers := [*_read(own.mark(_BREAKERS)), *_read(moved.mark(_BREAKERS))]:
        own.mark(_BREAKERS, msgspec.json.encode(breakers).decode())
    moved.mark(_ADOPTED, "yes")


def _read(text: str) -> list[Breaker]:
    """The breakers that were kept. Text that cannot be read is a breaker of its own, since somebody
    must look at it.
    """
    try:
        return msgspec.json.decode(text, type=list[Breaker]) if text else []
    except msgspec.MsgspecError as error:
        return [Breaker("breakers", f"the breakers that were kept cannot be read: {error}", 0)]
