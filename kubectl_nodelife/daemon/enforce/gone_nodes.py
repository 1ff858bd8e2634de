"""Counts Node objects that vanished within ten minutes while pods of no DaemonSet were on them.

Kept with the journal of writes: a restart must not make a wiped list of nodes look like one that
was always short. What vanished while nobody watched counts from the moment it is missed.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.times import SECOND_NS

WITHIN_NS: Final = 600 * SECOND_NS
_MARK: Final = "nodes"
_KEEP_NS: Final = SECOND_NS


class _Kept(msgspec.Struct):
    """`gone`: name -> when, in ns since the epoch. `there`: the nodes seen last."""

    gone: dict[str, int] = {}
    there: list[str] = []


class GoneNodes:
    """See the module. Without `intents` it remembers for as long as the process lives.

    `unreadable`: why nobody knows what was gone before, "" where that is known.
    """

    def __init__(self, intents: Intents | None = None) -> None:
        self._intents = intents
        text = intents.mark(_MARK) if intents is not None else ""
        self.unreadable, kept = "", _Kept()
        try:
            kept = msgspec.json.decode(text, type=_Kept) if text else kept
        except msgspec.MsgspecError as error:
            self.unreadable = f"which nodes were gone before cannot be read: {error}"
        self._gone = kept.gone
        self._there = set(kept.there)
        self._changed = False
        self._kept_ns = 0

    def begin(self, cache: Cache, now_ns: int) -> None:
        """All lists are read: what was there when somebody last looked, and is not now."""
        for name in sorted(self._there - cache.nodes.keys()):
            self.gone(name, cache, now_ns)
        self._there = set(cache.nodes)
        self._changed = True

    def came(self, name: str) -> None:
        """A node is there."""
        if name not in self._there:
            self._there.add(name)
            self._changed = True

    def gone(self, name: str, cache: Cache, now_ns: int) -> bool:
        """A node is not there any more; whether it counts."""
        self._there.discard(name)
        self._changed = True
        owners = (controller_of(pod.metadata) for pod in cache.pods_on(name))
        if all(owner is not None and owner.kind == "DaemonSet" for owner in owners):
            return False
        self._gone[name] = now_ns
        return True

    def count(self, now_ns: int) -> int:
        """How many have vanished within ten minutes."""
        self._gone = {name: at for name, at in self._gone.items() if at > now_ns - WITHIN_NS}
        return len(self._gone)

    def forget(self) -> None:
        """A person has seen it, and said go on."""
        self._gone, self._changed, self.unreadable = {}, True, ""

    def keep(self, now_ns: int) -> None:
        """Bring it to the disk, at most once a second."""
        if self._intents is None or not self._changed or now_ns < self._kept_ns + _KEEP_NS:
            return
        self._changed, self._kept_ns = False, now_ns
        text = msgspec.json.encode(_Kept(self._gone, sorted(self._there))).decode()
        try:
            self._intents.mark(_MARK, text)
        except sqlite3.Error as error:
            log.error("which nodes are gone is lost with the process, it is not kept: %s", error)
