"""Durations for people, as kubectl shows them: `42s`, `5m30s`, `5d3h`.

`human_duration` follows HumanDuration (apimachinery/pkg/util/duration/duration.go): two or three
significant figures, and up to two seconds of clock deviation below zero count as now.
"""

from __future__ import annotations

SECOND_NS = 1_000_000_000

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
    """`5d3h` for a duration in nanoseconds; `<invalid>` below minus two seconds."""
    if duration_ns <= -2 * SECOND_NS:
        return "<invalid>"
    seconds = max(0, duration_ns // SECOND_NS)
    for limit, unit, letter, finer, finer_letter in _STEPS:
        if seconds < limit:
            rest = seconds % unit // finer if finer else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{finer_letter}" if rest else "")
    return f"{seconds // _YEAR}y"


def age(instant_ns: int | None, now_ns: int) -> str:
    """How long ago `instant_ns` was; `<unknown>` where there is none. As kubectl's AGE column."""
    return "<unknown>" if instant_ns is None else human_duration(now_ns - instant_ns)


def due_in(duration_ns: int) -> str:
    """`in 42s`, or `now`. Rounded up to a whole second: it is never said to be due before it is."""
    seconds = -(-duration_ns // SECOND_NS)
    return f"in {human_duration(seconds * SECOND_NS)}" if seconds > 0 else "now"
