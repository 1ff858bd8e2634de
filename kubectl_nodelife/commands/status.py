"""`kubectl nodelife status`: a clock for each node, a block for each zone.

Through the daemon this is the quick path: the daemon makes the text, and nothing is imported here
but click, a socket and json. Everything else is imported where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.answers.status import NodeLifeStatus

FIRST_LOOK = "a first look, not through a daemon that has watched for longer (daemon start)"


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster.")
@click.option("-l", "--selector", help="Only nodes with these labels, as in kubectl.")
@click.option("-w", "--watch", is_flag=True, help="Go on: a line for each node that changes.")
@click.option("--no-daemon", is_flag=True, help="Look at the cluster directly.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a node is in trouble.")
@output_flags()
@connection_flags
def status(
    nodes: tuple[str, ...],
    filename: tuple[str, ...],
    selector: str | None,
    watch: bool,
    no_daemon: bool,
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    exit_code: bool,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """How long until each node is called Unknown, tainted, its pods deleted; each zone's brake.

    Answered by the daemon where one watches the cluster, else by a first look at it, and it says
    which. --profile and --set need a first look: the daemon has its own.

    \b
    Examples:
      kubectl nodelife status
      kubectl nodelife status -w
      kubectl nodelife status -f dump/ -o wide
      kubectl nodelife status -l topology.kubernetes.io/zone=a -o json
    """
    if filename:
        if watch:
            raise BadInput("a dump does not change", on="--watch")
        made = _of_dump(filename, nodes, selector, now, profile, assignments)
        return _tell(made, output, no_headers, exit_code)
    if now:
        raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
    query: dict[str, object] = {
        "node": nodes,
        "selector": selector,
        "output": output,
        "headers": not no_headers,
    }
    if watch:
        return _watch(connection, query, no_daemon or bool(profile or assignments))
    if not (no_daemon or profile or assignments):
        answer = ask.ask(connection, "status", **query)
        if answer is not None:
            return ask.show(answer, exit_code=exit_code)
    terminal.note(FIRST_LOOK)
    made = _direct(connection, nodes, selector, profile, assignments)
    return _tell(made, output, no_headers, exit_code)


def _watch(connection: Connection, query: dict[str, object], direct: bool) -> int:
    answers = None if direct else ask.follow(connection, "status", **query)
    if answers is None:
        raise BadInput(
            "watching is the daemon's work",
            on="--watch",
            remedy="run: kubectl nodelife daemon start",
        )
    for answer in ask.for_ever(answers):
        ask.show(answer)
        terminal.flush()
    return 0


def _tell(made: NodeLifeStatus, output: str, no_headers: bool, exit_code: bool) -> int:
    from kubectl_nodelife.commands.node_status import tell

    return tell(made, output, headers=not no_headers, exit_code=exit_code)


def _of_dump(
    filename: tuple[str, ...],
    nodes: tuple[str, ...],
    selector: str | None,
    now: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
) -> NodeLifeStatus:
    from kubectl_nodelife.commands.dumps import load
    from kubectl_nodelife.commands.node_status import of_snapshot

    return of_snapshot(load(filename, now, profile), nodes, selector, assignments)


def _direct(
    connection: Connection,
    nodes: tuple[str, ...],
    selector: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
) -> NodeLifeStatus:
    from kubectl_nodelife.commands.first_look import first_look
    from kubectl_nodelife.commands.node_status import of_sight

    return of_sight(first_look(connection, profile, assignments), nodes, selector)
