"""What is said of one object: the page of `explain`, of `budgets NAME` and of `daemonset NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kubectl_nodelife.kube.times import SECOND_NS, precise_due
from kubectl_nodelife.outlook.explain import ExplainedQuestion, total
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.terminal import printable

if TYPE_CHECKING:
    from kubectl_nodelife.outlook.explain_document import Explanation

_TERM_COLUMNS = columns("term | earliest | latest | from")


def explanation_page(e: Explanation) -> Page:
    """An `Explanation` as an answer: in a line or two, then the questions with their sentences and
    sums. Its name is the one object's."""
    namespaced = f"{e.namespace}/" if e.namespace else ""
    return Page(
        lambda *, wide: explained(e.kind, e.namespace, e.name, e.sections, e.taint),
        e.document,
        lambda: [f"{e.kind.lower()}/{namespaced}{e.name}"],
    )


def explained(
    kind: str, namespace: str, name: str, sections: Sequence[ExplainedQuestion], taint: str = ""
) -> Iterator[Block]:
    """What is said of one object, by whichever verb: the answer, then questions and sums. `taint`:
    which a node has in it, and has not now."""
    said = 2 if kind == "Pod" else 1  # sentences of the first section, for the first line
    yield "\n".join(_answer(kind, f"{namespace}/{name}".removeprefix("/"), sections, said, taint))
    for section in sections:
        sentences, said = section.sentences[said:], 0
        if not sentences and not section.terms:
            continue
        yield "\n  ".join((section.question, *map(printable, sentences)))
        if section.terms:
            yield Table(_TERM_COLUMNS, _term_rows(section))


def _answer(
    kind: str, name: str, sections: Sequence[ExplainedQuestion], said: int, taint: str
) -> Iterator[str]:
    """The first words about the object, who is at it, and what its first sum comes to."""
    sentences = [s for section in sections[:1] for s in section.sentences]
    words = printable(" ".join(sentences[:said]))
    if taint:
        yield f"Node {name} with {taint}: {words[:1].lower()}{words[1:]}"
    elif kind == "Node":
        yield f"Node {name} is {words}"
    else:
        yield f"{kind} {name}: {words}"
    for section in sorted(sections, key=lambda section: not section.goes_before):
        if section.answer:
            yield printable(section.answer)
            if not section.goes_before:
                return
        if section.terms:
            low, high = total(section.terms)
            if low is None:
                when = "Never, as things are"
            elif high is None:
                when = f"In {_seconds(low)} at the earliest"
            elif _seconds(low) == _seconds(high):
                when = f"In {_seconds(low)}"
            else:
                when = f"In {_seconds(low)} to {_seconds(high)}"
            unless = f", unless {printable(section.unless)}" if section.unless else ""
            yield f"{section.question} {when}{unless}; the terms are added up below."
            return


def _term_rows(section: ExplainedQuestion) -> list[list[object]]:
    rows: list[list[object]] = [
        [t.what, _seconds(t.low), _seconds(t.high), t.origin] for t in section.terms
    ]
    low, high = total(section.terms)
    return [*rows, ["in all", _seconds(low), _seconds(high), "the sum"]]


def _seconds(value: float | None) -> str:
    return "never" if value is None else precise_due(round(value * SECOND_NS))
