"""`upgrade start --detach`: the leader as a process of its own, apart from this terminal.

It is the same command in a session of its own, with its output in a log in the private state
folder. Work and policy reach it through a pipe, as a token does: everybody on the machine can read
a process's arguments. It says through another pipe when it leads, or why it does not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from kubectl_nodelife.commands.flags import Connection, connection_arguments
from kubectl_nodelife.commands.upgrade.leading import LeadFlags
from kubectl_nodelife.commands.write_flags import environ, identity_of
from kubectl_nodelife.controllers.upgrade.policy import (
    UpgradePolicy,
    policy_from,
    policy_mapping,
)
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


def detach(policy: UpgradePolicy, connection: Connection, flags: LeadFlags) -> int:
    """Begin the leader behind the terminal, and say how to look at it and how to end it.

    Raises NodelifeError with what it says where it does not lead.
    """
    log = _log_path(connection)
    words = ["upgrade", "start", "--yes", f"--lease-duration={flags.lease_duration}"]
    words += [f"--set={assignment}" for assignment in flags.assignments]
    words += ["--insecure-enforce"] if flags.insecure else []
    handed_over = {"token": connection.token, "policy": policy_mapping(policy)}
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

    def __init__(self, ready_fd: int | None, secrets_fd: int | None) -> None:
        self._ready_fd = ready_fd
        self._handed_over: dict[str, Any] = dict(read_secrets(secrets_fd))

    @property
    def token(self) -> str:
        """The token that was handed over, "" for none."""
        return str(self._handed_over.get("token") or "")

    @property
    def policy(self) -> UpgradePolicy | None:
        """Work and policy that were handed over; None where nobody did."""
        mapping = self._handed_over.get("policy")
        return None if mapping is None else policy_from(mapping)

    def tell_leading(self, run: str) -> None:
        """The Lease is ours, and the run is open."""
        self._tell({"run": run, "pid": os.getpid()})

    def tell_error(self, error: NodelifeError) -> None:
        """It does not lead, and why."""
        self._tell({"error": str(error), "code": error.exit_code})

    def _tell(self, word: dict[str, Any]) -> None:
        tell_parent(self._ready_fd, word)
        self._ready_fd = None
