"""`kubectl nodelife daemonset`: each set's counts, what is odd; with --nodes, the truth table."""

from __future__ import annotations

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering.query import NODES, QUESTION, SUMMARY
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.errors import BadInput

_PREFIXES = ("daemonset.apps/", "daemonsets.apps/", "daemonsets/", "daemonset/", "ds/")


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--nodes", "per_node", is_flag=True, help="Each node with the rule that decides.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The sets of all namespaces.")
@output_flags()
@where_flags("no_daemon", "profile", "assignments")
def daemonset(
    name: str | None,
    per_node: bool,
    all_namespaces: bool,
    output: Output,
    where: Where,
) -> int:
    """Why does a DaemonSet have the pods that it has? Its counts, and what is odd about them.

    With --nodes each node is shown with the rule that decides: which taint, selector or affinity
    term keeps a pod away, which pod is there, and what the controller does next. Answered by the
    daemon where one watches the cluster, else by a first look at it.

    \b
    Examples:
      kubectl nodelife daemonset -A
      kubectl nodelife daemonset kube-proxy -n kube-system
      kubectl nodelife daemonset kube-proxy --nodes -n kube-system -o wide
      kubectl nodelife daemonset -A --nodes
      kubectl nodelife daemonset -A -f dump/
    """
    if per_node and not name and output.format not in ("table", "wide"):
        raise BadInput(
            f"is about one set with -o {output.format}", on="--nodes", remedy="name the set"
        )
    query = {
        "about": NODES if per_node else SUMMARY,
        "namespace": "" if all_namespaces else ask.namespace_for(where),
        "name": name_of(name),
        **output.query(),
    }
    return ask.answer(where, QUESTION, query)


def name_of(word: str | None) -> str:
    """A set's name, without the kind that may stand before it."""
    name = word or ""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
