"""`kubectl nodelife explain`: what happens to an object, when, why, and why not yet."""

from __future__ import annotations

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering import (
    QUESTION,
    SUMMARY,
    ExplainQuestion,
    SetQuestion,
    asked,
)
from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube.names import (
    BUDGET,
    DAEMON_SET,
    NODE,
    POD,
    WITHOUT_NAMESPACE,
    ZONE,
    kind_of,
    parse_subject,
    word_for,
)

_EXPLAINED = (NODE, ZONE, POD, DAEMON_SET, BUDGET)
_OBJECTS = (NODE, POD, DAEMON_SET, BUDGET)
_MOST_NAMED = 5


@click.command()
@click.argument("subject", nargs=-1, metavar="KIND NAME...")
@click.option(
    "--taint",
    default="",
    metavar="KEY=VALUE:EFFECT",
    help="What would this taint do to the node's pods?",
)
@output_flags("table", "json", "yaml", "markdown")
@where_flags("no_daemon", "profile", "assignments")
def explain(
    subject: tuple[str, ...],
    taint: str,
    output: Output,
    where: Where,
) -> int:
    """Say in sentences what happens to a node, a zone, a pod, a DaemonSet or a budget.

    A name alone is enough where one object has it. Every number is put in. Answered by the daemon
    where one watches the cluster, which lists what it does not watch, else by a first look at it;
    budgets are always looked up. `daemonset NAME` and `budgets NAME` say the same.

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
    if taint and kind != NODE:
        raise BadInput("is for nodes", on="--taint", remedy="write 'node NAME --taint ...'")
    if kind not in WITHOUT_NAMESPACE:
        namespace = namespace or ask.namespace_for(where)
    if kind == BUDGET:
        from kubectl_nodelife.commands.budgets import show

        return show(where, namespace, [name], output)
    if kind == DAEMON_SET:
        return ask.answer(where, QUESTION, asked(SetQuestion(SUMMARY, namespace, name), output))
    more = not where.connection.via  # that daemon reads by its own rights
    question = ExplainQuestion(kind, namespace, name, taint, more)
    return ask.answer(where, "explain", asked(question, output), seconds=ask.FORKED_SECONDS)


def _found(where: Where, name: str) -> tuple[str, ...]:
    """The one object of that name, of any kind and namespace, as `parse_subject` takes it.

    Raises NotFound, BadInput where there are several.
    """
    only = where.connection.namespace
    named = sorted(_named_at_daemon(where, name) or _all_named(where))
    objects = [each for each in named if only in (None, "", each[1] or only)]
    alike = [each for each in objects if each[2] == name]
    if len(alike) == 1:
        return ("/".join(filter(None, alike[0])),)
    if not alike:
        among = {each[2] for each in objects}
        if kind := kind_of(name):
            raise BadInput(f"which {word_for(kind)}?", remedy="give its name")
        raise NotFound("nodes, pods, daemonsets or budgets", name, among=among)
    ways = ", ".join("/".join(filter(None, one)) for one in alike[:_MOST_NAMED])
    raise BadInput(f"{len(alike)} objects have the name {name!r}", remedy=f"write one of {ways}")


def _named_at_daemon(where: Where, name: str) -> set[tuple[str, str, str]]:
    """(kind, namespace, name) of the objects of that name, by the daemon; none where it cannot
    say."""
    if where.filename or where.direct or where.connection.via:
        return set()
    answer = ask.ask(where.connection, "find", name=name)
    items = answer["items"] if answer is not None else ()
    return {(word_for(kind), namespace, each) for kind, namespace, each in items}


def _all_named(where: Where) -> set[tuple[str, str, str]]:
    """The same of all objects, by a look."""
    from kubectl_nodelife.commands.cluster.look import KindsToRead, look
    from kubectl_nodelife.kube.kinds import kind_of

    view = look(where, KindsToRead(_OBJECTS, needed=()))
    seen = ((kind_of(obj), obj.namespace, obj.name) for obj in view.objects)
    return {(word_for(kind), space, each) for kind, space, each in seen if kind in _OBJECTS}
