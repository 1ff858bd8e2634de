"""Runs a program to its end, with a deadline and a bound on what it prints.

asyncio's own subprocesses are not used for this: a `create_subprocess_exec` that is cancelled while
it connects the pipes waits for ever, and with it the whole program (`BaseSubprocessTransport._wait`
is woken only once every pipe was connected and lost). Here the child is looked at every few
milliseconds, and cancelling ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

_LOOK_SECONDS = 0.01
_LAST_WORDS_SECONDS = 0.5
_READ_BYTES = 1 << 16


class Finished(NamedTuple):
    """How a program ended: its exit code (negative: the signal that ended it), and what it printed.

    Of stderr the last 64 KiB are kept.
    """

    code: int
    stdout: bytes
    stderr: bytes


class TooMuchOutput(Exception):
    """A program printed more than was allowed, and was ended for it."""


async def run_program(
    words: Sequence[str], environ: Mapping[str, str], *, seconds: float, most_bytes: int = 1 << 20
) -> Finished:
    """Run it without a standard input, and wait for its end.

    Raises OSError where it cannot be started, TimeoutError after `seconds`, TooMuchOutput where
    stdout has more than `most_bytes`. It has ended when this returns or raises; what it has started
    itself may go on, and is not waited for.
    """
    process = subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            return await _read_to_end(process, process.stdout, process.stderr, most_bytes)
    finally:
        process.stdout.close()
        process.stderr.close()
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_WORDS_SECONDS)


async def _read_to_end(
    process: subprocess.Popen[bytes], stdout: IO[bytes], stderr: IO[bytes], most_bytes: int
) -> Finished:
    os.set_blocking(stdout.fileno(), False)
    os.set_blocking(stderr.fileno(), False)
    printed, complaints = bytearray(), bytearray()
    ended_at: float | None = None
    while True:
        code = process.poll()
        open_pipes = [_read(stdout, printed), _read(stderr, complaints)]
        if len(printed) > most_bytes:
            raise TooMuchOutput
        del complaints[:-_READ_BYTES]
        if code is not None:
            ended_at = ended_at or time.monotonic()
            # A child of its own may hold the pipes open for as long as it likes.
            if not any(open_pipes) or time.monotonic() > ended_at + _LAST_WORDS_SECONDS:
                return Finished(code, bytes(printed), bytes(complaints))
        await asyncio.sleep(_LOOK_SECONDS)


def _read(pipe: IO[bytes], into: bytearray) -> bool:
    """Take what is there now. Whether more may come."""
    try:
        part = os.read(pipe.fileno(), _READ_BYTES)
    except BlockingIOError:
        return True
    into += part
    return bool(part)
