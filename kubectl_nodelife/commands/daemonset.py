"""`kubectl nodelife daemonset`: each set's counts, what is odd; with --nodes, the truth table."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.dumps import load, source_of
from kubectl_nodelife.commands.flags import Connection, connection_flags, output_flags
from kubectl_nodelife.commands.inputs import Snapshot, settings_from
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.outlook.daemonset.summary import summarize
from kubectl_nodelife.outlook.daemonset.table import truth_table
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, KindsRead, SetView
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.daemonset import SummaryPage, TruthTablePage
from kubectl_nodelife.report.formats import Answer, render

_PREFIXES = ("daemonset.apps/", "daemonsets.apps/", "daemonsets/", "daemonset/", "ds/")

ALL_NAMESPACES = click.option(
    "-A", "--all-namespaces", is_flag=True, help="The sets of all namespaces."
)


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--nodes", "per_node", is_flag=True, help="Each node with the rule that decides.")
@ALL_NAMESPACES
@click.option("-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@output_flags()
@connection_flags
def daemonset(
    name: str | None,
    per_node: bool,
    all_namespaces: bool,
    filename: tuple[str, ...],
    profile: str | None,
    assignments: tuple[str, ...],
    now: str | None,
    output: str,
    no_headers: bool,
    connection: Connection,
) -> int:
    """Why does a DaemonSet have the pods that it has? Its counts, and what is odd about them.

    With --nodes each node is shown with the rule that decides: which taint, selector or affinity
    term keeps a pod away, which pod is there, and what the controller does next.

    \b
    Examples:
      kubectl nodelife daemonset -A -f dump/
      kubectl nodelife daemonset kube-proxy -n kube-system -f dump/
      kubectl nodelife daemonset kube-proxy --nodes -n kube-system -f dump/ -o wide
    """
    if per_node and not name:
        raise BadInput("is about one set", on="--nodes", remedy="name the set")
    if not filename:
        raise BadInput("no input", remedy="name a dump with -f")
    snapshot = load(filename, now, profile)
    sets = sets_of(snapshot, assignments)
    warnings = [*snapshot.warnings, *missing(snapshot)]
    for warning in warnings:
        terminal.warn(warning)
    if name is None:
        namespace = None if all_namespaces else connection.namespace or "default"
        keys = sets.set_keys(namespace)
        if not keys:
            terminal.note("No resources found" + ("" if namespace is None else f" in {namespace}"))
    else:
        keys = [find(sets, name, connection.namespace, all_namespaces)]
    page: Answer
    if per_node:
        view = view_of(sets, keys[0])
        page = TruthTablePage(summarize(sets, keys[0]), truth_table(view), source_of(snapshot))
    else:
        summaries = [summarize(sets, key) for key in keys]
        source, moment = source_of(snapshot), snapshot.moment_ns
        page = SummaryPage(summaries, source, moment, all_namespaces, warnings)
    terminal.write(render(page, output, headers=not no_headers))
    return 0


def sets_of(snapshot: Snapshot, assignments: tuple[str, ...]) -> DaemonSets:
    """The sets of a dump, as the controller of its release would see them."""
    settings = settings_from(snapshot.profile, assignments)
    read = KindsRead(
        pods=snapshot.has_read("Pod"),
        nodes=snapshot.has_read("Node"),
        revisions=snapshot.has_read("ControllerRevision"),
    )
    return DaemonSets(snapshot.cache(), settings, snapshot.moment_ns, read)


def missing(snapshot: Snapshot) -> list[str]:
    """What was not read, and what cannot be said for that reason."""
    found = []
    if not snapshot.has_read("DaemonSet"):
        found.append("no DaemonSets were read")
    for kind, what in (
        ("Node", "which nodes should run a pod"),
        ("Pod", "which nodes have a pod"),
        ("ControllerRevision", "revisions and rollbacks"),
    ):
        if not snapshot.has_read(kind):
            found.append(f"no {kind}s were read: {what} cannot be told")
    return found


def find(
    sets: DaemonSets, name: str, namespace: str | None, all_namespaces: bool = False
) -> tuple[str, str]:
    """The key of a set by its name. Raises Failed."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    keys = sets.set_keys(None if all_namespaces else namespace or "default")
    found = [key for key in keys if key[1] == name]
    if not found:
        elsewhere = sorted(key[0] for key in sets.set_keys() if key[1] == name)
        remedy = f"it is in namespace {elsewhere[0]}: use -n" if elsewhere else "check the name"
        raise Failed("not found", on=f"daemonsets.apps {name!r}", remedy=remedy)
    return found[0]


def view_of(sets: DaemonSets, key: tuple[str, str]) -> SetView:
    """The view of a set. Raises Failed where its template cannot be read."""
    view = sets.view(key)
    if view is None:
        where = f"daemonset {key[0]}/{key[1]}"
        raise Failed(f"its template cannot be read: {sets.fault(key)}", on=where)
    return view
