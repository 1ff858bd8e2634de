"""Does works in forked processes while this one goes on with its own: cores share one question.

A child has the memory of this process as it is then, and no more time than this one has left
(`ITIMER_REAL`). What it makes comes back pickled through a pipe, all at its end. Where it cannot
begin, or ends without having made it, its works are done here instead, so that whatever goes wrong
with them is raised here.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from kubectl_nodelife.outlook.what_if.question import Works


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def in_children(works: Works) -> Iterator[Callable[[], list[Any]]]:
    """Begin them; the function waits for what they return. At the end no child is left. Works are
    done when they are asked for where there is one core, or forks are unsafe (macOS).
    """
    children = min(len(works), cores() - 1) if sys.platform == "linux" else 0
    begun = [(works[n::children], *_begun(works[n::children])) for n in range(children)]
    try:
        yield lambda: _made_by_all(works, begun)
    finally:
        for _, readable, child in begun:
            if child:
                os.close(readable)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _made_by_all(works: Works, begun: Sequence[tuple[Works, int, int]]) -> list[Any]:
    """What the works return, in their order: of N children each has every Nth."""
    shares = [_made(readable) or [work() for work in own] for own, readable, _ in begun]
    if not shares:
        return [work() for work in works]
    return [shares[n % len(shares)][n // len(shares)] for n in range(len(works))]


def _begun(works: Works) -> tuple[int, int]:
    """(where what they return can be read, the child); -1 and 0 where there is none."""
    readable, writable = os.pipe()
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    try:
        child = os.fork()
    except OSError:
        os.close(readable)
        readable, child = -1, 0
    else:
        if child == 0:
            _work(works, writable, left_s)
    os.close(writable)
    return readable, child


def _work(works: Works, writable: int, left_s: float) -> NoReturn:
    """All of the child: it ends without this process's own ending, and says nothing."""
    try:
        signal.setitimer(signal.ITIMER_REAL, left_s)
        made = pickle.dumps([work() for work in works])
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(made)
    finally:
        os._exit(0)


def _made(readable: int) -> list[Any]:
    """What the child made; nothing where it made nothing."""
    if readable == -1:
        return []
    with os.fdopen(readable, "rb", closefd=False) as pipe:
        received = pipe.read()
    try:
        made: list[Any] = pickle.loads(received)
    except (EOFError, pickle.UnpicklingError):
        return []
    return made
