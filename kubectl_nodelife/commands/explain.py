"""`kubectl nodelife explain`: what happens to a node or a pod, when, why, and why not yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.status import FIRST_LOOK
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.answers.explanation import Explanation

_KINDS = {
    "node": "Node",
    "nodes": "Node",
    "no": "Node",
    "pod": "Pod",
    "pods": "Pod",
    "po": "Pod",
}


@click.command()
@click.argument("subject", nargs=-1, metavar="node NAME | pod NAME")
@click.option("-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster.")
@click.option("--no-daemon", is_flag=True, help="Look at the cluster directly.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@output_flags("table", "json", "yaml")
@connection_flags
def explain(
    subject: tuple[str, ...],
    filename: tuple[str, ...],
    no_daemon: bool,
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> None:
    """Say in sentences what happens to a node or a pod, with every number put in.

    Answered by the daemon where one watches the cluster, else by a first look at it.

    \b
    Examples:
      kubectl nodelife explain node worker-1
      kubectl nodelife explain pod web-0 -n shop
      kubectl nodelife explain node worker-1 -f dump/
    """
    kind, namespace, name = parse_subject(subject, connection.namespace)
    if now and not filename:
        raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
    if not (filename or no_daemon or profile or assignments):
        query: dict[str, Any] = {
            "kind": kind,
            "name": name,
            "output": output,
            "headers": not no_headers,
        }
        if kind == "Pod":
            query["namespace"] = namespace or _namespace_of(connection)
        answer = ask.ask(connection, "explain", **query)
        if answer is not None:
            ask.show(answer)
            return
        terminal.note(FIRST_LOOK)
    from kubectl_nodelife.report.formats import render
    from kubectl_nodelife.report.status import ExplanationPage

    if filename:
        if kind == "Pod":
            namespace = namespace or "default"
        made = _of_dump((kind, namespace, name), filename, now, profile, assignments)
    else:
        made = _direct((kind, namespace, name), connection, profile, assignments)
    for warning in made.warnings:
        terminal.warn(warning)
    terminal.write(render(ExplanationPage(made), output, headers=not no_headers))


def parse_subject(words: tuple[str, ...], namespace: str | None) -> tuple[str, str, str]:
    """(kind, namespace, name) of `node NAME`, `node/NAME`, `pod NAME` or `pod/NS/NAME`.

    The namespace of a pod is "" where none is given. Raises BadInput.
    """
    parts = [part for word in words for part in word.split("/")]
    kind = _KINDS.get(parts[0].lower()) if parts else None
    if kind == "Node" and len(parts) == 2 and parts[1]:
        return kind, "", parts[1]
    if kind == "Pod" and len(parts) == 2 and parts[1]:
        return kind, namespace or "", parts[1]
    if kind == "Pod" and len(parts) == 3 and all(parts):
        return kind, parts[1], parts[2]
    given = " ".join(words) or "nothing"
    raise BadInput(
        f"cannot tell which object is meant by {given!r}",
        remedy="write 'node NAME' or 'pod NAME -n NS'",
    )


def _namespace_of(connection: Connection) -> str:
    """The namespace of the context, for a pod without one."""
    line = ask.find(connection)
    return line.known.namespace if line is not None else "default"


def _of_dump(
    subject: tuple[str, str, str],
    filename: tuple[str, ...],
    now: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
) -> Explanation:
    from kubectl_nodelife.commands.dumps import load
    from kubectl_nodelife.commands.subjects import explanation_of_snapshot

    return explanation_of_snapshot(load(filename, now, profile), *subject, assignments)


def _direct(
    subject: tuple[str, str, str],
    connection: Connection,
    profile: str | None,
    assignments: tuple[str, ...],
) -> Explanation:
    from kubectl_nodelife.commands.first_look import first_look, own_namespace
    from kubectl_nodelife.commands.subjects import explanation_of_sight

    kind, namespace, name = subject
    if kind == "Pod" and not namespace:
        namespace = own_namespace(connection)
    return explanation_of_sight(first_look(connection, profile, assignments), kind, namespace, name)
