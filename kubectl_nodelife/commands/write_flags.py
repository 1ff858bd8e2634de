"""What `repair`, `rollout undo` and `drain` share: flags, the question, and the session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import click

from kubectl_nodelife.commands.flags import Connection, gathered_flags
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.report import terminal

NONE, CLIENT, SERVER = "none", "client", "server"
MAX_WRITES: Final = 500

T = TypeVar("T")


class ActFlags(NamedTuple):
    """The flags as given."""

    yes: bool
    dry_run: str
    max_writes: int
    insecure: bool


_OPTIONS = (
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option(
        "--dry-run",
        type=click.Choice((NONE, CLIENT, SERVER)),
        is_flag=False,
        flag_value=CLIENT,
        default=NONE,
        help="client: only show; server: have the API server check each request.",
    ),
    click.option(
        "--max-writes",
        type=click.IntRange(min=0),
        default=MAX_WRITES,
        show_default=True,
        metavar="N",
        help="So many writes at most.",
    ),
    click.option(
        "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
    ),
)

act_flags = gathered_flags("act", ActFlags, _OPTIONS)
"""Gives a command the flags of an act; its callback gets one argument, `act`."""


def not_for_dumps(filename: tuple[str, ...], act: ActFlags) -> None:
    """Raises BadInput where something is to be sent to a dump."""
    if filename and act.yes:
        raise BadInput("a dump cannot be written to", on="--yes", remedy="leave -f out")
    if filename and act.dry_run == SERVER:
        raise BadInput("a dump has no API server", on="--dry-run=server", remedy="leave -f out")


def is_confirmed(act: ActFlags, question: str, server: str) -> bool:
    """True if the person says yes. Raises Refused where there is nobody to ask."""
    if act.yes or act.dry_run == SERVER:
        return True
    if not sys.stdin.isatty():
        raise Refused(
            "nothing is sent: there is no terminal to ask on",
            on=server,
            remedy="give --yes to send it, or --dry-run=client only to see it",
        )
    terminal.flush()
    return click.confirm(terminal.printable(question), err=True)


def run_interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine that SIGINT and SIGTERM cancel: it may clean up before it ends.

    Where SIGINT is ignored by inheritance, as in the background of a script, it stays so, which is
    said: the same Ctrl-C may be meant for something else.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        terminal.note(
            "Ctrl-C (SIGINT) is ignored, as it was when this was started; end it with: "
            f"kill {os.getpid()}"
        )

    import asyncio

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def identity_of(connection: Connection) -> str:
    """The name of the cluster and user, under which journals are kept."""
    from kubectl_nodelife.commands import ask

    return ask.resolve(connection).identity


def environ() -> dict[str, str]:
    """The environment as it is."""
    return dict(os.environ)
