"""`kubectl nodelife explain`: what happens to an object, when, why, and why not yet."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering.query import QUESTION, SUMMARY
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.subjects import (
    BUDGET,
    DAEMON_SET,
    NODE,
    POD,
    WITHOUT_NAMESPACE,
    ZONE,
    parse_subject,
    word_for,
)

_EXPLAINED = (NODE, ZONE, POD, DAEMON_SET, BUDGET)
_OBJECTS = (NODE, POD, DAEMON_SET, BUDGET)
_MOST_NAMED = 5


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
    budgets, are always looked up. `daemonset NAME` and `budgets NAME` say the same.

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
    kind, namespace, name = parse_subject(subject, _EXPLAINED)
    query: dict[str, Any] = {
        "kind": kind,
        "name": name,
        **output.query(),
        "taint": taint,
    }
    if taint and kind != NODE:
        raise BadInput("is for nodes", on="--taint", remedy="write 'node NAME --taint ...'")
    if kind not in WITHOUT_NAMESPACE:
        query["namespace"] = namespace or ask.namespace_for(where)
    if kind == BUDGET:
        from kubectl_nodelife.commands.budgets import show

        return show(where, query["namespace"], [name], output)
    if kind == DAEMON_SET:
        return ask.answer(where, QUESTION, {**query, "about": SUMMARY})
    beside = kind == POD or (kind == NODE and not taint)
    response = _from_daemon_and_look(where, query) if beside else None
    if response is not None:
        return ask.show(response)
    return ask.answer(where, "explain", query)


def _found(where: Where, name: str) -> tuple[str, ...]:
    """The one object of that name, of any kind and namespace, as `parse_subject` takes it.

    Raises NotFound, BadInput where there are several.
    """
    from kubectl_nodelife.commands.cluster.look import KindsToRead, look
    from kubectl_nodelife.errors import NotFound

    view = look(where, KindsToRead(_OBJECTS, needed=()))
    objects = {
        (word_for(type(obj).__name__), obj.namespace, obj.name)
        for obj in view.objects
        if type(obj).__name__ in _OBJECTS
        and where.connection.namespace in (None, "", obj.namespace or where.connection.namespace)
    }
    found = sorted(one for one in objects if one[2] == name)
    if len(found) == 1:
        return ("/".join(filter(None, found[0])),)
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
