"""The parts of an explanation: questions with sentences that have the numbers filled in.

Where times add up, a question has terms whose sum is the answer.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.outlook.node import LOST_NODE_TAINTS, NodeOutlook

_MOST_WORDS: Final = 200


class DelayTerm(msgspec.Struct, frozen=True):
    """One summand:

    from `low` to `high` seconds, and where the number comes from. `high` None: no limit; both None:
    never, as things are.
    """

    what: str
    low: float | None
    high: float | None
    origin: str


class ExplainedQuestion(msgspec.Struct, frozen=True):
    """A question with its answer. `answer`: in one sentence, for the head of the page; ""
    where its terms or another question say more. `goes_before`: another's answer follows there.
    `unless`: what would keep what its terms add up to from coming."""

    question: str
    sentences: list[str]
    terms: list[DelayTerm] = []
    answer: str = ""
    goes_before: bool = False
    unless: str = ""


def quoted(message: str) -> str:
    """The cluster's words behind a colon, on one line and bounded; "" for none."""
    text = " ".join(message.split())
    return f": {text[:_MOST_WORDS]}{'...' * (len(text) > _MOST_WORDS)}" if text else ""


def unless_of(of_node: NodeOutlook) -> str:
    """What cancels the deletions that wait on that node: the taints that cause them go."""
    taints = no_execute_taints(of_node.node.spec.taints)
    if of_node.ready != "True" and {taint.key for taint in taints} <= {*LOST_NODE_TAINTS}:
        return f"{of_node.node.name} is Ready again before"
    what = "taint is" if len(taints) == 1 else "taints are"
    return f"the NoExecute {what} taken off {of_node.node.name} before"


def total(terms: list[DelayTerm]) -> tuple[float | None, float | None]:
    """The sum of the terms: (at the earliest, at the latest); None as in a term."""
    return _sum([t.low for t in terms]), _sum([t.high for t in terms])


def _sum(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None
