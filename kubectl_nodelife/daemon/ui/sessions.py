"""Who may see the page: tokens that work once, and the sessions that they begin.

A token for a second screen works again and again for ten minutes; what it begins only looks on.

All of it is in memory. A token goes to the browser in the fragment of an address, which is never
sent in a request line, a Referer or a log.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

TOKEN_SECONDS: Final = 120.0
READ_ONLY_TOKEN_SECONDS: Final = 600.0
SESSION_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 16
"""So many of each kind: those that only look on end none of the owner's."""
MOST_TOKENS: Final = 16
MOST_WRONG: Final = 10
CLOSED_SECONDS: Final = 60.0
_MOST_PEERS: Final = 256


class _Pass(NamedTuple):
    """A token or a session: until when it is good, and whether it only looks on."""

    until_s: float
    read_only: bool


class Sessions:
    """`now_s`: a clock that never goes back, in seconds."""

    def __init__(self, now_s: Callable[[], float], lasts_s: float = SESSION_SECONDS) -> None:
        self._now_s = now_s
        self._lasts_s = min(lasts_s, SESSION_SECONDS)
        self._tokens: dict[str, _Pass] = {}
        self._sessions: dict[str, _Pass] = {}
        self._wrong: dict[str, int] = {}
        self._closed_until_s: dict[str, float] = {}

    def token(self, *, read_only: bool = False) -> str:
        """A new token, good once and for two minutes; `read_only`: often, and for ten. The oldest
        goes where there are many.
        """
        self._forget()
        made = secrets.token_urlsafe(32)
        lasts_s = READ_ONLY_TOKEN_SECONDS if read_only else TOKEN_SECONDS
        self._tokens[made] = _Pass(self._now_s() + lasts_s, read_only)
        while len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return made

    def begin(self, token: str, peer: str = "") -> str | None:
        """The session that a token begins; None: it does not. Ten wrong ones of a peer close the
        door for a minute, for its right ones too.
        """
        self._forget()
        if self.is_closed(peer):
            return None
        found = _find(self._tokens, token)
        if found is None:
            self._wrong[peer] = self._wrong.pop(peer, 0) + 1
            if self._wrong[peer] >= MOST_WRONG:
                del self._wrong[peer]
                self._closed_until_s[peer] = self._now_s() + CLOSED_SECONDS
            while len(self._wrong) > _MOST_PEERS:
                del self._wrong[next(iter(self._wrong))]
            return None
        read_only = self._tokens[found].read_only
        if not read_only:
            del self._tokens[found]
        made = secrets.token_urlsafe(32)
        self._sessions[made] = _Pass(self._now_s() + self._lasts_s, read_only)
        for oldest in self._alike(read_only)[:-MOST_SESSIONS]:
            del self._sessions[oldest]
        return made

    def is_full(self, *, read_only: bool) -> bool:
        """True if the next session of that kind ends the oldest."""
        self._forget()
        return len(self._alike(read_only)) >= MOST_SESSIONS

    def _alike(self, read_only: bool) -> list[str]:
        return [key for key, kept in self._sessions.items() if kept.read_only == read_only]

    def is_closed(self, peer: str = "") -> bool:
        """True if there were so many wrong tokens of this peer that none of it is taken now."""
        return self._now_s() < self._closed_until_s.get(peer, 0.0)

    def holds(self, session: str) -> bool:
        """True if that is a session that goes on."""
        self._forget()
        return _find(self._sessions, session) is not None

    def is_read_only(self, session: str) -> bool:
        """True if it only looks on, as one that is none does."""
        self._forget()
        found = _find(self._sessions, session)
        return found is None or self._sessions[found].read_only

    def end(self, session: str) -> None:
        """End it, if it is one."""
        found = _find(self._sessions, session)
        if found is not None:
            del self._sessions[found]

    def count(self) -> int:
        """How many go on."""
        self._forget()
        return len(self._sessions)

    def _forget(self) -> None:
        now_s = self._now_s()
        for kept in (self._tokens, self._sessions):
            for key in [key for key, good in kept.items() if good.until_s <= now_s]:
                del kept[key]
        for peer in [peer for peer, until_s in self._closed_until_s.items() if until_s <= now_s]:
            del self._closed_until_s[peer]


def _find(kept: Iterable[str], given: str) -> str | None:
    """The key that is the same, compared in constant time."""
    found = None
    sent = given.encode("utf-8", "replace")
    for key in kept:
        if hmac.compare_digest(key.encode(), sent):
            found = key
    return found
