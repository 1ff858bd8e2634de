"""Starts, finds and stops the one daemon of a user and cluster, by a lock file and a socket.

The process that holds the lock is the daemon; only it removes a stale socket and binds a new one.
The lock file is never removed. The file beside it (pid, version, context) is for people, never for
decisions. `spawn` starts it in the background: it gets its secrets through a pipe, since
everyone on the machine can read a process's arguments, and reports through another: `ready`, or the
error.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kubectl_nodelife
from kubectl_nodelife import PROGRAM, __version__
from kubectl_nodelife.daemon.client import PROTOCOL, NotRunning, ask
from kubectl_nodelife.daemon.paths import file_inode, lock_file, replace_json, socket_path
from kubectl_nodelife.errors import Failed, NodelifeError, error_of

STOP_SECONDS: Final = 10.0
KILL_SECONDS: Final = 3.0

_BACKLOG = 64


class AlreadyRuns(Failed):
    """Another daemon holds the lock."""


class Instance:
    """The files of one daemon in the runtime folder."""

    def __init__(self, runtime: str, identity: str) -> None:
        self.runtime = runtime
        self.identity = identity
        self.socket = socket_path(runtime, identity)
        self.lock = f"{runtime}/{identity}.lock"
        self.card = f"{runtime}/{identity}.json"
        self._lock: int | None = None
        self._inode: tuple[int, int] | None = None

    # The daemon's side

    def take(self) -> None:
        """Become the daemon. Raises AlreadyRuns."""
        self._lock = lock_file(self.lock)
        if self._lock is None:
            raise self._already()

    def _already(self) -> AlreadyRuns:
        pid = self.read_card().get("pid", "?")
        return AlreadyRuns(f"a daemon runs already for this cluster (pid {pid})")

    def bind(self) -> socket.socket:
        """The listening socket, 0600 from its first moment. Only with the lock."""
        assert self._lock is not None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            bound.bind(self.socket)
        finally:
            os.umask(before)
        bound.listen(_BACKLOG)
        bound.setblocking(False)
        self._inode = file_inode(self.socket)
        return bound

    def owns_socket(self) -> bool:
        """True if the socket's path still leads to ours: a logout may take the folder away."""
        return self._inode is not None and file_inode(self.socket) == self._inode

    def write_card(self, **more: Any) -> None:
        """Say which daemon runs here, for people: this process."""
        card = {
            "pid": os.getpid(),
            "startTicks": start_ticks(os.getpid()),
            "version": __version__,
            "protocol": PROTOCOL,
            "identity": self.identity,
            "socket": self.socket,
            "started": int(time.time()),
        }
        replace_json(self.card, card | more)

    def release(self) -> None:
        """Take socket and card away, and let the lock go."""
        with contextlib.suppress(OSError):
            if self.owns_socket():
                os.unlink(self.socket)
            os.unlink(self.card)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # The client's side

    def read_card(self) -> dict[str, Any]:
        """The card, {} where there is none."""
        try:
            with open(self.card, encoding="utf-8") as file:
                card = json.load(file)
        except (OSError, ValueError):
            return {}
        return card if isinstance(card, dict) else {}

    def is_taken(self) -> bool:
        """True if some daemon holds the lock."""
        try:
            handle = os.open(self.lock, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def refuse_second(self, flags: Sequence[str]) -> None:
        """Raises AlreadyRuns where a daemon runs; Failed where it has not all of these flags."""
        card = self.read_card()
        if not card or not self.is_taken():
            return
        if missing := [flag for flag in flags if flag not in card.get("arguments", ())]:
            raise Failed(
                f"it was started without {' '.join(missing)}",
                on=str(self._already()),
                remedy="end it with daemon stop, and start it again with these flags",
            )
        raise self._already()

    def wait_until_free(self, seconds: float) -> bool:
        """True if the lock became free within that time."""
        end = time.monotonic() + seconds
        while self.is_taken():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def stop(self, *, force: bool, warn: Callable[[str], None] = lambda line: None) -> bool:
        """Ask the daemon to end, and wait. False: none ran. `force`: by signals if it does not.

        `warn` receives each thing that is left behind. Raises Failed.
        """
        if not self.is_taken():
            return False
        try:
            for line in ask(self.socket, "stop", seconds=5.0).get("leftBehind", ()):
                warn(str(line))
        except NodelifeError as error:
            if not force:
                if isinstance(error, NotRunning):
                    raise Failed(
                        "a daemon holds the lock, but does not listen",
                        on=self.socket,
                        remedy="run: kubectl nodelife daemon stop --force",
                    ) from None
                raise
        if self.wait_until_free(KILL_SECONDS if force else STOP_SECONDS):
            return True
        if not force:
            raise Failed(
                f"did not end within {STOP_SECONDS:.0f}s",
                on=f"daemon (pid {self.read_card().get('pid', '?')})",
                remedy="run: kubectl nodelife daemon stop --force",
            )
        self._kill()
        return True

    def _kill(self) -> None:
        card = self.read_card()
        pid = card.get("pid")
        if not isinstance(pid, int) or start_ticks(pid) != card.get("startTicks"):
            raise Failed("cannot tell which process it is", on=self.lock)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if self.wait_until_free(KILL_SECONDS):
                return
        raise Failed("is still there after SIGKILL", on=f"daemon (pid {pid})")


def instances(runtime: str) -> list[Instance]:
    """All daemons of which there is a card or a lock that is held."""
    try:
        names = sorted(os.listdir(runtime))
    except OSError:
        return []
    every = [Instance(runtime, n.removesuffix(".lock")) for n in names if n.endswith(".lock")]
    return [i for i in every if i.is_taken() or os.path.exists(i.card)]


def start_ticks(pid: int) -> int | None:
    """When a process started, as Linux counts it; None elsewhere, or where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


READY_SECONDS: Final = 60.0

PACKAGE: Final = os.path.dirname(os.path.abspath(kubectl_nodelife.__file__ or ""))


def own_command() -> list[str]:
    """How this program was called, up to its own arguments: the same again starts it again."""
    ours = len(sys.orig_argv) - len(sys.argv) + 1
    before = list(sys.orig_argv[1:ours])
    if before and not before[-1].startswith("-") and os.path.isfile(before[-1]):
        before[-1] = os.path.abspath(before[-1])
    return [sys.executable, *before]


def installed_link(package: str = PACKAGE) -> str:
    """krew's link to the program of which this is the package, whatever its version; "" for none.

    `$KREW_ROOT/store/nodelife/VERSION/nodelife/lib/kubectl_nodelife` belongs to
    `$KREW_ROOT/bin/kubectl-nodelife`.
    """
    parents = Path(package).parents
    in_store = len(parents) > 5 and parents[3].name == "nodelife" and parents[4].name == "store"
    return str(parents[5] / "bin" / PROGRAM) if in_store else ""


def spawn(arguments: Sequence[str], log: str, secrets: Mapping[str, Any]) -> dict[str, Any]:
    """Start a daemon apart from this terminal, and wait for its word, a minute at most.

    `secrets` reach it through a pipe: everyone on the machine can read a process's arguments.
    Raises Failed, AlreadyRuns, and the error by which it ended.
    """
    readable, writable = os.pipe()
    secrets_end = filled_pipe(json.dumps(dict(secrets)).encode())
    fds = ["--ready-fd", str(writable), "--secrets-fd", str(secrets_end)]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        child = subprocess.Popen(
            [*own_command(), *arguments, *fds],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(writable, secrets_end),
        )
    os.close(writable)
    os.close(secrets_end)
    word = _read_word(readable, READY_SECONDS)
    if word is None:
        tail = _tail(log)
        code = child.poll()
        how = "gave no sign of life in time" if code is None else f"ended with code {code}"
        raise Failed(f"the daemon {how}{': ' + tail if tail else ''}", on=log)
    if "error" in word:
        error = error_of(word["error"])
        raise AlreadyRuns(str(error)) if word.get("already") else error
    return word


def restart(instance: Instance, log: str, secrets: Mapping[str, str]) -> dict[str, Any]:
    """End the daemon if it runs, and start it with the arguments that it had. Raises Failed.

    Secrets are kept nowhere, so `secrets` must hold those that it was started with.
    """
    card = instance.read_card()
    arguments = card.get("arguments")
    missing = [name for name in card.get("secrets", ()) if not secrets.get(name)]
    if missing:
        raise Failed(
            f"it was started with --{missing[0]}, which is kept nowhere",
            on=f"daemon (pid {card.get('pid', '?')})",
            remedy=f"run: kubectl nodelife daemon restart --{missing[0]}=...",
        )
    instance.stop(force=False)
    if not isinstance(arguments, list) or not arguments:
        raise Failed(
            "how the daemon was started is unknown",
            on=instance.card,
            remedy="run: kubectl nodelife daemon start",
        )
    return spawn([str(word) for word in arguments], log, secrets)


def read_secrets(secrets_fd: int | None) -> dict[str, Any]:
    """The secrets that the parent of this process has put into the pipe."""
    if secrets_fd is None:
        return {}
    with open(secrets_fd, encoding="utf-8") as pipe:
        secrets: dict[str, Any] = json.load(pipe)
    return secrets


def filled_pipe(content: bytes) -> int:
    """The end of a pipe from which the content can be read. Raises Failed for too much of it."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    try:
        written = os.write(writable, content)
    except BlockingIOError:
        written = 0
    finally:
        os.close(writable)
    if written < len(content):
        os.close(readable)
        raise Failed(f"{len(content)} bytes of secrets and orders are too many for a pipe")
    return readable


def notify_parent(ready_fd: int | None, word: dict[str, Any]) -> None:
    """Say through the pipe how the start went, once."""
    if ready_fd is None:
        return
    with contextlib.suppress(OSError), open(ready_fd, "w", encoding="utf-8") as pipe:
        json.dump(word, pipe)


def _read_word(readable: int, seconds: float) -> dict[str, Any] | None:
    received = b""
    end = time.monotonic() + seconds
    try:
        while (remaining := end - time.monotonic()) > 0:
            if not select.select([readable], [], [], remaining)[0]:
                break
            chunk = os.read(readable, 1 << 16)
            if not chunk:
                break
            received += chunk
    finally:
        os.close(readable)
    try:
        word = json.loads(received)
    except ValueError:
        return None
    return word if isinstance(word, dict) else None


def _tail(path: str) -> str:
    """The last line of a file."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
