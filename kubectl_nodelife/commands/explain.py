"""`kubectl nodelife explain`: what happens to an object, when, why, and why not yet."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.errors import BadInput

_KINDS = {
    "node": "Node",
    "nodes": "Node",
    "no": "Node",
    "pod": "Pod",
    "pods": "Pod",
    "po": "Pod",
    "daemonset": "DaemonSet",
    "daemonsets": "DaemonSet",
    "ds": "DaemonSet",
    "poddisruptionbudget": "PodDisruptionBudget",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "pdb": "PodDisruptionBudget",
    "budget": "PodDisruptionBudget",
    "budgets": "PodDisruptionBudget",
    "zone": "Zone",
    "zones": "Zone",
}
_WITHOUT_NAMESPACE = frozenset({"Node", "Zone"})
_EXPLAINED_KINDS = {
    "node": "Node",
    "pod": "Pod",
    "daemonset": "DaemonSet",
    "budget": "PodDisruptionBudget",
}
_MOST_NAMED = 5
_WAYS = "write 'node NAME', 'zone NAME', or one of pod, daemonset, budget with 'NAME -n NS'"


@click.command()
@click.argument("subject", nargs=-1, metavar="KIND NAME...")
@click.option(
    "--taint", metavar="KEY=VALUE:EFFECT", help="What would this taint do to the node's pods?"
)
@output_flags("table", "json", "yaml", "markdown")
@where_flags("no_daemon", "profile", "assignments")
def explain(
    subject: tuple[str, ...],
    taint: str | None,
    output: Output,
    where: Where,
) -> int:
    """Say in sentences what happens to a node, a zone, a pod, a DaemonSet or a budget.

    A name alone is enough where one object has it. Every number is put in. Answered by the daemon
    where one watches the cluster, else by a first look at it; what a drain would do to a pod, and
    budgets, are always looked up.

    \b
    Examples:
      kubectl nodelife explain worker-1
      kubectl nodelife explain node worker-1
      kubectl nodelife explain node worker-1 --taint maintenance=now:NoExecute
      kubectl nodelife explain pod web-0 -n shop
      kubectl nodelife explain zone eu-1a
      kubectl nodelife explain daemonset log-agent -n kube-system
      kubectl nodelife explain budget web -n shop
      kubectl nodelife explain node worker-1 -f dump/
    """
    where.check()
    if len(subject) == 1 and "/" not in subject[0]:
        subject = _found(where, subject[0])
    kind, namespace, name = parse_subject(subject, where.connection.namespace)
    query: dict[str, Any] = {
        "kind": kind,
        "name": name,
        **output.query(),
        "taint": taint,
    }
    if taint and kind != "Node":
        raise BadInput("is for nodes", on="--taint", remedy="write 'node NAME --taint ...'")
    if kind not in _WITHOUT_NAMESPACE:
        query["namespace"] = namespace or ask.namespace_for(where)
    beside = kind == "Pod" or (kind == "Node" and not taint)
    response = _from_daemon_and_look(where, query) if beside else None
    if response is not None:
        return ask.show(response)
    if kind == "PodDisruptionBudget":
        where = where._replace(no_daemon=True)
    return ask.answer(where, "explain", query)


def _found(where: Where, name: str) -> tuple[str, ...]:
    """The one object of that name, of any kind and namespace, as `parse_subject` takes it.

    Raises NotFound, BadInput where there are several.
    """
    from kubectl_nodelife.commands.cluster.look import KindsToRead, look
    from kubectl_nodelife.errors import NotFound

    view = look(where, KindsToRead(tuple(_EXPLAINED_KINDS.values()), needed=()))
    words = {kind: word for word, kind in _EXPLAINED_KINDS.items()}
    objects = {
        (words[type(obj).__name__], obj.namespace, obj.name)
        for obj in view.objects
        if type(obj).__name__ in words
        and where.connection.namespace in (None, "", obj.namespace or where.connection.namespace)
    }
    found = sorted(one for one in objects if one[2] == name)
    if len(found) == 1:
        return tuple(filter(None, found[0]))
    if not found:
        among = {one[2] for one in objects}
        raise NotFound("nodes, pods, daemonsets or budgets", name, among=among)
    ways = ", ".join("/".join(filter(None, one)) for one in found[:_MOST_NAMED])
    raise BadInput(f"{len(found)} objects have the name {name!r}", remedy=f"write one of {ways}")


def _from_daemon_and_look(where: Where, query: dict[str, Any]) -> dict[str, Any] | None:
    """A daemon's explanation of a pod or a node, and what a look shows of what it does not watch.

    None where no daemon answers, or the user may not look; then one of them has to do. What is
    asked through the API server is the daemon's alone.
    """
    if where.filename or where.direct or where.connection.via:
        return None
    response = ask.ask(where.connection, "explain", **{**query, "output": "json"})
    if response is None:
        return None
    from kubectl_nodelife.commands.answering.explain import with_look

    return with_look(where, response, {**query, **ask.on_this_screen()})


def parse_subject(words: tuple[str, ...], namespace: str | None) -> tuple[str, str, str]:
    """(kind, namespace, name) of `node NAME`, `node/NAME`, `pod NAME`, `pod/NS/NAME` and so on.

    The namespace is "" where none is given. Raises BadInput.
    """
    parts = [part for word in words for part in word.split("/")]
    kind = _KINDS.get(parts[0].lower()) if parts else None
    if kind == "Zone" and len(parts) > 1 and all(parts):
        return kind, "", "/".join(parts[1:])
    if kind == "Node" and len(parts) == 2 and parts[1]:
        return kind, "", parts[1]
    if kind is not None and kind not in _WITHOUT_NAMESPACE and all(parts):
        if len(parts) == 2:
            return kind, namespace or "", parts[1]
        if len(parts) == 3:
            return kind, parts[1], parts[2]
    given = " ".join(words) or "nothing"
    raise BadInput(
        f"which object is meant is unclear from {given!r}",
        remedy=_WAYS,
    )
