"""Logs what enters and leaves quarantine, and fills the cache so that one bad object stops nothing.

Nothing of an object's values is logged, and of an exception only its type and where it came from:
either might quote a secret.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Final

from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Gone, Put, Unreadable
from kubectl_nodelife.engine.quarantine import Bug, Quarantine, words
from kubectl_nodelife.kube.errors import places_raised
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Ref

MOST_AT_ONCE: Final = 20


class QuarantineLog:
    """Remembers what it has logged."""

    def __init__(self) -> None:
        self._told: set[Ref] = set()

    def tell(self, quarantine: Quarantine) -> None:
        """Log what came and went since the last time; of many only the first."""
        present = quarantine.unreadable
        came = [ref for ref in present if ref not in self._told]
        went = [ref for ref in self._told if ref not in present]
        for ref in came[:MOST_AT_ONCE]:
            log.warning("%s cannot be read (%s): in quarantine", words(ref), present[ref].why)
        for ref in went[:MOST_AT_ONCE]:
            log.info("%s is in quarantine no more", words(ref))
        more = max(0, len(came) - MOST_AT_ONCE) + max(0, len(went) - MOST_AT_ONCE)
        if more:
            log.warning("and %d objects more, of %d in quarantine", more, len(present))
        self._told = set(present)


def take_in(cache: Cache, events: Iterable[Event], now_ns: int) -> None:
    """Bring events into the cache while nothing is decided; an object at which it fails is set
    aside alone.
    """
    for event in events:
        if not isinstance(event, (Put, Gone, Unreadable)):
            continue
        try:
            cache.apply(event, now_ns)
        except Exception as error:
            if isinstance(event, Unreadable):
                raise
            log_bug(cache.quarantine.set_aside(event, error, now_ns))


def fill(cache: Cache, objects: Sequence[KubeObject], now_ns: int) -> None:
    """Take in a first list; an object at which the cache fails is set aside alone."""
    try:
        cache.fill(objects, now_ns)
    except Exception:
        take_in(cache, (Put(kind_of(obj), obj) for obj in objects), now_ns)


def log_bug(bug: Bug) -> None:
    """Log a contained bug, seldom where it comes again and again."""
    if bug.tries & (bug.tries - 1):  # logged are the first, second, fourth, eighth ... time
        return
    places = traceback.extract_tb(bug.error.__traceback__)
    where = " < ".join(f"{place.filename}:{place.lineno}" for place in reversed(places[-6:]))
    name = type(bug.error).__name__
    log.error("bug, contained: %s at %s: %s at %s", bug.controller, words(bug.about), name, where)


def log_end(part: str, error: BaseException) -> None:
    """Log that the daemon ends because of a bug."""
    log.error("ends because of a bug in %s: %s", part, places_raised(error))
