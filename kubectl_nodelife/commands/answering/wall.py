"""Answers `wall`: what `top` draws, as a document."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from kubectl_nodelife.answers.status import status_steps
from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.answers.wall import Wall, wall
from kubectl_nodelife.commands.answering.query import Query, Response, number, word

QUESTION = "wall"
_MOST_NODES = 1_000


def steps(view: ClusterView, query: Query) -> Generator[None, None, Wall]:
    """The wall, a step a node. Raises BadInput."""
    status = yield from status_steps(view)
    limit = min(_MOST_NODES, number(query, "limit") or _MOST_NODES)
    return wall(status, word(query, "filter"), word(query, "sort") or "trouble", limit)


def told(made: Wall) -> Response:
    """The document."""
    return {"document": msgspec.to_builtins(made)}
