"""`kubectl nodelife audit`: pods that are not what their containers and their node say."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.ask import say_first_look
from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_NO, BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.commands.cluster.look import KindsToRead
    from kubectl_nodelife.outlook.view import ClusterView

FIRST_LOOK = "a first look: ages are those of the objects"


def reading() -> KindsToRead:
    """The kinds that an audit reads."""
    from kubectl_nodelife.commands.cluster.look import KindsToRead
    from kubectl_nodelife.outlook.audit.document import KINDS

    return KindsToRead(KINDS, needed=("Node", "Pod"))


class _AuditOrRepair(click.Command):
    """`audit`, and with --repair the verb `repair`, with its flags."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        if "--repair" not in args or parent is None:
            return super().make_context(info_name, args, parent, **more)
        assert isinstance(parent.command, click.Group)
        words = ["repair", *(word for word in args if word != "--repair")]
        name, repair, words = parent.command.resolve_command(parent, words)
        assert repair is not None
        return repair.make_context(name, words, parent, **more)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command("audit", cls=_AuditOrRepair)
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@click.option("-l", "--selector", help="Only pods with these labels, as in kubectl.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these findings.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if something is wrong.")
@click.option(
    "--repair", is_flag=True, expose_value=False, help="As the verb repair, with its flags."
)
@output_flags()
@where_flags("profile", "assignments")
@several_clusters("pods that are not what they say")
def audit_command(
    all_namespaces: bool,
    selector: str | None,
    classes: tuple[str, ...],
    exit_code: bool,
    output: Output,
    where: Where,
) -> int:
    """Pods whose Ready fits neither their containers nor their node, and pods that
    no component releases.

    For each: the class, since when, the fields that it stands on, upstream's issues about it, what
    to do, and what that risks.

    \b
    Examples:
      kubectl nodelife audit -A
      kubectl nodelife audit -f dump/ --class stuck-not-ready -o wide
      kubectl nodelife audit -f dump/ -o json
      kubectl nodelife audit --repair -A
    """
    from msgspec.structs import replace

    from kubectl_nodelife.commands.answering.status import NOTHING_TO_SHOW
    from kubectl_nodelife.commands.cluster.look import namespace_of, none_found
    from kubectl_nodelife.kube.selectors import label_selector
    from kubectl_nodelife.outlook.audit.document import only, pod_audit, seen_in
    from kubectl_nodelife.report.audit import audit_page

    check_classes(classes)
    where.check()
    namespace, labels = namespace_of(where, all_namespaces), label_selector(selector)
    view = look_for_audit(where)
    if not where.filename:
        say_first_look(FIRST_LOOK)
    seen = seen_in(view, namespace, labels)
    answer = pod_audit(view, seen)
    if classes:
        answer = replace(answer, audit=only(answer.audit, classes), beforehand=())
    terminal.warn(*answer.warnings, *answer.audit.not_evaluated)
    if not seen.pods and output.format in NOTHING_TO_SHOW:
        terminal.note(none_found(namespace))
        return 0
    output.show(audit_page(answer))
    return EXIT_NO if exit_code and answer.wrong() else 0


def look_for_audit(where: Where) -> ClusterView:
    """The cluster. Raises BadInput where no pods were read: that none is found then means nothing;
    NodelifeError."""
    from kubectl_nodelife.commands.cluster.look import look

    view = look(where, reading())
    if "Pod" in view.unread:
        remedy = "dump them as well: kubectl get pods -A -o json"
        raise BadInput("no pods were read, so that nothing can be said of them", remedy=remedy)
    return view


def check_classes(classes: tuple[str, ...]) -> None:
    """Raises BadInput for a class that there is not."""
    from kubectl_nodelife.outlook.audit.classes import NOTES

    for name in classes:
        if name not in NOTES:
            near = difflib.get_close_matches(name, NOTES, 1)
            meant = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(NOTES)}"
            raise BadInput(f"no class {name!r}", on="--class", remedy=meant)
