"""Does works in a forked process while this one goes on with its own: two cores play one question.

The child has the memory of this process as it is then, and no more time than this one has left
(`ITIMER_REAL`). What it makes comes back pickled through a pipe, all at its end. Where it cannot
begin, or ends without having made it, the works are done here instead, so that whatever goes wrong
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

Works = Sequence[Callable[[], Any]]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def in_child(works: Works) -> Iterator[Callable[[], list[Any]]]:
    """Begin them; the function waits for what they return. At the end the child is gone. Works are
    done when they are asked for where there is one core, or forks are unsafe (macOS).
    """
    readable, child = _begun(works)
    try:
        yield lambda: _made(readable) or [work() for work in works]
    finally:
        if child:
            os.close(readable)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _begun(works: Works) -> tuple[int, int]:
    """(where what they return can be read, the child); -1 and 0 where there is none."""
    if sys.platform != "linux" or cores() == 1:
        return -1, 0
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
        with open(writable, "wb") as pipe:
            pipe.write(made)
    finally:
        os._exit(0)


def _made(readable: int) -> list[Any]:
    """What the child made; nothing where it made nothing."""
    if readable == -1:
        return []
    with open(readable, "rb", closefd=False) as pipe:
        received = pipe.read()
    try:
        made: list[Any] = pickle.loads(received)
    except (EOFError, pickle.UnpicklingError):
        return []
    return made
