"""CEL's values in Python: which types there are, equality, order and arithmetic, and what they
cost.

int, float, str, bytes, bool, None, list and dict stand for CEL's own types. Follows cel-spec:
integers have 64 bits and overflow is an error, numbers of different types compare but do not add,
values of different types are unequal. Keys of maps are held by `key_of`, for Python takes `True`
and `1` for the same key.

The cost limit of an evaluation is in the API server's units. It follows apiserver
pkg/apis/cel/config.go (the limits) and cel-go interpreter/runtimecost.go with apiserver
pkg/cel/library/cost.go (the cost of each step). Lists are dearer here than there: adding and
comparing them costs a tenth of a unit for each element, so that the cost bounds the time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sized
from typing import Any, Final, NamedTuple

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1


class Uint(int):
    """CEL's uint."""


class Partial(dict[str, Any]):
    """A map of which only some keys are known: a missing one is unknown rather than absent."""


class Optional(NamedTuple):
    """CEL's optional value. `values` holds it, or nothing."""

    values: tuple[Any, ...] = ()


class _BoolKey(NamedTuple):
    value: bool


def key_of(value: Any, *, made: bool = False) -> Any:
    """The value as a map holds it for a key, or is asked for it. Raises CelError for others.

    A whole double finds an integer's key, but cannot be `made` one.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _BoolKey(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer() and not made:
        return int(value)
    raise CelError("unsupported key type")


def value_of_key(key: Any) -> Any:
    """The value that `key_of` made the key of."""
    return key.value if isinstance(key, _BoolKey) else key


def field(holder: Any, key: Any) -> Any:
    """The value of a map or list under the key. Raises CelError and Unknown."""
    if isinstance(holder, Mapping):
        held = key_of(key)
        if held in holder:
            return holder[held]
        if isinstance(holder, Partial):
            raise Unknown(f"{key} was not read")
        raise CelError(f"no such key: {key}")
    if isinstance(holder, list):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if not isinstance(key, int) or isinstance(key, bool):
            raise no_overload()
        if 0 <= key < len(holder):
            return holder[key]
        raise CelError(f"index out of bounds: {key}")
    raise CelError(f"no such key: {key}")


def contains(item: Any, holder: Any, meter: Meter) -> bool:
    """The operator `in`."""
    if isinstance(holder, list):
        meter.spend(len(holder))
        return any(equal(item, other, meter) for other in holder)
    if not isinstance(holder, Mapping):
        raise no_overload()
    try:
        is_in = key_of(item) in holder
    except CelError:
        return False
    if not is_in and isinstance(holder, Partial):
        raise Unknown(f"{item} was not read")
    return is_in


def equal(left: Any, right: Any, meter: Meter) -> bool:
    """The operator `==`, for any two values."""
    if isinstance(left, list) and isinstance(right, list):
        meter.traverse(left)
        return len(left) == len(right) and all(
            equal(one, other, meter) for one, other in zip(left, right, strict=True)
        )
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        meter.traverse(left)
        if isinstance(left, Partial) or isinstance(right, Partial):
            raise Unknown("the object was read in part")
        return left.keys() == right.keys() and all(
            equal(value, right[key], meter) for key, value in left.items()
        )
    if isinstance(left, Optional) and isinstance(right, Optional):
        return equal(list(left.values), list(right.values), meter)
    if isinstance(left, str | bytes) and type(left) is type(right):
        meter.spend(min(len(left), len(right)) // 10 + 1)
        return bool(left == right)
    if is_number(left) and is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def is_number(value: Any) -> bool:
    """True if it is an int, a uint or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(sign: str, left: Any, right: Any, meter: Meter) -> bool:
    """The operators `<`, `<=`, `>` and `>=`. Raises CelError."""
    if isinstance(left, str | bytes):
        meter.spend(min(len(left), len(right) if isinstance(right, str | bytes) else 0) // 10 + 1)
    same = type(left) is type(right) and isinstance(left, str | bytes | bool)
    if not same and not (is_number(left) and is_number(right)):
        raise no_overload()
    return _ORDER[sign](left, right)


_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def add(left: Any, right: Any, meter: Meter) -> Any:
    """The operator `+`. Raises CelError and, for what grows too long, NotEvaluated."""
    if isinstance(left, str | bytes | list) and type(left) is type(right):
        meter.hold(len(left) + len(right))
        meter.traverse(left, right)
        joined: Any = left + right  # type: ignore[operator]
        return joined
    return arithmetic("+", left, right)


def arithmetic(sign: str, left: Any, right: Any) -> Any:
    """`+`, `-`, `*`, `/` and `%` of two numbers of one type. Raises CelError."""
    if type(left) is not type(right) or not is_number(left):
        raise no_overload()
    if isinstance(left, float):
        return _double_arithmetic(sign, left, right)
    result = _OF_INTEGERS[sign](left, right)
    return checked_uint(result) if isinstance(left, Uint) else checked_int(result)


def _double_arithmetic(sign: str, left: float, right: float) -> float:
    """IEEE 754: dividing by zero gives an infinity, overflow too."""
    if sign == "/" and right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    if sign == "%":
        raise no_overload()
    return _OF_DOUBLES[sign](left, right)


def _divide(left: int, right: int) -> int:
    """Towards zero."""
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    """With the sign of the dividend."""
    if right == 0:
        raise CelError("modulus by zero")
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


_ARITHMETIC: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_OF_INTEGERS: Final[dict[str, Callable[[int, int], int]]] = {
    **_ARITHMETIC,
    "/": _divide,
    "%": _modulo,
}
_OF_DOUBLES: Final[dict[str, Callable[[float, float], float]]] = {
    **_ARITHMETIC,
    "/": operator.truediv,
}


def checked_int(value: int) -> int:
    """The value, if it fits 64 bits. Raises CelError."""
    if not INT_MIN <= value <= INT_MAX:
        raise CelError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    """The value as a uint, if it fits 64 bits without a sign. Raises CelError."""
    if not 0 <= value <= UINT_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def negate(value: Any) -> Any:
    """The unary minus. Raises CelError."""
    if isinstance(value, Uint) or not is_number(value):
        raise no_overload()
    return -value if isinstance(value, float) else checked_int(-value)


class CelError(Exception):
    """The expression fails as it would in the API server: no such key, no such overload."""


class Unknown(Exception):
    """The value depends on something that was not read, or on a part of CEL not known here."""


class NotEvaluated(Unknown):
    """The expression exceeds a limit of cost, size or depth."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not evaluated, because {why}")


def no_overload() -> CelError:
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
