"""Puts the answers of several clusters on one page: a table of each kind, CONTEXT first.

Each answer is made by a process that asked one cluster (`commands/several_clusters.py`). Tables
with the same columns become one. The first table says how each cluster was asked, how old its
answer is, or why there is none. The document is a List of the clusters' documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.ages import human_duration
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.screen import BAD, GOOD, ColoredText
from kubectl_nodelife.report.table import UNKNOWN, Column, Table, columns

_CLUSTERS = columns("context | source | age | server* | answer")
_CONTEXT = Column("context")


class ClusterAnswer(NamedTuple):
    """The answer of one cluster. `context`: the name, or names, by which it is known; `code`: the
    exit code; `text`: what it wrote to stdout, `notes`: the lines of its stderr; `error`: why there
    is no answer."""

    context: str
    code: int
    text: str
    error: str = ""
    notes: tuple[str, ...] = ()


class ClustersPage:
    """The answers of several clusters as one page. Their texts are parts of pages or documents."""

    def __init__(self, answers: Sequence[ClusterAnswer]) -> None:
        self._answers = answers

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The clusters; then the tables, and what stands between them for each cluster."""
        made = {a.context: json.loads(a.text) if a.text else {} for a in self._answers}
        rows = [_cluster_row(a, made[a.context].get("source")) for a in self._answers]
        yield Table(_CLUSTERS, rows)
        yield from _merged({context: parts.get("blocks", []) for context, parts in made.items()})

    def document(self) -> object:
        """A List; `source.context` says of which cluster each item is. A cluster without an answer
        stands in `unanswered`."""
        items = [_with_context(json.loads(a.text), a.context) for a in self._answers if a.text]
        unanswered = [{"context": a.context, "error": a.error} for a in self._answers if a.error]
        return {"apiVersion": "v1", "kind": "List", "items": items, "unanswered": unanswered}

    def names(self) -> Iterable[str]:
        """None: names of several clusters are shown beside their contexts."""
        return ()


def _cluster_row(answer: ClusterAnswer, source: Any) -> list[object]:
    if answer.error:
        return [answer.context, None, None, None, ColoredText(answer.error, BAD)]
    source = source if isinstance(source, dict) else {}
    age = source.get("age")
    is_age = isinstance(age, int | float)
    return [
        answer.context,
        source.get("kind") or UNKNOWN,
        human_duration(round(age * SECOND_NS)) if is_age else None,
        source.get("server"),
        ColoredText("answered", GOOD),
    ]


def _with_context(document: Any, context: str) -> Any:
    """The document with the context in its source."""
    if isinstance(document, dict):
        source = document.get("source")
        document["source"] = {**(source if isinstance(source, dict) else {}), "context": context}
    return document


def _merged(parts: dict[str, list[Any]]) -> Iterable[Block]:
    """Tables with the same columns as one, paragraphs below the names of their contexts; in the
    order of their first appearance."""
    rows: dict[str, list[list[object]]] = {}
    merged: dict[object, Table | list[str]] = {}
    for context, blocks in parts.items():
        place = 0
        for block in blocks:
            if isinstance(block, str):
                texts = merged.setdefault(("text", place), [])
                assert isinstance(texts, list)
                texts.append(_paragraph(context, block))
                continue
            place += 1
            table = Table.from_json(block)
            key = " | ".join(column.header for column in table.columns)
            if key not in rows:
                merged[key] = Table((_CONTEXT, *table.columns), rows.setdefault(key, []))
            rows[key] += ([context, *row] for row in table.rows)
    for block in merged.values():
        yield "\n".join(block) if isinstance(block, list) else block


def _paragraph(context: str, text: str) -> str:
    lines = text.strip("\n").splitlines()
    if len(lines) == 1:
        return f"{context}: {lines[0]}"
    return "\n".join([f"{context}:", *(f"  {line}" if line else "" for line in lines)])
