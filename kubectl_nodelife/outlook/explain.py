"""The answer of `explain`: what happens to a node or a pod, when, why, and why not yet, in
sentences.

An explanation is a list of sections, each a question as users ask it with sentences that have the
numbers put in; where times add up, a section has terms whose sum is the answer.
"""

from __future__ import annotations

from typing import Any

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


class Explanation(msgspec.Struct, frozen=True):
    """All that is said of one object."""

    kind: str
    namespace: str
    name: str
    source: dict[str, Any]
    profile: str
    moment: dict[str, str]
    sections: list[Section]
    warnings: list[str]

    def document(self) -> dict[str, Any]:
        """The explanation as a JSON document."""
        subject = {"kind": self.kind, "name": self.name}
        if self.namespace:
            subject["namespace"] = self.namespace
        return {
            "apiVersion": "nodelife.dev/v1alpha1",
            "kind": "Explanation",
            "object": subject,
            "source": self.source,
            "profile": self.profile,
            "moment": self.moment,
            "answers": [_section(s) for s in self.sections],
            "warnings": self.warnings,
        }


def total(terms: list[Term]) -> tuple[float, float | None]:
    """The sum of the terms: (at the earliest, at the latest; None: no limit)."""
    highs = [t.high for t in terms]
    high = None if any(h is None for h in highs) else sum(h for h in highs if h is not None)
    return sum(t.low for t in terms), high


def _section(section: Section) -> dict[str, Any]:
    document: dict[str, Any] = {"question": section.question, "sentences": section.sentences}
    if section.terms:
        low, high = total(section.terms)
        document["terms"] = [
            {
                "what": t.what,
                "lowSeconds": round(t.low, 3),
                "highSeconds": None if t.high is None else round(t.high, 3),
                "origin": t.origin,
            }
            for t in section.terms
        ]
        document["total"] = {
            "lowSeconds": round(low, 3),
            "highSeconds": None if high is None else round(high, 3),
        }
    return document
