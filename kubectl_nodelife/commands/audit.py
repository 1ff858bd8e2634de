"""`kubectl nodelife audit`: pods that are not what their containers and their node say."""

from __future__ import annotations

import click
from msgspec.structs import replace

from kubectl_nodelife.answers.audit import only
from kubectl_nodelife.commands.audit_look import (
    FIRST_LOOK,
    check_classes,
    check_now,
    look_at_cluster,
    look_at_dump,
    namespace_of,
)
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.errors import EXIT_NO
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
    check_now(now, filename)
    namespace = namespace_of(connection, all_namespaces, of_dump=bool(filename))
    if filename:
        look = look_at_dump(filename, namespace, now=now, profile=profile, assignments=assignments)
    else:
        terminal.note(FIRST_LOOK)
        look = look_at_cluster(connection, namespace, profile=profile, assignments=assignments)
    answer = look.answer()
    answer = replace(answer, audit=only(answer.audit, classes))
    for warning in (*answer.warnings, *answer.audit.not_evaluated):
        terminal.warn(warning)
    terminal.write(render(AuditPage(answer), output, headers=not no_headers))
    return EXIT_NO if exit_code and answer.something_is_wrong() else 0
