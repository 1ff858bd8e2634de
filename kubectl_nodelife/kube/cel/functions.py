"""CEL's functions and methods over values that are known, each with its cost.

Follows cel-spec's standard definitions, cel-go ext/strings.go (version 2, which the API server
loads) and apiserver pkg/cel/library/regex.go. Regular expressions are RE2's, so that they take
time in proportion to the text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubectl_nodelife.kube.cel.values import (
    INT_MIN,
    UINT_MAX,
    CelError,
    Meter,
    Uint,
    checked_int,
    checked_uint,
    is_number,
    no_overload,
    size,
    traversal,
)

Function = Callable[..., Any]
"""Takes the meter, then the arguments; raises CelError, NotEvaluated and TypeError."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,6})?"
)
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def call(function: Function, meter: Meter, arguments: list[Any]) -> Any:
    """The function's value. Raises CelError, also for a wrong number of arguments."""
    try:
        return function(meter, *arguments)
    except (TypeError, UnicodeError) as error:
        raise no_overload() from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise no_overload()
    return value


def _int_of(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool | Uint):
        raise no_overload()
    return value


# --- conversions ---------------------------------------------------------------------------------


def _size(meter: Meter, value: Any) -> int:
    meter.spend()
    if not isinstance(value, str | bytes | list | Mapping):
        raise no_overload()
    return len(value)


def _to_int(meter: Meter, value: Any) -> int:
    meter.spend()
    return checked_int(_whole(value))


def _to_uint(meter: Meter, value: Any) -> Uint:
    meter.spend()
    return checked_uint(_whole(value))


def _whole(value: Any) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise CelError("type conversion error")
        return int(value)
    if not is_number(value):
        raise no_overload()
    if isinstance(value, float) and not INT_MIN < value < UINT_MAX:
        raise CelError("integer overflow")
    return int(value)


def _to_double(meter: Meter, value: Any) -> float:
    meter.spend()
    if is_number(value):
        return float(value)
    if _text(value).lstrip("+-").lower() in ("inf", "infinity", "nan"):
        return float(value)
    if _DOUBLE.fullmatch(value) is None:
        raise CelError("type conversion error")
    return float(value)


def _to_bool(meter: Meter, value: Any) -> bool:
    meter.spend()
    if isinstance(value, bool):
        return value
    if _text(value) not in _TRUE | _FALSE:
        raise CelError("type conversion error")
    return value in _TRUE


def _to_string(meter: Meter, value: Any) -> str:
    meter.traverse(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if not isinstance(value, str | int):
        raise no_overload()
    return str(value)


def _double_text(value: float) -> str:
    """Follows strconv.FormatFloat with the format 'g' and the shortest precision."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    exponent = math.floor(math.log10(abs(value))) if value else 0
    if -4 <= exponent < 21:
        return repr(value).removesuffix(".0") if "e" not in repr(value) else f"{value:.0f}"
    return repr(value)


def _to_bytes(meter: Meter, value: Any) -> bytes:
    meter.traverse(value)
    return value if isinstance(value, bytes) else _text(value).encode()


# --- strings -------------------------------------------------------------------------------------


def _of_text(method: Callable[..., Any]) -> Function:
    """A method of texts that costs going over the first of them."""

    def function(meter: Meter, text: str, *others: str) -> Any:
        meter.traverse(text)
        return method(_text(text), *map(_text, others))

    return function


def _contains(meter: Meter, text: str, part: str) -> bool:
    meter.spend(traversal(size(text)) * traversal(size(part)))
    return _text(part) in _text(text)


@functools.lru_cache(maxsize=256)
def _expression(pattern: str) -> Any:
    """The compiled pattern. Raises CelError."""
    import re2  # 6 ms, and only policies that match names need it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise CelError(f"the regular expression cannot be read: {pattern[:80]!r}") from error


def _search(meter: Meter, text: str, pattern: str) -> Any:
    meter.spend(traversal(1 + size(text)) * traversal(size(pattern), 0.25))
    return _expression(_text(pattern)).search(_text(text))


def _matches(meter: Meter, text: str, pattern: str) -> bool:
    return _search(meter, text, pattern) is not None


def _find(meter: Meter, text: str, pattern: str) -> str:
    match = _search(meter, text, pattern)
    return str(match.group()) if match is not None else ""


def _split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    meter.traverse(text, factor=0.2)
    if _int_of(limit) == 0:
        return []
    if limit == 1:
        return [_text(text)]
    if _text(separator):
        return _text(text).split(separator, limit - 1 if limit > 0 else -1)
    pieces = list(_text(text))
    if 0 < limit < len(pieces):
        pieces[limit - 1 :] = [text[limit - 1 :]]
    return pieces


def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    meter.traverse(text, factor=0.2)
    count = _text(text).count(_text(old))
    if 0 <= _int_of(limit) < count:
        count = limit
    length = len(text) + count * (len(_text(new)) - len(old))
    meter.hold(length)
    meter.spend(length // 10)
    return text.replace(old, new, limit if limit >= 0 else -1)


def _index_of(meter: Meter, text: str, part: str, start: int = 0) -> int:
    meter.traverse(text)
    if not 0 <= _int_of(start) <= len(_text(text)):
        raise CelError(f"index out of range: {start}")
    return text.find(_text(part), start)


def _last_index_of(meter: Meter, text: str, part: str, start: int | None = None) -> int:
    meter.traverse(text)
    if start is None:
        return _text(text).rfind(_text(part))
    if not 0 <= _int_of(start) <= len(_text(text)):
        raise CelError(f"index out of range: {start}")
    return text.rfind(_text(part), 0, start + len(part))


def _substring(meter: Meter, text: str, begin: int, end: int | None = None) -> str:
    meter.traverse(text)
    end = len(_text(text)) if end is None else _int_of(end)
    if not 0 <= _int_of(begin) <= end <= len(text):
        raise CelError(f"index out of range: {begin}, {end}")
    return text[begin:end]


def _char_at(meter: Meter, text: str, index: int) -> str:
    meter.spend()
    if not 0 <= _int_of(index) <= len(_text(text)):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _join(meter: Meter, parts: list[str], separator: str = "") -> str:
    if not isinstance(parts, list):
        raise no_overload()
    meter.spend(len(parts))
    length = sum(len(_text(part)) for part in parts) + len(_text(separator)) * len(parts)
    meter.hold(length)
    meter.spend(traversal(length, 0.2))
    return separator.join(parts)


FUNCTIONS: Final[dict[str, Function]] = {
    "size": _size,
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "bool": _to_bool,
    "string": _to_string,
    "bytes": _to_bytes,
    "dyn": lambda meter, value: value,
    "matches": _matches,
}
METHODS: Final[dict[str, Function]] = {
    "size": _size,
    "startsWith": _of_text(lambda text, part: text.startswith(part)),
    "endsWith": _of_text(lambda text, part: text.endswith(part)),
    "contains": _contains,
    "matches": _matches,
    "find": _find,
    "lowerAscii": _of_text(lambda text: text.translate(_LOWER)),
    "upperAscii": _of_text(lambda text: text.translate(_UPPER)),
    "trim": _of_text(lambda text: text.strip()),
    "split": _split,
    "replace": _replace,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "substring": _substring,
    "charAt": _char_at,
    "join": _join,
}
