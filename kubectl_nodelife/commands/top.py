"""`kubectl nodelife top`: zones, nodes and what comes next, as a page of the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, connection_arguments, connection_flags
from kubectl_nodelife.errors import BadInput, Unreachable
from kubectl_nodelife.report.screen import this_screen

if TYPE_CHECKING:
    from kubectl_nodelife.outlook.wall import Wall


@click.command()
@connection_flags
def top(connection: Connection) -> int:
    """Show zones with their brake, nodes by urgency, and what comes next, all running down.

    The daemon is asked each second, and less often where its answer takes long. Keys: / filters
    (a part of a name, zone=a, state=silent), s sorts, Enter explains the chosen node, w says what
    its loss would do, q ends. It needs textual, which comes with kubectl-nodelife[top].

    \b
    Example:
      kubectl nodelife top
    """
    _check_terminal()
    try:
        from kubectl_nodelife.report.wall_app import WallApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise BadInput(
            "the Python package textual is missing",
            on="top",
            remedy="pip install 'kubectl-nodelife[top]', or use: kubectl nodelife status -w",
        ) from None
    _ask(connection, "", "trouble", 1)  # what is wrong is said before the screen is taken
    failure = WallApp(
        lambda words, sort, limit: _ask(connection, words, sort, limit),
        lambda node: _explain(connection, node),
        lambda node: _what_if(connection, node),
    ).run()
    if failure:
        raise Unreachable(failure)
    return 0


def _check_terminal() -> None:
    """Raises BadInput where there is none that can be drawn on."""
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb")
    if dumb or not (sys.stdin.isatty() and this_screen().width):
        raise BadInput(
            "it needs a terminal that can be drawn on",
            on="top",
            remedy="use: kubectl nodelife status -w",
        )


def _ask(connection: Connection, words: str, sort: str, limit: int) -> Wall:
    """The wall. Raises Unreachable where no daemon runs."""
    import msgspec

    from kubectl_nodelife.outlook.wall import Wall

    query: dict[str, Any] = {"filter": words or None, "sort": sort, "limit": limit}
    response = ask.ask(connection, "wall", **query)
    if response is None:
        raise ask.no_daemon()
    return msgspec.convert(response["document"], Wall)


def _explain(connection: Connection, node: str) -> str:
    response = ask.ask(connection, "explain", kind="Node", name=node, **ask.on_this_screen())
    if response is None:
        raise ask.no_daemon()
    return str(response.get("text", ""))


def _what_if(connection: Connection, node: str) -> str:
    """The answer of `what-if lose node`, by another call of this program."""
    import subprocess

    words = ["what-if", *connection_arguments(connection), "lose", "node", node]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kubectl_nodelife", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr
