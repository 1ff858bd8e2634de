"""A progress line on stderr, on a terminal only, and only for what takes longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FIRST_AFTER_S = 0.5
_EVERY_S = 0.1
_LEFT_AFTER_S = 1.0
_CLEAR = "\r\x1b[K"


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much is done; `total` where that is known."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield lambda done: None
        return
    began = time.monotonic()
    last = began + _FIRST_AFTER_S - _EVERY_S
    shown = False

    def step(done: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - last < _EVERY_S:
            return
        last, shown = now, True
        stream.write(f"{_CLEAR}{_line(what, done, total, now - began)}")
        stream.flush()

    try:
        yield step
    finally:
        if shown:
            stream.write(_CLEAR)
            stream.flush()


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    if not total:
        return f"{what}: {done:,} ({seconds:.0f}s)"
    share = min(1.0, done / total)
    filled = "#" * round(share * 30)
    left = ""
    if done and seconds >= _LEFT_AFTER_S:
        left = f", {_span(seconds / share - seconds)} left"
    return f"{what}: [{filled:<30}] {share:4.0%} ({seconds:.0f}s{left})"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
