"""`kubectl nodelife explain`: what happens to a node or a pod, when, why, and why not yet."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot, settings_from
from kubectl_nodelife.commands.status import load, missing, source_of
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.outlook.explain import Explanation, Section
from kubectl_nodelife.outlook.explain_node import node_sections
from kubectl_nodelife.outlook.explain_pod import pod_sections
from kubectl_nodelife.outlook.join import joined
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.status import ExplanationPage

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
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@output_flags("table", "json", "yaml")
@connection_flags
def explain(
    subject: tuple[str, ...],
    filename: tuple[str, ...],
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> None:
    """Say in sentences what happens to a node or a pod, with every number put in.

    \b
    Examples:
      kubectl nodelife explain node worker-1
      kubectl nodelife explain pod web-0 -n shop
      kubectl nodelife explain node worker-1 -f dump/
    """
    kind, namespace, name = parse_subject(subject, connection.namespace)
    if not filename:
        raise BadInput("no input", remedy="name a dump with -f")
    snapshot = load(filename, now, profile)
    answer = of_snapshot(snapshot, kind, namespace, name, assignments)
    for warning in answer.warnings:
        terminal.warn(warning)
    terminal.write(render(ExplanationPage(answer), output, headers=not no_headers))


def parse_subject(words: tuple[str, ...], namespace: str | None) -> tuple[str, str, str]:
    """(kind, namespace, name) of `node NAME`, `node/NAME`, `pod NAME` or `pod/NS/NAME`.

    Raises BadInput.
    """
    parts = [part for word in words for part in word.split("/")]
    kind = _KINDS.get(parts[0].lower()) if parts else None
    if kind == "Node" and len(parts) == 2 and parts[1]:
        return kind, "", parts[1]
    if kind == "Pod" and len(parts) == 2 and parts[1]:
        return kind, namespace or "default", parts[1]
    if kind == "Pod" and len(parts) == 3 and all(parts):
        return kind, parts[1], parts[2]
    given = " ".join(words) or "nothing"
    raise BadInput(
        f"cannot tell what to explain from {given!r}",
        remedy="write 'node NAME' or 'pod NAME -n NS'",
    )


def of_snapshot(
    snapshot: Snapshot, kind: str, namespace: str, name: str, assignments: tuple[str, ...]
) -> Explanation:
    """The explanation of one object of a dump. Raises BadInput where the dump does not have it."""
    settings = settings_from(snapshot.profile, assignments)
    cache = snapshot.cache()
    outlook, _ = joined(cache, settings, snapshot.moment_ns)
    return Explanation(
        kind=kind,
        namespace=namespace,
        name=name,
        source=source_of(snapshot),
        profile=settings.profile.name,
        moment=snapshot.moment(),
        sections=sections_of(outlook, kind, namespace, name),
        warnings=[*snapshot.warnings, *missing(snapshot, cache)],
    )


def sections_of(outlook: Outlook, kind: str, namespace: str, name: str) -> list[Section]:
    """The sections about one object. Raises BadInput where there is no such object."""
    if kind == "Node":
        node = outlook.cache.node(name)
        if node is None:
            raise Failed("not found", on=f"node {name}", remedy="check the name")
        return list(node_sections(outlook, outlook.node(node)))
    pod = outlook.cache.pod(namespace, name)
    if pod is None:
        remedy = "check the name, and the namespace with -n"
        raise Failed("not found", on=f"pod {namespace}/{name}", remedy=remedy)
    return list(pod_sections(outlook, pod))
