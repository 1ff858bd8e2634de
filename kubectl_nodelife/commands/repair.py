"""`kubectl nodelife repair`: what would be sent about the findings of the audit, or why not."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands.audit import answer_of, check_classes, read, seen_in
from kubectl_nodelife.commands.dumps import source_of
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot, settings_from
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.outlook.audit.findings import Finding
from kubectl_nodelife.outlook.audit.mend import Sighting
from kubectl_nodelife.outlook.audit.notes import WRONG
from kubectl_nodelife.outlook.audit.plan import CAP, Step, Wishes, plan, plan_document
from kubectl_nodelife.outlook.audit.sweep import context_of, health_of_nodes
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.audit import RepairPage
from kubectl_nodelife.report.formats import render

Key = tuple[str, str]


@click.command()
@click.argument("pods", nargs=-1, metavar="[POD...]")
@click.option(
    "-f", "--filename", multiple=True, metavar="PATH", help="A dump instead of a cluster."
)
@click.option(
    "--before",
    multiple=True,
    metavar="PATH",
    help="An earlier dump: what was so in it has been so since.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these findings.")
@click.option(
    "--fenced",
    multiple=True,
    metavar="NODE",
    help="Your word that this node's machine is off; repeatable.",
)
@click.option("--limit", default=CAP, show_default=True, help="So many requests at most.")
@click.option("--dry-run", is_flag=True, default=True, help="Send nothing; the only mode so far.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@output_flags()
@connection_flags
def repair(
    pods: tuple[str, ...],
    filename: tuple[str, ...],
    before: tuple[str, ...],
    all_namespaces: bool,
    classes: tuple[str, ...],
    fenced: tuple[str, ...],
    limit: int,
    dry_run: bool,
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> None:
    """Print the request that would mend each finding of the audit, or why it is refused.

    Nothing is sent. A request carries the pod's uid and resourceVersion, so that it cannot hit
    another pod, or this one after it has changed. Without PODs or classes, everything is planned
    that is wrong.

    \b
    Examples:
      kubectl nodelife repair -f dump/ --class stuck-not-ready
      kubectl nodelife repair web-0 -n shop -f dump/ --fenced worker-3
      kubectl nodelife repair -f now/ --before a-minute-ago/ -o json
    """
    check_classes(classes)
    snapshot = read(filename, now, profile)
    settings = settings_from(snapshot.profile, assignments)
    wishes = Wishes(frozenset(classes), frozenset(fenced), limit)
    namespace = None if all_namespaces else connection.namespace
    look = Look(snapshot, settings, namespace)
    steps = look.steps(wanted_pods(pods, namespace), wishes, before)
    terminal.write(render(RepairPage(steps, look.document(steps)), output, headers=not no_headers))


class Look:
    """One dump, judged, with all that a plan needs of it."""

    def __init__(self, snapshot: Snapshot, settings: Settings, namespace: str | None) -> None:
        self.snapshot = snapshot
        self.settings = settings
        self.seen = seen_in(snapshot, namespace)
        self.answer = answer_of(snapshot, settings, namespace)
        for warning in (*self.answer.warnings, *self.answer.audit.not_evaluated):
            terminal.warn(warning)

    def steps(self, pods: set[Key], wishes: Wishes, before: tuple[str, ...]) -> list[Step]:
        """A step for each finding that is asked for. Raises Failed for a name that is not there."""
        health = health_of_nodes(self.seen)
        for name in sorted(wishes.fenced - health.keys()):
            raise Failed("not found", on=f"node {name}", remedy="check the name in --fenced")
        for namespace, name in sorted(pods - {pod.key for pod in self.seen.pods}):
            raise Failed("not found", on=f"pod {namespace}/{name}", remedy="check the name and -n")
        chosen = [f for f in self.answer.audit.findings if _is_asked_for(f, pods, wishes)]
        for namespace, name in sorted(pods - {f.pod.key for f in chosen}):
            terminal.note(f"pod {namespace}/{name}: nothing to repair")
        context = context_of(self.settings, self.snapshot.moment_ns)
        return plan(chosen, health, context, wishes, self._sightings(before))

    def _sightings(self, before: tuple[str, ...]) -> dict[str, Sighting]:
        """Of pods that were in the same class in an earlier dump, by uid."""
        if not before:
            return {}
        earlier = read(before, None, self.settings.profile.name)
        found = answer_of(earlier, self.settings, None).audit.findings
        then = {(f.pod.uid, f.name): f.pod.metadata.resource_version for f in found}
        return {
            f.pod.uid: Sighting(earlier.moment_ns, then[f.pod.uid, f.name])
            for f in self.answer.audit.findings
            if (f.pod.uid, f.name) in then
        }

    def document(self, steps: list[Step]) -> dict[str, Any]:
        """The RepairPlan document."""
        head = {
            "source": source_of(self.snapshot),
            "profile": self.settings.profile.name,
            "moment": self.snapshot.moment(),
        }
        return plan_document(steps, head)


def wanted_pods(words: tuple[str, ...], namespace: str | None) -> set[Key]:
    """(namespace, name) of each `NAME`, `pod/NAME` or `pod/NAMESPACE/NAME`. Raises BadInput."""
    wanted = set()
    for word in words:
        parts = word.split("/")
        if len(parts) > 1 and parts[0] in ("pod", "pods", "po"):
            parts = parts[1:]
        if not all(parts) or len(parts) > 2:
            raise BadInput(f"{word!r} names no pod", remedy="write NAME, or pod/NAMESPACE/NAME")
        wanted.add((parts[0] if len(parts) == 2 else namespace or "default", parts[-1]))
    return wanted


def _is_asked_for(finding: Finding, pods: set[Key], wishes: Wishes) -> bool:
    """By pod, by class, or, where neither is named, by being wrong."""
    if pods and finding.pod.key not in pods:
        return False
    if wishes.classes:
        return finding.name in wishes.classes
    return bool(pods) or finding.note.severity == WRONG
