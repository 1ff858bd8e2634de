"""Answer a question without a daemon: from a dump, or by a first look at the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering import daemonset, explain, status
from kubectl_nodelife.commands.answering.query import Query, Told, as_sent
from kubectl_nodelife.commands.cluster.look import Reading, look
from kubectl_nodelife.commands.cluster.where import Where


class Question(NamedTuple):
    """What must be read to answer, and the answer."""

    reading: Callable[[Query], Reading]
    answer: Callable[[ClusterView, Query], Told]


QUESTIONS: Final = {
    "status": Question(status.reading, status.answer),
    "explain": Question(explain.reading, explain.answer),
    daemonset.QUESTION: Question(daemonset.reading, daemonset.answer),
}


def answer(where: Where, question: str, query: dict[str, Any]) -> Told:
    """Look and answer. Raises NodelifeError."""
    asked, sent = QUESTIONS[question], as_sent(query)
    return asked.answer(look(where, asked.reading(sent)), sent)
