"""`kubectl nodelife audit`: pods that are not what their containers and their node say; and
`repair`: what would be sent about these findings, or why not.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kubectl_nodelife.commands import writing
from kubectl_nodelife.commands.ask import say_first_look
from kubectl_nodelife.commands.flags import Output, Where, duration_ns, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_NO, BadInput, NotFound
from kubectl_nodelife.kube.names import POD, parse_names, parse_subjects
from kubectl_nodelife.outlook.audit import CAP
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.commands.cluster.look import KindsToRead
    from kubectl_nodelife.kube.meta import LabelSelector
    from kubectl_nodelife.outlook.audit.audit_pods import AuditInput
    from kubectl_nodelife.outlook.audit.document import PodAudit
    from kubectl_nodelife.outlook.audit.findings import PodFinding
    from kubectl_nodelife.outlook.audit.repair_plan import FirstSeen, RepairOptions, RepairStep
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
    from kubectl_nodelife.outlook.audit.document import only
    from kubectl_nodelife.report.audit import audit_page

    check_classes(classes)
    where.check()
    namespace, labels = namespace_of(where, all_namespaces), label_selector(selector)
    audited = Audited.look(where, namespace, labels)
    audited.warn(first_look=not where.filename)
    answer = audited.answer
    if classes:
        answer = replace(answer, audit=only(answer.audit, classes), beforehand=())
    if not audited.seen.pods and output.format in NOTHING_TO_SHOW:
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


Key = tuple[str, str]


@click.command()
@click.argument("pods", nargs=-1, metavar="[POD...]")
@click.option(
    "--before",
    multiple=True,
    metavar="PATH",
    help="An earlier dump: what was so in it has been so since.",
)
@click.option(
    "--wait", metavar="DURATION", help="Look, wait so long, look again: has it been so since?"
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@click.option("-l", "--selector", help="Only pods with these labels, as in kubectl.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these findings.")
@click.option(
    "--fenced",
    multiple=True,
    metavar="NODE",
    help="Your word that this node's machine is off; repeatable.",
)
@click.option("--limit", default=CAP, show_default=True, help="So many requests at most.")
@writing.act_flags
@output_flags()
@where_flags("profile", "assignments")
def repair(
    pods: tuple[str, ...],
    before: tuple[str, ...],
    wait: str | None,
    all_namespaces: bool,
    selector: str | None,
    classes: tuple[str, ...],
    fenced: tuple[str, ...],
    limit: int,
    act: writing.ActFlags,
    output: Output,
    where: Where,
) -> int:
    """Repair what the audit finds: show each request, or why it is refused, ask, and send.

    With --dry-run=client, or for a dump, nothing is sent. A request carries the pod's uid and
    resourceVersion, so that it cannot hit another pod, or this one after it has changed. Without
    PODs or classes, everything is planned that is wrong. Exits with 1 where a request failed.

    \b
    Examples:
      kubectl nodelife repair -A --class stuck-not-ready --wait 1m
      kubectl nodelife repair -A --class stuck-not-ready --yes
      kubectl nodelife repair web-0 -n shop -f dump/ --fenced worker-3
      kubectl nodelife repair -f now/ --before a-minute-ago/ -o json
    """
    from kubectl_nodelife.commands.cluster.look import namespace_of
    from kubectl_nodelife.outlook.audit.document import repair_document
    from kubectl_nodelife.outlook.audit.repair_plan import RepairOptions
    from kubectl_nodelife.report.audit import repair_page

    check_classes(classes)
    writing.not_for_dumps(where.filename, act)
    where.check()
    namespace = namespace_of(where, all_namespaces)
    wanted, labels = chosen_pods(pods, namespace, selector)
    then = earlier(where, None if wanted else namespace, before, wait)
    seen = Audited.look(where, None if wanted else namespace, labels)
    seen.warn(first_look=then is None and not where.filename)
    options = RepairOptions(frozenset(classes), frozenset(parse_names(fenced)), limit)
    steps = steps_of(seen, wanted, options, then)
    sends = not where.filename and act.dry_run != writing.CLIENT
    mode = "enforce" if sends and act.dry_run != writing.SERVER else "dry-run"
    output.show(repair_page(steps, repair_document(steps, seen.view.head, mode), dry_run=not sends))
    if not sends:
        return 0
    show = terminal.write if output.format in ("table", "wide") else terminal.note
    return writing.send_repairs(steps, where.connection, act, show)


def chosen_pods(
    words: Sequence[str], namespace: str | None, selector: str | None
) -> tuple[set[Key], LabelSelector | None]:
    """(namespace, name) of each pod that is named, or the labels that all have. Raises BadInput."""
    from kubectl_nodelife.kube.selectors import label_selector

    labels = label_selector(selector, words)
    named = parse_subjects(words, (POD,), POD)
    wanted = {(pod.namespace or namespace or "default", pod.name) for pod in named}
    return wanted, labels


class Audited(NamedTuple):
    """One look at a cluster, and what the audit finds in it."""

    view: ClusterView
    seen: AuditInput
    answer: PodAudit

    @classmethod
    def look(
        cls, where: Where, namespace: str | None, labels: LabelSelector | None = None
    ) -> Audited:
        """Look, and judge the pods of a namespace, or (None) of all, with these labels, or (None)
        all. Raises NodelifeError."""
        from kubectl_nodelife.outlook.audit.document import pod_audit, seen_in

        view = look_for_audit(where)
        seen = seen_in(view, namespace, labels)
        return cls(view, seen, pod_audit(view, seen))

    def warn(self, *, first_look: bool) -> None:
        """Say what the look could not evaluate, and that it was the first one."""

        if first_look:
            say_first_look(FIRST_LOOK)
        terminal.warn(*self.answer.warnings, *self.answer.audit.not_evaluated)


def earlier(
    where: Where, namespace: str | None, before: tuple[str, ...], wait: str | None
) -> Audited | None:
    """The look that shows what has been so since: an earlier dump, or the cluster, and then the
    wait. Raises NodelifeError."""
    from kubectl_nodelife.kube.times import SECOND_NS

    if before:
        return Audited.look(where._replace(filename=before, now=None), None)
    if wait is None:
        return None
    if where.filename:
        raise BadInput("a dump does not change", on="--wait", remedy="give --before a dump")
    wait_ns = duration_ns(wait, "--wait")
    then = Audited.look(where, namespace)
    time.sleep(max(0, wait_ns) / SECOND_NS)
    return then


def steps_of(
    now: Audited, pods: set[Key], options: RepairOptions, then: Audited | None
) -> list[RepairStep]:
    """A step for each finding that is asked for. Raises Failed for a name that is not there."""
    from kubectl_nodelife.outlook.audit.audit_pods import health_of_nodes
    from kubectl_nodelife.outlook.audit.repair_plan import plan

    health = health_of_nodes(now.seen)
    for name in sorted(options.fenced - health.keys()):
        raise NotFound("nodes", name, remedy="check the name in --fenced", among=health)
    for namespace, name in sorted(pods - {pod.key for pod in now.seen.pods}):
        there = (f"{pod.namespace}/{pod.name}" for pod in now.seen.pods)
        remedy = "check the name and -n"
        raise NotFound("pods", f"{namespace}/{name}", remedy=remedy, among=there)
    chosen = [f for f in now.answer.audit.findings if _is_asked_for(f, pods, options)]
    for namespace, name in sorted(pods - {f.pod.key for f in chosen}):
        terminal.note(f"pod {namespace}/{name}: nothing to repair")
    return plan(chosen, options, first_seen(now.answer, then and then.answer))


def first_seen(now: PodAudit, then: PodAudit | None) -> dict[str, FirstSeen]:
    """Of pods that were in the same class in an earlier look, by uid."""
    from kubectl_nodelife.outlook.audit.repair_plan import FirstSeen

    if then is None:
        return {}
    seen = {(f.pod.uid, f.name): f.pod.metadata.resource_version for f in then.audit.findings}
    return {
        f.pod.uid: FirstSeen(then.now_ns, seen[f.pod.uid, f.name])
        for f in now.audit.findings
        if (f.pod.uid, f.name) in seen
    }


def _is_asked_for(finding: PodFinding, pods: set[Key], options: RepairOptions) -> bool:
    """By pod, by class, or, where neither is named, by being wrong."""
    from kubectl_nodelife.outlook.audit.classes import WRONG

    if pods and finding.pod.key not in pods:
        return False
    if options.classes:
        return finding.name in options.classes
    return bool(pods) or finding.note.severity == WRONG
