"""`kubectl nodelife explain`: what happens to a node or a pod, when, why, and why not yet."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.cluster.file_size import max_file_size
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.errors import BadInput

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
@max_file_size
@click.option("--no-daemon", is_flag=True, help="Look at the cluster directly.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@output_flags("table", "json", "yaml", "markdown")
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
) -> int:
    """Say in sentences what happens to a node or a pod, with every number put in.

    Answered by the daemon where one watches the cluster, else by a first look at it.

    \b
    Examples:
      kubectl nodelife explain node worker-1
      kubectl nodelife explain pod web-0 -n shop
      kubectl nodelife explain node worker-1 -f dump/
    """
    kind, namespace, name = parse_subject(subject, connection.namespace)
    where = Where(connection, filename, now, no_daemon, profile, assignments)
    where.check()
    query: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "output": output,
        "headers": not no_headers,
    }
    if kind == "Pod":
        query["namespace"] = namespace or ask.namespace_for(where)
    return ask.answer(where, "explain", query)


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
