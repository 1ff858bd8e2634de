"""`kubectl nodelife ui`: the wall, what comes next and what happened, as a live page."""

from __future__ import annotations

import os
from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, connection_flags, waiting_ns
from kubectl_nodelife.report import terminal

_OVER_SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")


@click.command()
@click.option(
    "--port", type=int, default=0, show_default=True, help="Where to listen; 0: as before, or any."
)
@click.option("--no-open", is_flag=True, help="Print the address, and open no browser.")
@click.option("--print-url", is_flag=True, help="Print the address and nothing else, for scripts.")
@click.option(
    "--read-only-token",
    is_flag=True,
    help="An address for other screens: good for ten minutes, again and again, without what-if.",
)
@click.option(
    "--for", "duration", default="12h", show_default=True, metavar="DURATION", help="Close it then."
)
@click.option("--stop", is_flag=True, help="Close the page, and end all its sessions.")
@connection_flags
def ui(
    port: int,
    no_open: bool,
    print_url: bool,
    read_only_token: bool,
    duration: str,
    stop: bool,
    connection: Connection,
) -> None:
    """Open a live page of this cluster: zones and nodes, what comes next, and what happened.

    The daemon serves it, on 127.0.0.1 alone, and is started if it does not run. The printed address
    holds a token that works once and for two minutes: other users of this machine cannot open the
    page without it; root can. The page changes nothing anywhere. It is closed ten minutes after the
    last tab, and by --stop.

    \b
    Examples:
      kubectl nodelife ui
      kubectl nodelife ui --no-open --port 8642
      kubectl nodelife ui --read-only-token --print-url
      kubectl nodelife ui --stop
    """
    if stop:
        response = ask.ask(connection, "ui-stop")
        closed = str(response.get("closed", "")) if response is not None else ""
        terminal.note(f"closed {closed}" if closed else "no page is open")
        return
    query: dict[str, Any] = {"port": _port(port), "lasts": _seconds(duration)}
    if read_only_token:
        query["readOnly"] = 1
    response = ask.ask(connection, "ui", **query)
    if response is None:
        from kubectl_nodelife.commands.daemon import begin

        begin(connection)
        response = ask.ask(connection, "ui", **query)
    if response is None:
        raise ask.no_daemon()
    if response.get("endsOldest"):
        terminal.warn("as many pages as there may be have a session: this one ends the oldest")
    address = f"{response['url']}#token={response['token']}"
    if print_url:
        terminal.write(f"{address}\n")
    else:
        _show(address, opens=not no_open and not read_only_token)


def _port(port: int) -> int | None:
    """Raises BadInput for what is none; the daemon says which are allowed."""
    from kubectl_nodelife.errors import BadInput

    if port < 0:
        raise BadInput(f"port {port} is not allowed", on="--port")
    return port or None


def _seconds(duration: str) -> int:
    """Raises BadInput."""
    from kubectl_nodelife.errors import BadInput

    seconds = waiting_ns(duration, "--for") // 10**9
    if not 0 < seconds <= 12 * 3600:
        raise BadInput(f"{duration} is not between 1s and 12h", on="--for")
    return seconds


def _show(url: str, *, opens: bool) -> None:
    """Print the address, and open it in a browser where the terminal is a local one."""
    terminal.write(f"{url}\n")
    terminal.flush()
    terminal.note("other users of this machine cannot open the page without the token; root can")
    if any(os.environ.get(name) for name in _OVER_SSH):
        port = url.rpartition(":")[2].partition("/")[0]
        terminal.note(
            f"over SSH: run on your own machine  ssh -N -L {port}:127.0.0.1:{port} HOST  "
            "and open the address there"
        )
        return
    if not opens or not os.isatty(1):
        return
    import webbrowser

    if not webbrowser.open(url):
        terminal.note("no browser was found: open the address yourself, within two minutes")
