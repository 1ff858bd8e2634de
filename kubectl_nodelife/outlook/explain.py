"""The answer of `explain`: what happens to a node or a pod, when, why, and why not yet, in
sentences.

An explanation is a list of sections, each a question as users ask it with sentences that have the
numbers put in; where times add up, a section has terms whose sum is the answer.
"""

from __future__ import annotations

import msgspec


class Term(msgspec.Struct, frozen=True):
    """One summand:

    from `low` to `high` seconds (None: no limit), and where the number comes from.
    """

    what: str
    low: float
    high: float | None
    origin: str


class Section(msgspec.Struct, frozen=True):
    """A question with its answer."""

    question: str
    sentences: list[str]
    terms: list[Term] = []


def total(terms: list[Term]) -> tuple[float, float | None]:
    """The sum of the terms: (at the earliest, at the latest; None: no limit)."""
    highs = [t.high for t in terms]
    high = None if any(h is None for h in highs) else sum(h for h in highs if h is not None)
    return sum(t.low for t in terms), high
