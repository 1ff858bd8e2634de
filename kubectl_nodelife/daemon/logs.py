"""The daemon's log file: readable by the user alone, in UTC, at most five files of two megabytes.

It records when the daemon started, what it watches, when it could not watch, and changed settings.
No tokens, no bodies. Whatever packages log, threads that end by an exception and Python's warnings
go to the same file, by the same limits; of these only the kind is kept, since their texts and those
of exceptions may quote a secret, and what others can cause in masses fills no disk.

`QuarantineLog` records what enters and leaves quarantine. Nothing of an object's
values is logged, and of an exception only its type and where it came from: either might quote a
secret.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from typing import Final

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Gone, Put, Unreadable
from kubectl_nodelife.engine.quarantine import Bug, Quarantine, words
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Ref, places_raised, where_raised

log: Final = logging.getLogger("nodelife")

_MOST_BYTES = 2 << 20
_FILES = 5
_STORM_MESSAGES = 10
_STORM_SECONDS = 60.0
_STORM_KEY = 60
_STORM_KEYS = 1_000
_LONGEST = 100
_FOREIGN = re.compile(r": |\n")
"""What ends a message's kind; values follow it."""
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotating file that no other user may read, each new one included."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


class _Storms(logging.Filter):
    """Lets a message through a few times a minute, whatever its arguments are.

    Without it what fails many times a second (a socket that cannot accept while file descriptors
    are short) turns the files round within minutes, and what came before is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if it is to be written; the first after a pause says how many were left out."""
        key = record.name, str(record.msg)[:_STORM_KEY]
        began, count = self._seen.get(key, (record.created, 0))
        record.left_out = 0
        if record.created - began > _STORM_SECONDS or record.created < began:
            record.left_out = max(0, count - _STORM_MESSAGES)
            began, count = record.created, 0
        if len(self._seen) > _STORM_KEYS:
            self._seen.clear()
        self._seen[key] = began, count + 1
        return count < _STORM_MESSAGES


class _Lines(logging.Formatter):
    """One line a record: our own text, or which package said it and the beginning of its template.
    Of an exception the type and the place.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text = record.getMessage()
        if record.name != log.name:
            text = f"{record.name}: {_FOREIGN.split(str(record.msg), 1)[0][:_LONGEST]}"
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {where_raised(record.exc_info[1])}"
        if left_out := getattr(record, "left_out", 0):
            text = f"{text} ({left_out} more were left out before)"
        plain = logging.makeLogRecord({**record.__dict__, "msg": text, "args": ()})
        plain.exc_info = plain.exc_text = plain.stack_info = None
        return super().format(plain)


def begin_log(path: str, *, to_terminal: bool) -> None:
    """Log to the file, and to stderr in the foreground: what this program says, and all others.

    A file that cannot be opened is left out.
    """
    formatter = _Lines(_FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handlers: list[logging.Handler] = []
    if to_terminal:
        handlers.append(logging.StreamHandler())
    with contextlib.suppress(OSError):
        handlers.append(_PrivateFile(path, maxBytes=_MOST_BYTES, backupCount=_FILES - 1))
    root = logging.getLogger()
    root.handlers = handlers or [logging.NullHandler()]
    for handler in root.handlers:
        handler.setFormatter(formatter)
        handler.addFilter(_Storms())  # of a handler: a logger's own filters pass over its children
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = _note_thread
    sys.unraisablehook = _note_unraisable


def _note_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None:
        log.error("a thread ended: %s", where_raised(ended.exc_value))


def _note_unraisable(raised: sys.UnraisableHookArgs) -> None:
    if raised.exc_value is not None:
        log.error("nobody could be told of: %s", where_raised(raised.exc_value))


MOST_AT_ONCE: Final = 20


class QuarantineLog:
    """Remembers what it has logged."""

    def __init__(self) -> None:
        self._logged: set[Ref] = set()

    def log_changes(self, quarantine: Quarantine) -> None:
        """Log what came and went since the last time; of many only the first."""
        present = quarantine.unreadable
        came = [ref for ref in present if ref not in self._logged]
        went = [ref for ref in self._logged if ref not in present]
        for ref in came[:MOST_AT_ONCE]:
            log.warning("%s cannot be read (%s): in quarantine", words(ref), present[ref].why)
        for ref in went[:MOST_AT_ONCE]:
            log.info("%s is in quarantine no more", words(ref))
        more = max(0, len(came) - MOST_AT_ONCE) + max(0, len(went) - MOST_AT_ONCE)
        if more:
            log.warning("and %d objects more, of %d in quarantine", more, len(present))
        self._logged = set(present)


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
