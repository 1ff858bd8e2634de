"""A small evaluator of CEL, enough for the policies that people put before evictions.

Follows the CEL language definition (github.com/google/cel-spec) for: literals, lists, maps, field
selection (optional too), indexing, the operators with their error-absorbing `&&` and `||`, the
ternary, the macros has, all, exists, exists_one, map and filter, and the string and list functions
that Kubernetes adds most often. Everything else, and every value that was not read, raises
`Unknown`: the caller then knows that it does not know. An error of the expression itself, such as a
missing key, raises `CelError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubectl_nodelife.kube.cel.parser import Node, Parser, Unknown

__all__ = ["CelError", "Partial", "Unknown", "evaluate"]


class CelError(Exception):
    """The expression fails: no such key, no such overload."""


class Partial(dict[str, Any]):
    """A map of which only some keys are known: a missing one is unknown rather than absent."""


_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
Scope = Mapping[str, Any]


def evaluate(expression: str, values: Scope, variables: Mapping[str, str] | None = None) -> Any:
    """The value of the expression. `variables`: named expressions, reached as `variables.NAME`.

    Raises CelError and Unknown.
    """
    return _Evaluation(values, variables or {}).value(Parser(expression).parse())


class _Absent:
    """The optional value that is not there."""


_ABSENT: Final = _Absent()


class _Evaluation:
    """Walks an expression's tuples."""

    def __init__(self, scope: Scope, variables: Mapping[str, str]) -> None:
        self._scope = scope
        self._variables = variables

    def value(self, node: Node) -> Any:
        """The value of a node. Raises CelError and Unknown."""
        operator = node[0]
        if operator in ("&&", "||"):
            return self._both(node, deciding=operator == "||")
        walk: Callable[..., Any] | None = getattr(self, f"_{operator}", None)
        if walk is not None:
            return walk(*node[1:])
        return _binary(operator, self.value(node[1]), self.value(node[2]))

    def _both(self, node: Node, *, deciding: bool) -> bool:
        """`&&` and `||`: one side that decides makes up for whatever the other side is."""
        trouble: CelError | Unknown | None = None
        for side in node[1:]:
            try:
                found = self.value(side)
            except (CelError, Unknown) as raised:
                trouble = trouble or raised
                continue
            if not isinstance(found, bool):
                trouble = trouble or CelError("no such overload")
            elif found is deciding:
                return deciding
        if trouble is not None:
            raise trouble
        return not deciding

    def _literal(self, value: Any) -> Any:
        return value

    def _list(self, items: list[Node]) -> list[Any]:
        return [self.value(item) for item in items]

    def _map(self, entries: list[tuple[Node, Node]]) -> dict[Any, Any]:
        return {self.value(key): self.value(value) for key, value in entries}

    def _choice(self, condition: Node, then: Node, otherwise: Node) -> Any:
        chosen = self.value(condition)
        if not isinstance(chosen, bool):
            raise CelError("no such overload")
        return self.value(then if chosen else otherwise)

    def _not(self, node: Node) -> bool:
        value = self.value(node)
        if not isinstance(value, bool):
            raise CelError("no such overload")
        return not value

    def _negative(self, node: Node) -> Any:
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CelError("no such overload")
        return -value

    def _name(self, name: str) -> Any:
        if name not in self._scope:
            raise Unknown(f"{name} is not known here")
        return self._scope[name]

    def _select(self, node: Node, name: str) -> Any:
        if node == ("name", "variables"):
            if name not in self._variables:
                raise CelError(f"no such key: {name}")
            return evaluate(self._variables[name], self._scope, self._variables)
        holder = self.value(node)
        return _ABSENT if holder is _ABSENT else _field(holder, name)

    def _index(self, node: Node, key: Node) -> Any:
        return _field(self.value(node), self.value(key))

    def _optional(self, node: Node, key: Node) -> Any:
        holder = self.value(node)
        if holder is _ABSENT or holder is None:
            return _ABSENT
        try:
            return _field(holder, self.value(key))
        except CelError:
            return _ABSENT

    def _call(self, name: str, arguments: list[Node]) -> Any:
        if name == "has" and len(arguments) == 1 and arguments[0][0] == "select":
            return self._has(arguments[0])
        values = [self.value(argument) for argument in arguments]
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Unknown(f"function {name} is not known here")
        return _apply(function, values)

    def _has(self, selection: Node) -> bool:
        holder = self.value(selection[1])
        try:
            return _field(holder, selection[2]) is not None
        except CelError:
            if not isinstance(holder, Mapping):
                raise
            return False

    def _method(self, name: str, target: Node, arguments: list[Node]) -> Any:
        if name in _MACROS and arguments and arguments[0][0] == "name":
            return self._macro(name, self.value(target), arguments)
        value = self.value(target)
        if name == "hasValue":
            return value is not _ABSENT
        if name == "orValue":
            return self.value(arguments[0]) if value is _ABSENT else value
        method = _METHODS.get(name)
        if method is None:
            raise Unknown(f"method {name} is not known here")
        return _apply(method, [value, *(self.value(argument) for argument in arguments)])

    def _macro(self, name: str, items: Any, arguments: list[Node]) -> Any:
        variable = arguments[0][1]
        if not isinstance(items, list | Mapping):
            raise CelError("no such overload")
        inner = [_Evaluation({**self._scope, variable: i}, self._variables) for i in items]
        if name == "map":
            return [evaluation.value(arguments[-1]) for evaluation in inner]
        if name == "filter":
            kept = zip(items, inner, strict=True)
            return [item for item, evaluation in kept if evaluation.value(arguments[1]) is True]
        if name == "exists_one":
            return sum(evaluation.value(arguments[1]) is True for evaluation in inner) == 1
        found = [("literal", evaluation.value(arguments[1])) for evaluation in inner]
        decided: bool = self._both(("", *found), deciding=name == "exists")
        return decided


