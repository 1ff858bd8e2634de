"""Durations: in Go's notation, as kube-controller-manager's flags are, and as ages for people.

Follows Go's time.ParseDuration and Duration.String: `300ms`, `1m30s`, `-1.5h`; days do not exist.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kubectl_nodelife.kube.times import (
    HOUR_NS,
    MICROSECOND_NS,
    MILLISECOND_NS,
    MINUTE_NS,
    SECOND_NS,
)

_UNIT_NS = {
    "ns": 1,
    "us": MICROSECOND_NS,
    "µs": MICROSECOND_NS,  # U+00B5, micro sign
    "μs": MICROSECOND_NS,  # U+03BC, Greek letter mu
    "ms": MILLISECOND_NS,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
}
_TERM = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LARGEST_NS = (1 << 63) - 1


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration such as `1m30s`; what is finer than 1 ns is cut off.

    Raises ValueError for anything else, and for what Go's int64 cannot hold (about 292 years).
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, position = 0, 0
    while position < len(body):
        match = _TERM.match(body, position)
        if match is None or not (match[1] or match[2]):
            raise ValueError(_not_a_duration(text))
        unit_ns = _UNIT_NS[match[3]]
        total += int(match[1] or 0) * unit_ns
        if match[2]:
            # In floating point, as Go: 0.3333333333333333333h is 20 minutes there, not 1 ns less.
            digits = match[2][:19] if int(match[2][:19]) <= _LARGEST_NS else match[2][:18]
            total += int(int(digits) * (unit_ns / 10 ** len(digits)))
        position = match.end()
    if not body:
        raise ValueError(_not_a_duration(text))
    if total > _LARGEST_NS:
        raise ValueError(f"duration {text!r} is too long: at most 2562047h47m16s")
    return -total if text[0] == "-" else total


def format_duration(duration_ns: int) -> str:
    """The duration as Go prints it: `5m0s`, `8.5s`, `100ms`, `0s`."""
    sign, rest = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if rest < SECOND_NS:
        return sign + _below_one_second(rest)
    minutes, second_ns = divmod(rest, MINUTE_NS)
    text = _decimal(second_ns, SECOND_NS) + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _below_one_second(duration_ns: int) -> str:
    if duration_ns == 0:
        return "0s"
    for unit, unit_ns in (("ms", MILLISECOND_NS), ("µs", MICROSECOND_NS)):
        if duration_ns >= unit_ns:
            return _decimal(duration_ns, unit_ns) + unit
    return f"{duration_ns}ns"


def _decimal(amount: int, unit: int) -> str:
    """amount / unit, exact, without trailing zeros; `unit` is a power of ten."""
    whole, fraction = divmod(amount, unit)
    if not fraction:
        return str(whole)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"


def _not_a_duration(text: str) -> str:
    return f"{text!r} is not a duration such as 40s, 1m30s or 100ms"


# --- for people -----------------------------------------------------------------------------------

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400

# Below `limit` seconds: so many of `unit`, and, if there is a finer unit, the rest in that one.
# limit, unit, its letter, finer unit, its letter
_STEPS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human_duration(duration_ns: int) -> str:
    """`5d3h` for a duration in nanoseconds; `<invalid>` below minus two seconds.

    Two or three significant figures; up to two seconds of clock deviation below zero count as now.
    Follows HumanDuration (apimachinery/pkg/util/duration/duration.go).
    """
    if duration_ns <= -2 * SECOND_NS:
        return "<invalid>"
    seconds = max(0, duration_ns // SECOND_NS)
    for limit, unit, letter, finer, finer_letter in _STEPS:
        if seconds < limit:
            rest = seconds % unit // finer if finer else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{finer_letter}" if rest else "")
    return f"{seconds // _YEAR}y"
