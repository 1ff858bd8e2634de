"""Tells which kinds must be listed anew before anything is decided, and why.

After a suspend, a gap in a watch or a change of the clock, what was seen before may be out of date,
and a watch that looks alive may be a dead connection. No controller decides until a list of each
kind concerned has come that was asked for after that moment. There is no upstream to follow: a
kube-controller-manager loses its lease instead, and begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable

_WORDS_AT_MOST = 3


class Freshness:
    """The lists still waited for. Instants are ns of the steady clock (`live.clock.steady_ns`)."""

    def __init__(self) -> None:
        self._needed: dict[str, int] = {}  # kind -> a list must have been asked for at or after it
        self._asked: dict[str, int] = {}  # kind -> when the newest list was asked for
        self._because = ""

    def demand(self, kinds: Iterable[str], since_ns: int, because: str) -> list[str]:
        """Wait for a list of each of these kinds asked for at or after `since_ns`.

        Returns those of which no such list has come yet, which are to be listed anew.
        """
        wanting = [kind for kind in kinds if self._asked.get(kind, -1) < since_ns]
        for kind in wanting:
            self._needed[kind] = max(since_ns, self._needed.get(kind, 0))
        if wanting:
            self._because = because
        return wanting

    def listed(self, kind: str, asked_ns: int) -> None:
        """A list of the kind has come that was asked for then."""
        self._asked[kind] = max(asked_ns, self._asked.get(kind, 0))
        if kind in self._needed and asked_ns >= self._needed[kind]:
            del self._needed[kind]

    def excuse(self, kinds: Iterable[str]) -> None:
        """These kinds cannot be read: nobody waits for them."""
        for kind in kinds:
            self._needed.pop(kind, None)

    def waiting(self) -> str:
        """Why nothing is decided, and what is waited for; "" where nothing is."""
        if not self._needed:
            return ""
        kinds = sorted(self._needed)
        named = ", ".join(kinds[:_WORDS_AT_MOST]) + (", …" if kinds[_WORDS_AT_MOST:] else "")
        return f"{self._because}: waiting for a new list of {named}"
