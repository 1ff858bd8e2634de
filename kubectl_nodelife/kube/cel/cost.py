"""The cost limit of an evaluation, in the API server's units, how much memory a value may take, and
what comes instead of a value.

Follows apiserver pkg/apis/cel/config.go (the limits) and cel-go interpreter/runtimecost.go with
apiserver pkg/cel/library/cost.go (the cost of each step). Lists are dearer here than there: adding
and comparing them costs a tenth of a unit for each element, so that the cost bounds the time.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final


class CelError(Exception):
    """The expression fails as it would in the API server: no such key, no such overload."""


class Unknown(Exception):
    """The value depends on something that was not read, or on a part of CEL not known here."""


class NotEvaluated(Unknown):
    """The expression exceeds a limit of cost, size or depth."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not evaluated, because {why}")


def no_overload(*_: object) -> CelError:
    """The error of an operator or function that does not exist for its operands' types."""
    return CelError("no such overload")


PER_CALL_LIMIT: Final = 1_000_000
"""PerCallLimit: what one expression may cost."""

POLICY_BUDGET: Final = 10_000_000
"""RuntimeCELCostBudget: what the validations of one policy may cost for one request."""

MATCH_CONDITIONS_BUDGET: Final = 2_500_000
"""RuntimeCELCostBudgetMatchConditions: the same for the match conditions."""

MAX_SIZE: Final = 1 << 20
"""The most characters a string, and elements a list, may have."""

SELECT: Final = 1
CREATE_LIST: Final = 10
CREATE_MAP: Final = 30


class Budget:
    """Units that are left for several expressions, perhaps within a wider budget."""

    def __init__(self, limit: int, within: Budget | None = None) -> None:
        self._left = limit
        self._within = within

    @property
    def left(self) -> int:
        """The units that may still be spent."""
        return self._left if self._within is None else min(self._left, self._within.left)

    def spend(self, cost: int) -> None:
        """Take the cost of an expression out of this budget and those around it."""
        self._left -= cost
        if self._within is not None:
            self._within.spend(cost)


class Meter:
    """Adds up what one expression costs. `spend` raises NotEvaluated beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.spent = 0

    def spend(self, cost: int = 1) -> None:
        """Add a step's cost, before the step is taken. Raises NotEvaluated."""
        self.spent += cost
        if self.spent > self._limit:
            raise NotEvaluated(f"it costs more than {self._limit:,} units")

    def traverse(self, *values: object, factor: float = 0.1) -> None:
        """Add the cost of walking over the values. Raises NotEvaluated."""
        self.spend(traversal(sum(map(size, values)), factor))

    def hold(self, length: int) -> None:
        """Refuse a value that is too long, before it is made. Raises NotEvaluated."""
        if length > MAX_SIZE:
            raise NotEvaluated(f"it makes a value of more than {MAX_SIZE:,} elements")


def size(value: object) -> int:
    """actualSize: the length of what has one, else 1."""
    return len(value) if isinstance(value, Sized) else 1


def traversal(length: float, factor: float = 0.1) -> int:
    """StringTraversalCostFactor times the length, rounded up."""
    return -int(-length * factor // 1)
