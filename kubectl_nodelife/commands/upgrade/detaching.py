"""`--detach` of `upgrade start` and `resume`: the leader as a process apart from this terminal.

It is the same command in a session of its own, with its output in a log in the private state
folder. Work and policy reach it through a pipe, as a token does: everybody on the machine can read
a process's arguments. It says through another pipe when it leads, or why it does not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, connection_arguments, gathered_flags
from kubectl_nodelife.commands.upgrade.leading import LeadFlags
from kubectl_nodelife.commands.write_flags import environ, identity_of
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.daemon.spawning import NotStarted, read_secrets, spawn, tell_parent
from kubectl_nodelife.errors import (
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    BadInput,
    Failed,
    NodelifeError,
    Refused,
    Unreachable,
)
from kubectl_nodelife.report import terminal

READY_SECONDS: Final = 180.0
"""A leader before us may be waited for first."""

_BY_CODE: Final[Mapping[int, type[NodelifeError]]] = {
    EXIT_USAGE: BadInput,
    EXIT_UNREACHABLE: Unreachable,
    EXIT_REFUSED: Refused,
}


class DetachFlags(NamedTuple):
    """`--detach`, and the pipes of the process that it begins."""

    detach: bool
    ready_fd: int | None
    secrets_fd: int | None


NOT_DETACHED: Final = DetachFlags(False, None, None)


_OPTIONS = (
    click.option("--detach", is_flag=True, help="Lead in the background, with a log."),
    click.option("--ready-fd", type=int, hidden=True, help="Where to say that it leads."),
    click.option("--secrets-fd", type=int, hidden=True, help="Where its order is read from."),
)

detach_flags = gathered_flags("detached", DetachFlags, _OPTIONS)
"""Gives a command these flags; its callback gets one argument, `detached`."""


def detach(verb: str, order: Mapping[str, Any], connection: Connection, flags: LeadFlags) -> int:
    """Begin the leader behind the terminal, and say how to look at it and how to end it.

    `order`: what the verb is handed over. Raises NodelifeError with what it says where it does not
    lead.
    """
    log = _log_path(connection)
    words = ["upgrade", verb, "--yes", f"--lease-duration={flags.lease_duration}"]
    words += [f"--set={assignment}" for assignment in flags.assignments]
    words += ["--insecure-enforce"] if flags.insecure else []
    handed_over = {"token": connection.token, "order": dict(order)}
    try:
        said = spawn(
            [*words, *connection_arguments(connection)],
            log,
            handed_over,
            who="the leader",
            seconds=READY_SECONDS,
        )
    except NotStarted as error:
        raise _BY_CODE.get(error.code, Failed)(error.what) from None
    terminal.write(f"run {said.get('run')}: led in the background by process {said.get('pid')}")
    terminal.write(f"its log: {log}")
    terminal.write(
        "`kubectl nodelife upgrade status -w` shows it, `upgrade pause` and `upgrade abort` end it"
    )
    return 0


def _log_path(connection: Connection) -> str:
    """Beside the journals of this cluster and user. Raises Refused where there is no folder."""
    folder = os.path.dirname(journal_path(environ(), identity_of(connection)))
    if not folder:
        raise Refused(
            "there is no folder for the leader's log and journal",
            on="--detach",
            remedy="set NODELIFE_STATE_DIR to a folder of yours",
        )
    return f"{folder}/upgrade.log"


class StartingTerminal:
    """The process that began this one in the background, and waits to hear how that went.

    Where nobody does, nothing is told.
    """

    def __init__(self, flags: DetachFlags) -> None:
        self._ready_fd = flags.ready_fd
        self._handed_over: dict[str, Any] = dict(read_secrets(flags.secrets_fd))

    @property
    def order(self) -> dict[str, Any] | None:
        """What was handed over; None where nobody did."""
        return self._handed_over.get("order")

    def with_token(self, connection: Connection) -> Connection:
        """The connection, with the token that was handed over."""
        return connection._replace(token=self._handed_over.get("token") or connection.token)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What goes wrong inside is told to it as well."""
        try:
            yield
        except NodelifeError as error:
            self._tell({"error": str(error), "code": error.exit_code})
            raise

    def tell_leading(self, run: str) -> None:
        """The Lease is ours, and the run is open."""
        self._tell({"run": run, "pid": os.getpid()})

    def _tell(self, word: dict[str, Any]) -> None:
        tell_parent(self._ready_fd, word)
        self._ready_fd = None
