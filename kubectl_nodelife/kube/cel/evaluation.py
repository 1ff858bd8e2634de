"""Evaluates CEL expressions of admission policies over objects that may be known in part.

Follows the CEL language definition (github.com/google/cel-spec) for literals, lists, maps, field
selection, optional values, indexing, the operators with their error-absorbing `&&` and `||`, the
ternary, and the macros has, all, exists, exists_one, map and filter. Left out, and therefore
Unknown: times, messages, types as values, macros of two variables, and Kubernetes' own libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kubectl_nodelife.kube.cel import functions
from kubectl_nodelife.kube.cel.parser import Node, parse
from kubectl_nodelife.kube.cel.values import (
    CREATE_LIST,
    CREATE_MAP,
    PER_CALL_LIMIT,
    SELECT,
    Budget,
    CelError,
    Meter,
    NotEvaluated,
    Optional,
    Unknown,
    add,
    arithmetic,
    compare,
    contains,
    equal,
    field,
    key_of,
    negate,
    no_overload,
    value_of_key,
)

MAX_DEPTH: Final = 100
"""Constructs within one another; each takes up to five frames of the interpreter's thousand."""

_MACROS: Final = {"all": (2,), "exists": (2,), "exists_one": (2,), "map": (2, 3), "filter": (2,)}
_MISSING: Final = object()

Scope = Mapping[str, Any]


