"""What comes instead of an expression's value."""

from __future__ import annotations


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
