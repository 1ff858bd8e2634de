"""Answers a question without a daemon, from a dump or from one direct look at the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering import daemonset, explain, status
from kubectl_nodelife.commands.answering.query import Query, Response, as_sent
from kubectl_nodelife.commands.cluster.look import KindsToRead, look
from kubectl_nodelife.commands.cluster.where import Where


class QuestionHandler(NamedTuple):
    """What must be read to answer, and the answer."""

    reading: Callable[[Query], KindsToRead]
    answer: Callable[[ClusterView, Query], Response]


QUESTIONS: Final = {
    "status": QuestionHandler(status.reading, status.answer),
    "explain": QuestionHandler(explain.reading, explain.answer),
    daemonset.QUESTION: QuestionHandler(daemonset.reading, daemonset.answer),
}


def answer(where: Where, question: str, query: dict[str, Any]) -> Response:
    """Look and answer. Raises NodelifeError."""
    asked, sent = QUESTIONS[question], as_sent(query)
    return asked.answer(look(where, asked.reading(sent)), sent)
