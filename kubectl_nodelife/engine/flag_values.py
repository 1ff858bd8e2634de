"""The values of flags, read from text as the commands of Kubernetes read them.

A value is a duration (ns), a rate in nodes a second, a fraction, a whole number, a bool, or the
text of --feature-gates. `parse_assignments` reads the arguments of `--set`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.duration import format_duration, parse_duration

_NUMBER = re.compile(r"[+-]?(\d{1,400}\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


_COUNT = re.compile(r"[+-]?\d{1,10}", re.ASCII)


_FLOAT32_MOST = 3.4028234663852886e38


_INT32_LIMIT = 1 << 31


class SettingsError(ValueError):
    """A flag or gate that is unknown, not in the profile, or malformed.

    The text says which, and what to do.
    """


def parse_value(name: str, kind: str, text: str) -> float | str:
    """The value of a flag of that kind. Raises SettingsError."""
    try:
        return _PARSERS[kind](text)
    except ValueError as error:
        raise SettingsError(f"flag {name}: malformed value {text!r}: {error}") from None


def normal_value(kind: str, text: str) -> str:
    """The value as the flag itself would print it, so that equal settings look equal."""
    if kind == "duration":
        return format_duration(parse_duration(text))
    if kind == "bool":
        return "true" if parse_bool(text) else "false"
    return text


def _duration(text: str) -> int:
    value = parse_duration(text)
    if value < 0:
        raise ValueError("a duration must not be negative")
    return value


def _rate(text: str) -> float:
    value = _number(text)
    if value is None or not 0 <= value <= _FLOAT32_MOST:
        raise ValueError("a rate is a number of nodes a second, 0 or more")
    return value


def _fraction(text: str) -> float:
    value = _number(text)
    if value is None or not 0 <= value <= 1:
        raise ValueError("give a fraction from 0 to 1")
    return value


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _count(text: str) -> int:
    if _COUNT.fullmatch(text) is None or not -_INT32_LIMIT <= int(text) < _INT32_LIMIT:
        raise ValueError("give a whole number of at most 32 bits")
    return int(text)


def parse_bool(text: str) -> bool:
    """As Go's strconv.ParseBool. Raises ValueError."""
    lowered = text.lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise ValueError("give true or false")


_PARSERS: Final[dict[str, Callable[[str], float | str]]] = {
    "duration": _duration,
    "rate": _rate,
    "fraction": _fraction,
    "count": _count,
    "bool": parse_bool,
    "gates": str,
}


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The flags with their values, a leading `--` left out. Raises BadInput."""
    flags: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise BadInput(
                f"{assignment!r} is not FLAG=VALUE",
                on="--set",
                remedy="write for example --set node-monitor-grace-period=40s",
            )
        flags[name.removeprefix("--")] = value
    return flags
