"""`kubectl nodelife audit`: pods that are not what their containers and their node say."""

from __future__ import annotations

import difflib

import click
from msgspec.structs import replace

from kubectl_nodelife.commands.dumps import load, source_of
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot, settings_from
from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import EXIT_NO, BadInput
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.answer import AuditAnswer, only
from kubectl_nodelife.outlook.audit.notes import NOTES
from kubectl_nodelife.outlook.audit.sweep import Seen, audit
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.audit import AuditPage
from kubectl_nodelife.report.formats import render


@click.command("audit")
@click.option(
    "-f", "--filename", multiple=True, metavar="PATH", help="A dump instead of a cluster."
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these findings.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if something is wrong.")
@output_flags()
@connection_flags
def audit_command(
    filename: tuple[str, ...],
    all_namespaces: bool,
    classes: tuple[str, ...],
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    exit_code: bool,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """Pods whose Ready fits neither their containers nor their node, and pods that nobody releases.

    For each: the class, since when, the fields that it stands on, upstream's issues about it, what
    to do, and what that risks.

    \b
    Examples:
      kubectl nodelife audit -A
      kubectl nodelife audit -f dump/ --class stuck-not-ready -o wide
      kubectl nodelife audit -f dump/ -o json
    """
    check_classes(classes)
    snapshot = read(filename, now, profile)
    settings = settings_from(snapshot.profile, assignments)
    namespace = None if all_namespaces else connection.namespace
    answer = answer_of(snapshot, settings, namespace)
    answer = replace(answer, audit=only(answer.audit, classes))
    for warning in (*answer.warnings, *answer.audit.not_evaluated):
        terminal.warn(warning)
    terminal.write(render(AuditPage(answer), output, headers=not no_headers))
    return EXIT_NO if exit_code and answer.something_is_wrong() else 0


def read(filename: tuple[str, ...], now: str | None, profile: str | None) -> Snapshot:
    """The dump that `-f` names. Raises BadInput."""
    if not filename:
        raise BadInput("no input", remedy="name a dump with -f")
    return load(filename, now, profile)


def check_classes(classes: tuple[str, ...]) -> None:
    """Raises BadInput for a class that there is not."""
    for name in classes:
        if name not in NOTES:
            near = difflib.get_close_matches(name, NOTES, 1)
            meant = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(NOTES)}"
            raise BadInput(f"no class {name!r}", on="--class", remedy=meant)


def answer_of(snapshot: Snapshot, settings: Settings, namespace: str | None) -> AuditAnswer:
    """The audit of a dump's pods, of one namespace or (None) of all."""
    seen = seen_in(snapshot, namespace)
    found = audit(seen, settings, snapshot.moment_ns)
    return AuditAnswer(
        audit=found,
        source=source_of(snapshot),
        profile=settings.profile.name,
        moment=snapshot.moment(),
        now_ns=snapshot.moment_ns,
        warnings=(*snapshot.warnings, *found.warnings),
    )


def seen_in(snapshot: Snapshot, namespace: str | None) -> Seen:
    """The objects that the audit looks at."""
    pods, nodes, leases = [], {}, {}
    for obj in snapshot.objects:
        if isinstance(obj, Pod):
            if namespace is None or obj.namespace == namespace:
                pods.append(obj)
        elif isinstance(obj, Node):
            nodes[obj.name] = obj
        elif isinstance(obj, Lease) and obj.namespace == NODE_LEASE_NAMESPACE:
            leases[obj.name] = obj
    return Seen(
        pods=pods,
        nodes=nodes if snapshot.has_read("Node") else None,
        leases=leases if snapshot.has_read("Lease") else None,
    )
