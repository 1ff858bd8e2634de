"""The parts of an explanation: questions with sentences that have the numbers filled in.

Where times add up, a question has terms whose sum is the answer.
"""

from __future__ import annotations

import msgspec


class DelayTerm(msgspec.Struct, frozen=True):
    """One summand:

    from `low` to `high` seconds (None: no limit), and where the number comes from.
    """

    what: str
    low: float
    high: float | None
    origin: str


class ExplainedQuestion(msgspec.Struct, frozen=True):
    """A question with its answer."""

    question: str
    sentences: list[str]
    terms: list[DelayTerm] = []


def total(terms: list[DelayTerm]) -> tuple[float, float | None]:
    """The sum of the terms: (at the earliest, at the latest; None: no limit)."""
    highs = [t.high for t in terms]
    high = None if any(h is None for h in highs) else sum(h for h in highs if h is not None)
    return sum(t.low for t in terms), high
