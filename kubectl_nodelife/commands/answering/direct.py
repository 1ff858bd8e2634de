"""Answers a question without a daemon, from a dump or from one direct look at the cluster."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kubectl_nodelife.commands.answering.query import Response, as_sent
from kubectl_nodelife.commands.cluster.look import look
from kubectl_nodelife.commands.cluster.where import Where


def answer(where: Where, question: str, query: dict[str, Any]) -> Response:
    """Look and answer. Raises NodelifeError.

    `question`: the module beside this one, which says what must be read to answer it, and answers;
    only that one is imported.
    """
    asked, sent = import_module(f"{__package__}.{question}"), as_sent(query)
    response: Response = asked.answer(look(where, asked.reading(sent)), sent)
    return response
