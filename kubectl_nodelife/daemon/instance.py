"""Starts, finds and stops the one daemon of a user and cluster, by a lock file and a socket.

The process that holds the lock is the daemon; only it removes a stale socket and binds a new one.
The lock file is never removed. The file beside it (pid, version, context) is for people, never for
decisions. A starting daemon reports to its parent through a pipe: `ready`, or the error.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.client import PROTOCOL, NotRunning, ask
from kubectl_nodelife.daemon.paths import socket_path
from kubectl_nodelife.errors import Failed, NodelifeError

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
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            pid = self.read_card().get("pid", "?")
            raise AlreadyRuns(f"a daemon runs already for this cluster (pid {pid})") from None
        self._lock = handle

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
        found = os.stat(self.socket)
        self._inode = (found.st_dev, found.st_ino)
        return bound

    def owns_socket(self) -> bool:
        """True if the socket's path still leads to ours: a logout may take the folder away."""
        try:
            found = os.stat(self.socket)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def write_card(self, card: dict[str, Any]) -> None:
        """Say which daemon runs here, for people."""
        draft = f"{self.card}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(card, file)
        os.replace(draft, self.card)

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
    found = [Instance(runtime, n.removesuffix(".lock")) for n in names if n.endswith(".lock")]
    return [i for i in found if i.is_taken() or os.path.exists(i.card)]


def card(instance: Instance, **more: Any) -> dict[str, Any]:
    """The card of this process."""
    return {
        "pid": os.getpid(),
        "startTicks": start_ticks(os.getpid()),
        "version": __version__,
        "protocol": PROTOCOL,
        "identity": instance.identity,
        "socket": instance.socket,
        "started": int(time.time()),
        **more,
    }


def start_ticks(pid: int) -> int | None:
    """When a process started, as Linux counts it; None elsewhere, or where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
