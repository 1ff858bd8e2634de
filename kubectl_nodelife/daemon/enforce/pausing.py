"""`daemon pause`: nothing is written until a person resumes, a restart of the daemon included."""

from __future__ import annotations

from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.kube.times import format_time

_MARK = "paused"


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