def _field(holder: Any, key: Any) -> Any:
    if isinstance(holder, Mapping):
        if key in holder:
            return holder[key]
        if isinstance(holder, Partial):
            raise Unknown(f"{key} was not read")
        raise CelError(f"no such key: {key}")
    if isinstance(holder, list) and isinstance(key, int) and not isinstance(key, bool):
        if 0 <= key < len(holder):
            return holder[key]
        raise CelError(f"index out of bounds: {key}")
    raise CelError(f"no such key: {key}")


def _binary(operator: str, left: Any, right: Any) -> Any:
    if operator == "==":
        return left == right and isinstance(left, bool) == isinstance(right, bool)
    if operator == "!=":
        return not _binary("==", left, right)
    if operator == "in":
        if not isinstance(right, list | Mapping):
            raise CelError("no such overload")
        return left in right
    try:
        return _ARITHMETIC[operator](left, right)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise CelError("no such overload") from error


def _divide(left: Any, right: Any) -> Any:
    """Integers divide towards zero."""
    if isinstance(left, int) and isinstance(right, int):
        return int(left / right) if abs(left) < 1 << 52 else left // right
    return left / right


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
}


def _apply(function: Callable[..., Any], values: list[Any]) -> Any:
    if any(value is _ABSENT for value in values):
        raise CelError("no such overload")
    try:
        return function(*values)
    except (TypeError, ValueError, AttributeError, IndexError, re.error) as error:
        raise CelError("no such overload") from error


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "size": len,
    "string": _text,
    "int": int,
    "double": float,
    "dyn": lambda value: value,
}
_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "size": len,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
    "trim": str.strip,
    "split": str.split,
    "replace": str.replace,
    "indexOf": str.find,
    "join": lambda parts, by="": by.join(parts),
    "substring": lambda text, begin, end=None: text[begin:end],
    "value": lambda value: value,
}