def evaluate(
    expression: str,
    values: Scope,
    variables: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Any:
    """The value of the expression.

    `values` are the variables by name; `variables` are named expressions, reached as
    `variables.NAME`. The expression may cost PER_CALL_LIMIT, and what is left of the budget.
    Raises CelError where the API server's evaluation fails, Unknown where the value depends on
    what is not known, NotEvaluated (an Unknown) beyond the limits of cost, size and depth.
    """
    meter = Meter(PER_CALL_LIMIT if budget is None else min(PER_CALL_LIMIT, budget.left))
    try:
        return _Evaluation(values, variables or {}, meter).value(parse(expression))
    except RecursionError as error:
        raise NotEvaluated("it is nested too deeply") from error
    finally:
        if budget is not None:
            budget.spend(meter.spent)


class _Evaluation:
    """Walks an expression's tuples: a method for each construct."""

    def __init__(self, scope: Scope, variables: Mapping[str, str], meter: Meter) -> None:
        self._outermost = scope
        self._scope = scope
        self._variables = variables
        self._known_variables: dict[str, Any] = {}
        self._meter = meter
        self._depth = 0

    def value(self, node: Node) -> Any:
        """The value of a node. Raises CelError and Unknown."""
        construct = node[0]
        if construct == "literal":
            return node[1]
        if self._depth >= MAX_DEPTH:
            raise NotEvaluated("it is nested too deeply")
        self._depth += 1
        try:
            return _CONSTRUCTS[construct](self, *node[1:])
        finally:
            self._depth -= 1

    def _or(self, *sides: Node) -> bool:
        return self._logic(map(self._value_or_error, sides), deciding=True)

    def _and(self, *sides: Node) -> bool:
        return self._logic(map(self._value_or_error, sides), deciding=False)

    def _logic(self, sides: Iterator[Any], *, deciding: bool) -> bool:
        """One side that decides makes up for whatever the other sides are.

        A value that is not known may still decide, so it counts more than an error.
        """
        trouble: CelError | Unknown | None = None
        for truth in sides:
            if truth is deciding:
                return bool(truth)
            if not isinstance(truth, bool):
                raised = truth if isinstance(truth, CelError | Unknown) else no_overload()
                unknown = isinstance(raised, Unknown) and not isinstance(trouble, Unknown)
                trouble = raised if trouble is None or unknown else trouble
        if trouble is not None:
            raise trouble
        return not deciding

    def _value_or_error(self, node: Node) -> Any:
        try:
            return self.value(node)
        except NotEvaluated:
            raise
        except (CelError, Unknown) as raised:
            return raised

    def _truth(self, node: Node) -> bool:
        truth = self.value(node)
        if not isinstance(truth, bool):
            raise no_overload()
        return truth

    def _list(self, items: list[Node]) -> list[Any]:
        self._meter.spend(CREATE_LIST)
        elements: list[Any] = []
        for item in items:
            if item[0] == "maybe":
                elements += self._optional_values(item[1])
            else:
                elements.append(self.value(item))
        return elements

    def _map(self, entries: list[tuple[Node, Node, bool]]) -> dict[Any, Any]:
        self._meter.spend(CREATE_MAP)
        items: dict[Any, Any] = {}
        for key_node, node, maybe in entries:
            key = key_of(self.value(key_node), made=True)
            values = self._optional_values(node) if maybe else (self.value(node),)
            if key in items:
                raise CelError("a key comes twice")
            items.update((key, value) for value in values)
        return items

    def _optional_values(self, node: Node) -> tuple[Any, ...]:
        value = self.value(node)
        if not isinstance(value, Optional):
            raise no_overload()
        return value.values

    def _choice(self, condition: Node, then: Node, otherwise: Node) -> Any:
        return self.value(then if self._truth(condition) else otherwise)

    def _not(self, node: Node) -> bool:
        self._meter.spend()
        return not self._truth(node)

    def _negative(self, node: Node) -> Any:
        self._meter.spend()
        return negate(self.value(node))

    def _chain(self, first: Node, steps: list[tuple[str, Node]]) -> Any:
        """Operators of one level, from the left."""
        left = self.value(first)
        for operator, node in steps:
            right = self.value(node)
            self._meter.spend()
            if operator == "in":
                left = contains(left, right, self._meter)
            elif operator in ("==", "!="):
                left = equal(left, right, self._meter) is (operator == "==")
            elif operator[0] in "<>":
                left = compare(operator, left, right, self._meter)
            elif operator == "+":
                left = add(left, right, self._meter)
            else:
                left = arithmetic(operator, left, right)
        return left

    # --- names and fields ------------------------------------------------------------------------

    def _name(self, name: str) -> Any:
        self._meter.spend(SELECT)
        if name not in self._scope:
            raise Unknown(f"{name} is not known here")
        return self._scope[name]

    def _select(self, node: Node, name: str) -> Any:
        self._meter.spend(SELECT)
        if node == ("name", "variables") and "variables" not in self._scope:
            return self._variable(name)
        holder = self.value(node)
        if isinstance(holder, Optional):
            return self._within(holder, name)
        if not isinstance(holder, Mapping):
            raise no_overload()
        return field(holder, name)

    def _variable(self, name: str) -> Any:
        """A named expression's value, which is worked out once."""
        if name not in self._variables:
            raise CelError(f"no such key: {name}")
        if name not in self._known_variables:
            self._known_variables[name] = _MISSING
            scope, self._scope = self._scope, self._outermost
            try:
                self._known_variables[name] = self.value(parse(self._variables[name]))
            finally:
                self._scope = scope
                if self._known_variables[name] is _MISSING:
                    del self._known_variables[name]
        if self._known_variables[name] is _MISSING:
            raise Unknown(f"the variable {name} refers to itself")
        return self._known_variables[name]

    def _index(self, node: Node, key: Node) -> Any:
        self._meter.spend(SELECT)
        holder = self.value(node)
        index = self.value(key)
        if isinstance(holder, Optional):
            return self._within(holder, index)
        return field(holder, index)

    def _optional(self, node: Node, key: Node) -> Optional:
        self._meter.spend(SELECT)
        holder = self.value(node)
        index = self.value(key)
        return self._within(holder if isinstance(holder, Optional) else Optional((holder,)), index)

    def _within(self, holder: Optional, key: Any) -> Optional:
        """The optional value's member under the key, or nothing."""
        if not holder.values:
            return holder
        if not isinstance(holder.values[0], Mapping | list):
            raise no_overload()
        try:
            return Optional((field(holder.values[0], key),))
        except CelError:
            return Optional()

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, name: str, arguments: list[Node]) -> Any:
        if name == "has" and len(arguments) == 1 and arguments[0][0] == "select":
            return self._has(arguments[0])
        function = functions.FUNCTIONS.get(name)
        if function is None:
            raise Unknown(f"function {name} is not known here")
        values = [self.value(argument) for argument in arguments]
        return functions.call(function, self._meter, values)

    def _has(self, selection: Node) -> bool:
        holder = self.value(selection[1])
        if isinstance(holder, Optional):
            return bool(self._within(holder, selection[2]).values)
        if not isinstance(holder, Mapping):
            raise no_overload()
        return contains(selection[2], holder, self._meter)

    def _method(self, name: str, target: Node, arguments: list[Node]) -> Any:
        if name in _MACROS and arguments and arguments[0][0] == "name":
            if len(arguments) not in _MACROS[name]:
                raise Unknown(f"{name} with {len(arguments)} arguments is not known here")
            return self._macro(name, self.value(target), arguments)
        if target == ("name", "optional") and "optional" not in self._scope:
            return self._make_optional(name, arguments)
        value = self.value(target)
        if isinstance(value, Optional):
            return self._of_optional(name, value, arguments)
        method = functions.METHODS.get(name)
        if method is None:
            raise Unknown(f"method {name} is not known here")
        values = [self.value(argument) for argument in arguments]
        return functions.call(method, self._meter, [value, *values])

    def _make_optional(self, name: str, arguments: list[Node]) -> Optional:
        self._meter.spend()
        if name == "none" and not arguments:
            return Optional()
        if name == "of" and len(arguments) == 1:
            return Optional((self.value(arguments[0]),))
        raise Unknown(f"optional.{name} is not known here")

    def _of_optional(self, name: str, value: Optional, arguments: list[Node]) -> Any:
        self._meter.spend()
        if name == "hasValue" and not arguments:
            return bool(value.values)
        if name == "value" and not arguments:
            if not value.values:
                raise CelError("optional.none() dereference")
            return value.values[0]
        if name == "orValue" and len(arguments) == 1:
            return value.values[0] if value.values else self.value(arguments[0])
        if name == "or" and len(arguments) == 1:
            return value if value.values else Optional(self._optional_values(arguments[0]))
        raise Unknown(f"method {name} of an optional value is not known here")

    # --- macros ----------------------------------------------------------------------------------

    def _macro(self, name: str, items: Any, arguments: list[Node]) -> Any:
        if not isinstance(items, list | Mapping):
            raise no_overload()
        outer = self._scope
        try:
            return self._rounds(name, self._each(arguments[0][1], items), arguments)
        finally:
            self._scope = outer

    def _rounds(self, name: str, items: Iterator[Any], arguments: list[Node]) -> Any:
        if name in ("all", "exists"):
            truths = (self._value_or_error(arguments[1]) for _ in items)
            return self._logic(truths, deciding=name == "exists")
        if name == "map":
            matching = (item for item in items if len(arguments) == 2 or self._truth(arguments[1]))
            return [self._appended(arguments[-1]) for _ in matching]
        chosen = [item for item in items if self._truth(arguments[1])]
        return chosen if name == "filter" else len(chosen) == 1

    def _appended(self, node: Node) -> Any:
        self._meter.spend(CREATE_LIST)
        return self.value(node)

    def _each(self, variable: str, items: Any) -> Iterator[Any]:
        """The items, or a map's keys, each bound to the variable while it is looked at."""
        outer = self._scope
        for key in items:
            self._meter.spend(3)
            item = value_of_key(key) if isinstance(items, Mapping) else key
            self._scope = {**outer, variable: item}
            yield item


_CONSTRUCTS: Final[dict[str, Callable[..., Any]]] = {
    "||": _Evaluation._or,
    "&&": _Evaluation._and,
    "list": _Evaluation._list,
    "map": _Evaluation._map,
    "choice": _Evaluation._choice,
    "not": _Evaluation._not,
    "negative": _Evaluation._negative,
    "chain": _Evaluation._chain,
    "name": _Evaluation._name,
    "select": _Evaluation._select,
    "index": _Evaluation._index,
    "optional": _Evaluation._optional,
    "call": _Evaluation._call,
    "method": _Evaluation._method,
}
