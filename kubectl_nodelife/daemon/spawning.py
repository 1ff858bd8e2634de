"""Starts a process of this program in the background, and waits until it reports that it is ready.

The child gets its secrets through a pipe, since everyone on the machine can read a process's
arguments. It reports through another: `ready`, or the error.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kubectl_nodelife
from kubectl_nodelife.daemon.instance import AlreadyRuns, Instance
from kubectl_nodelife.errors import Failed, error_of

READY_SECONDS: Final = 60.0

PROGRAM: Final = "kubectl-nodelife"
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


def spawn(
    arguments: Sequence[str],
    log: str,
    secrets: Mapping[str, Any],
) -> dict[str, Any]:
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
        while (left := end - time.monotonic()) > 0:
            if not select.select([readable], [], [], left)[0]:
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
