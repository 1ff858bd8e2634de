"""Another user of this machine, for tests of what one may do: a forked process without rights.

Only root can become somebody else, so that such tests are left out for other users
(`needs_another_user`); what they judge is also judged with peers that are said to be others.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux"),
    reason="only root on Linux can become another user",
)


@contextmanager
def another_user(does: Callable[[], None]) -> Iterator[int]:
    """A process of nobody's that does something, and is ended with the block. Its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            does()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def as_another_user(does: Callable[[], bytes]) -> bytes:
    """What nobody's process finds out."""
    reading, writing = os.pipe()

    def tell() -> None:
        os.write(writing, does())

    with another_user(tell):
        os.close(writing)
        told = b""
        while part := os.read(reading, 65_536):
            told += part
    os.close(reading)
    return told
