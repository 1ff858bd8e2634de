"""Commands of the operator's: the work of `--run`, one process group a node, and `--gate`.

A command runs in a session of its own, so that Ctrl-C in the terminal does not reach it, with
nothing on its stdin. What it prints goes straight to a file and not through us: it goes on
undisturbed when this process ends. (asyncio's own subprocesses are killed with their loop.) Only
its time limit or an order ends it: TERM to the group, and KILL ten seconds later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

TERM_SECONDS: Final = 10.0
GATE_PERIOD_SECONDS: Final = 30.0
GATE_LIMIT_SECONDS: Final = 30.0
NOT_STARTED: Final = 127
"""The shell's code for a command that is not there; ours where no shell could be started."""

_LOOK_SECONDS: Final = 0.1
_LAST_BYTES = 1000
_SHOWN_LETTERS = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class WorkKey(NamedTuple):
    """One try of the work on one node."""

    node: str
    node_uid: str
    number: int


@dataclass(slots=True)
class WorkRunner:
    """Runs `--run`'s command, at most once for each try. `on_end` receives each exit code, as a
    shell has it: of a command that a signal ended 128 and the signal's number.

    `folder`: where logs go, one a node; it is made. `environ`: what each try inherits.
    """

    command: str
    folder: str
    environ: Mapping[str, str]
    on_end: Callable[[WorkKey, int], None]
    _tasks: dict[WorkKey, asyncio.Task[None]] = field(default_factory=dict)
    _stopped: set[WorkKey] = field(default_factory=set)

    def log_path(self, node: str) -> str:
        """Where the output for a node goes."""
        return os.path.join(self.folder, f"{_UNSAFE.sub('_', node)}.log")

    def last_words(self, node: str) -> str:
        """The last line of the output for a node, "" for none: to be shown to its owner alone."""
        try:
            with open(self.log_path(node), "rb") as log:
                log.seek(max(0, os.path.getsize(log.name) - _LAST_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last = next((line for line in reversed(lines) if line.strip()), "")
        return "".join(filter(str.isprintable, last.strip()))[:_SHOWN_LETTERS]

    def start(self, key: WorkKey, variables: Mapping[str, str]) -> None:
        """Begin a try with these variables in its environment."""
        if key in self._tasks and not self._tasks[key].done():
            return
        self._stopped.discard(key)
        self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key, variables))

    def stop(self, key: WorkKey) -> None:
        """Let a try end: TERM to its process group, KILL after ten seconds."""
        self._stopped.add(key)

    def forget_all(self) -> None:
        """Watch no longer: what runs goes on without us, its output in its file."""
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, key: WorkKey, variables: Mapping[str, str]) -> None:
        code = NOT_STARTED
        try:
            code = await self._wait(key, variables)
        except (OSError, ValueError) as error:  # ValueError: a null byte in what a node says
            with contextlib.suppress(OSError), self._log(key.node) as log:
                log.write(f"not started: {error}\n".encode())
        self.on_end(key, code)

    async def _wait(self, key: WorkKey, variables: Mapping[str, str]) -> int:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with self._log(key.node) as log:
            process = _start(self.command, {**self.environ, **variables}, log.fileno())
        while (code := process.poll()) is None:
            if key in self._stopped:
                await _end_group(process)
            await asyncio.sleep(_LOOK_SECONDS)
        return 128 - code if code < 0 else code

    def _log(self, node: str) -> BinaryIO:
        """For this user alone: a command may print secrets. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(self.log_path(node), flags, 0o600), "ab")


@dataclass(slots=True)
class GateCommand:
    """Runs `--gate`'s command every half minute, `runs` times so far. `last`: what was wrong with
    the last run, "" for an exit code of 0, None before the first end.
    """

    command: str
    environ: Mapping[str, str]
    last: str | None = None
    runs: int = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began = time.monotonic()
            await self._look()
            await asyncio.sleep(max(0.0, began + GATE_PERIOD_SECONDS - time.monotonic()))

    async def _look(self) -> None:
        what = f"--gate {self.command!r}"
        try:
            process = _start(self.command, self.environ, subprocess.DEVNULL)
        except OSError as error:
            self._record(f"{what} cannot be started: {error}")
            return
        try:
            async with asyncio.timeout(GATE_LIMIT_SECONDS):
                code = await _ended(process)
        except TimeoutError:
            self._record(f"{what} took longer than {GATE_LIMIT_SECONDS:g}s")
            await _end_group(process)
        except asyncio.CancelledError:
            _signal_group(process, signal.SIGTERM)
            raise
        else:
            self._record(f"{what} exited with {code}" if code else "")

    def _record(self, last: str) -> None:
        self.last = last
        self.runs += 1


def _start(command: str, environ: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Begin a command in a session, and so a process group, of its own. Raises OSError."""
    return subprocess.Popen(
        ("sh", "-c", command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environ,
        start_new_session=True,
    )


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for its exit code."""
    while (code := process.poll()) is None:
        await asyncio.sleep(_LOOK_SECONDS)
    return code


async def _end_group(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(TERM_SECONDS):
            await _ended(process)
    except TimeoutError:
        pass
    _signal_group(process, signal.SIGKILL)  # what the shell has begun may still be there


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
