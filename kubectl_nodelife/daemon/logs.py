"""The daemon's log: its own file, readable by the user alone, in UTC, five times two megabytes.

What is logged is what a person asks afterwards: when it began, what it reads, when it could not
see, what it was told to do differently. No tokens, no bodies.
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
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotating file that nobody else may read, each new one included."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


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
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("asyncio").handlers = list(log.handlers)
