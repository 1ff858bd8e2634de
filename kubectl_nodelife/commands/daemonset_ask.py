"""How `daemonset` and `rollout` come by their answers: from a dump, the daemon, or a first look.

Only the question is made here, so that asking a daemon needs no more than a socket and json; what
takes the cluster apart is imported where there is no daemon to ask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.daemonset_question import QUESTION, SetQuestion
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.status import FIRST_LOOK
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

_PREFIXES = ("daemonset.apps/", "daemonsets.apps/", "daemonsets/", "daemonset/", "ds/")


class Where(NamedTuple):
    """What is looked at: the flags that choose it."""

    connection: Connection
    filename: tuple[str, ...] = ()
    now: str | None = None
    no_daemon: bool = False
    profile: str | None = None
    assignments: tuple[str, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether a daemon would be of no use: it has settings of its own."""
        return self.no_daemon or bool(self.profile or self.assignments)


def answer(question: SetQuestion, where: Where) -> int:
    """Find the answer, print it, and return the exit code. Raises NodelifeError."""
    if where.now and not where.filename:
        raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
    if where.filename:
        return show(_look_and_answer(question, where))
    if not where.direct:
        told = ask.ask(where.connection, QUESTION, **question.query())
        if told is not None:
            return show(told)
    terminal.note(FIRST_LOOK)
    return show(_look_and_answer(question, where))


def follow(question: SetQuestion, where: Where, timeout_seconds: float = 0.0) -> int:
    """Print answers as they change until the update is over. Raises NodelifeError.

    `timeout_seconds` 0: without end.
    """
    if where.filename:
        raise BadInput("a dump does not change", on="--watch")
    query = {**question.query(), "timeout": timeout_seconds or None}
    answers = None if where.direct else ask.follow(where.connection, QUESTION, **query)
    if answers is None:
        raise BadInput(
            "watching is the daemon's work",
            on="--watch",
            remedy="run: kubectl nodelife daemon start",
        )
    for told in answers:
        show(told)
        terminal.flush()
    return 0


def show(told: dict[str, Any]) -> int:
    """Print an answer; the exit code."""
    for warning in told.get("warnings", ()):
        terminal.warn(warning)
    if told.get("note"):
        terminal.note(told["note"])
    terminal.write(told.get("text", ""))
    return 0


def namespace_for(where: Where, all_namespaces: bool = False) -> str:
    """The namespace that is meant, "" for all: the flags' or the context's. Raises BadInput."""
    if all_namespaces:
        return ""
    if where.connection.namespace or where.filename:
        return where.connection.namespace or "default"
    line = None if where.direct else ask.find(where.connection)
    if line is not None:
        return line.known.namespace
    from kubectl_nodelife.commands.first_look import own_namespace

    return own_namespace(where.connection)


def name_of(word: str | None) -> str:
    """A set's name, without the kind that may stand before it."""
    name = word or ""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _look_and_answer(question: SetQuestion, where: Where) -> dict[str, Any]:
    from kubectl_nodelife.commands.daemonset_answers import answer_from
    from kubectl_nodelife.commands.daemonset_look import look_at_cluster, look_at_dump

    if where.filename:
        look = look_at_dump(where.filename, where.now, where.profile, where.assignments)
    else:
        namespace = question.namespace
        look = look_at_cluster(where.connection, namespace, where.profile, where.assignments)
    return answer_from(look, question)
