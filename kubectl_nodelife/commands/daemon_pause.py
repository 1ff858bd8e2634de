"""`daemon pause` and `daemon resume`: of one's own daemon, or of every writer of the cluster."""

from __future__ import annotations

import os
from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.daemon import client
from kubectl_nodelife.daemon.instance import Instance
from kubectl_nodelife.daemon.paths import make_private, runtime_folder
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.report import terminal


@click.command("pause")
@click.option("--for", "duration", default="", metavar="DURATION", help="Go on after this time.")
@click.option("--everyone", is_flag=True, help="Every writer of this cluster, on any machine.")
@connection_flags
def pause(duration: str, everyone: bool, connection: Connection) -> None:
    """Stop what the daemon enforces at once; a restart of the daemon does not end it.

    \b
    Examples:
      kubectl nodelife daemon pause
      kubectl nodelife daemon pause --everyone
    """
    import asyncio

    refuse_via(connection)
    if everyone:
        terminal.write(asyncio.run(_kill_switch(connection, make=True)))
        return
    query: dict[str, Any] = {"for": duration} if duration else {}
    answer = client.ask(_socket(connection), "pause", **query)
    _warn(answer)
    terminal.write(f"{answer['paused']}\n")


@click.command("resume")
@click.option("--everyone", is_flag=True, help="Every writer of this cluster, on any machine.")
@connection_flags
def resume(everyone: bool, connection: Connection) -> None:
    """Let the daemon go on, after a pause or after something that needs a person's word.

    \b
    Examples:
      kubectl nodelife daemon resume
      kubectl nodelife daemon resume --everyone
    """
    import asyncio

    refuse_via(connection)
    if everyone:
        terminal.write(asyncio.run(_kill_switch(connection, make=False)))
        return
    _warn(client.ask(_socket(connection), "resume"))
    terminal.write("resumed\n")


def refuse_via(connection: Connection) -> None:
    """Raises Refused where an order would be given to a daemon in the cluster."""
    if connection.via:
        raise Refused(
            "answers come through the API server, orders do not",
            on="--via",
            remedy="give the order in the pod, by kubectl exec; `daemon pause --everyone` without "
            "--via stops every writer of the cluster",
        )


def _warn(answer: dict[str, Any]) -> None:
    if warning := answer.get("warning"):
        terminal.note(f"warning: {warning}")


def _socket(connection: Connection) -> str:
    runtime = make_private(runtime_folder(os.environ))
    return Instance(runtime, ask.resolve(connection).identity).socket


async def _kill_switch(connection: Connection, *, make: bool) -> str:
    from kubectl_nodelife.live.kill_switch import change_kill_switch
    from kubectl_nodelife.live.target import find_target

    environ = dict(os.environ)
    target = find_target(connection, environ)
    answer = await change_kill_switch(target, environ, make=make)
    name = "configmap kube-system/nodelife-stop"
    if answer.ok:
        return f"{name} {'made: every writer stops' if make else 'removed'}\n"
    if answer.code == (409 if make else 404):
        terminal.note(f"{name} is {'there' if make else 'not there'} already")
        return ""
    raise Failed(answer.message, on=name)
