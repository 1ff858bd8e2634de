"""Reads the log of a daemon: its last lines, and what comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final, TextIO

from kubectl_nodelife.errors import Unreachable

_LOOK_SECONDS: Final = 0.3


def log_lines(path: str, tail: int, follow: bool) -> Iterator[str]:
    """The last lines of the log, then what comes, over rotations. Raises Unreachable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
            yield "".join(lines if tail < 0 else lines[len(lines) - min(tail, len(lines)) :])
            if follow:
                yield from _growing(file, path)
        while follow:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from _growing(file, path)
    except OSError as error:
        raise Unreachable(f"the log cannot be read: {error.strerror}", on=path) from None


def _growing(file: TextIO, path: str) -> Iterator[str]:
    """What is added to the file, until another one has taken its place."""
    while True:
        if text := file.read():
            yield text
        elif os.path.exists(path) and not os.path.samestat(os.stat(path), os.fstat(file.fileno())):
            return
        else:
            time.sleep(_LOOK_SECONDS)
