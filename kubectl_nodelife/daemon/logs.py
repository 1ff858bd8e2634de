"""The daemon's log file: readable by the user alone, in UTC, at most five files of two megabytes.

It records when the daemon started, what it watches, when it could not watch, and changed settings.
No tokens, no bodies.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import time
from io import TextIOWrapper
from typing import Final

log: Final = logging.getLogger("nodelife")

_MOST_BYTES = 2 << 20
_FILES = 5
_STORM_MESSAGES = 10
_STORM_SECONDS = 60.0
_STORM_KEY = 60
_STORM_KEYS = 1_000
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
        if record.created - began > _STORM_SECONDS or record.created < began:
            left_out = count - _STORM_MESSAGES
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} more were left out before)"
                record.args = ()
            began, count = record.created, 0
        if len(self._seen) > _STORM_KEYS:
            self._seen.clear()
        self._seen[key] = began, count + 1
        return count < _STORM_MESSAGES


def begin_log(path: str, *, to_terminal: bool) -> None:
    """Log to the file, and to stderr in the foreground.

    A file that cannot be opened is left out.
    """
    formatter = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handlers: list[logging.Handler] = []
    if to_terminal:
        handlers.append(logging.StreamHandler())
    with contextlib.suppress(OSError):
        handlers.append(_PrivateFile(path, maxBytes=_MOST_BYTES, backupCount=_FILES - 1))
    for handler in handlers:
        handler.setFormatter(formatter)
        log.addHandler(handler)
    storms = _Storms()
    for logger in (log, logging.getLogger("asyncio")):
        logger.addFilter(storms)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("asyncio").handlers = list(log.handlers)
