"""Instants as the API writes them, RFC 3339 text in, nanoseconds since the Unix epoch inside; and
durations.

Follows `metav1.Time` and `metav1.MicroTime` (apimachinery/pkg/apis/meta/v1/time.go, micro_time.go).
Parsing takes any number of fractional digits and any offset, as Go's time.RFC3339 does; what is
finer than a nanosecond is cut off. Writing is always UTC: whole seconds for Time, six digits for
MicroTime. Left out on purpose: Go's zero time. The API prints an unset time as null, and so None it
is here.

Durations are in Go's notation, as kube-controller-manager's flags are; they follow Go's
time.ParseDuration and Duration.String: `300ms`, `1m30s`, `-1.5h`; days do not exist. For people
ages and what is due are as kubectl shows them (`42s`, `5m30s`, `5d3h`), and times in a plan alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast, overload

from kubectl_nodelife.kube.meta import MicroTime, Time

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400
_ONE_SECOND = timedelta(seconds=1)
_FIRST_SECOND = (datetime.min - _EPOCH) // _ONE_SECOND
_LAST_SECOND = (datetime.max - _EPOCH) // _ONE_SECOND
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


@lru_cache(maxsize=16)
def whole_seconds(instant_ns: int) -> Time:
    """The instant as `metav1.Time` keeps it. Much happens at one instant, so the last are kept."""
    return Time(instant_ns // SECOND_NS * SECOND_NS)


@lru_cache(maxsize=1 << 14)
def parse_time(text: str) -> Time:
    """The instant that RFC 3339 `text` names.

    Raises ValueError for any other text, with the text in it.
    """
    return _parse_time(text)


def _parse_time(text: str) -> Time:
    # A dump has hundreds of thousands of instants, nearly all of this one form. The characters
    # between the digits keep out the other forms that fromisoformat takes.
    if len(text) == 20 and text[4::3] == "--T::Z":
        try:
            since_epoch = datetime.fromisoformat(text[:19]) - _EPOCH
        except ValueError:
            return _parse_any_time(text)
        return Time((since_epoch.days * _DAY_SECONDS + since_epoch.seconds) * SECOND_NS)
    return _parse_any_time(text)


def _parse_any_time(text: str) -> Time:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    stamp, fraction, sign, offset_hours, offset_minutes = match.groups()
    try:
        since_epoch = datetime.fromisoformat(stamp) - _EPOCH
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {error}") from None
    seconds = since_epoch // _ONE_SECOND
    if sign is not None:
        offset = int(offset_hours) * 3600 + int(offset_minutes) * 60
        seconds += -offset if sign == "+" else offset
        if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
            raise ValueError(f"{text!r} is not a time: beyond the year 9999 or before the first")
    return Time(seconds * SECOND_NS + (int(fraction[:9].ljust(9, "0")) if fraction else 0))


def format_time(instant_ns: int) -> str:
    """`2026-01-31T12:00:00Z`: UTC, whole seconds (a fraction is cut off), as `metav1.Time`.

    What lies beyond the calendar, as sums with given seconds may, is its last or first second.
    """
    return _seconds_text(instant_ns // SECOND_NS) + "Z"


def format_micro_time(instant_ns: int) -> str:
    """`2026-01-31T12:00:00.000000Z`: UTC, six digits always, as `metav1.MicroTime`."""
    seconds, rest = divmod(instant_ns, SECOND_NS)
    return f"{_seconds_text(seconds)}.{rest // MICROSECOND_NS:06d}Z"


@lru_cache(maxsize=1 << 14)
def _seconds_text(seconds: int) -> str:
    within = min(max(seconds, _FIRST_SECOND), _LAST_SECOND)
    return (_EPOCH + timedelta(seconds=within)).isoformat()


def to_datetime(instant_ns: int) -> datetime:
    """The instant as an aware datetime in UTC, cut to microseconds and to the calendar."""
    first, last = _FIRST_SECOND * SECOND_NS, _LAST_SECOND * SECOND_NS
    within = min(max(instant_ns, first), last)
    return _EPOCH_UTC + timedelta(microseconds=within // MICROSECOND_NS)


@lru_cache(maxsize=1 << 18)
def _cached_time(text: str) -> Time:
    if not isinstance(text, str):
        raise ValueError(f"expected an RFC 3339 time, got {text!r}")
    return _parse_time(text)


def decode_time(type_: type[Any], text: Any) -> Any:
    """The `dec_hook` of every decoder of slices: RFC 3339 text to Time or MicroTime.

    Times are cached, because a cluster's objects name the same instants over and over, and because
    equal instants then are one object. MicroTimes are not: each renewal of a lease has one of its
    own, and a daemon reads millions. Raises NotImplementedError for a type that is not an instant,
    ValueError for a value that is not RFC 3339 text, TypeError for a list or a map.
    """
    if type_ is Time:
        return _cached_time(text)
    if type_ is not MicroTime:
        raise NotImplementedError(f"no decoding for {type_!r}")
    if isinstance(text, list | dict):
        raise TypeError(f"expected an RFC 3339 time, got {text!r}")
    if not isinstance(text, str):
        raise ValueError(f"expected an RFC 3339 time, got {text!r}")
    return MicroTime(_parse_time(text))


decode_shared_time = cast(Callable[[type[Any], Any], Any], lru_cache(maxsize=1 << 18)(decode_time))
"""The same for types that have no times of their own: known ones cost no call of Python."""


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


def human_seconds(seconds: float) -> str:
    """`human_duration` of seconds."""
    return human_duration(round(seconds * SECOND_NS))


def precise_duration(duration_ns: int) -> str:
    """As `human_duration`, but with tenths below two minutes: `2.5s`, `40s`, `2m43s`."""
    if duration_ns < 2 * MINUTE_NS:
        return f"{duration_ns / SECOND_NS:.1f}".removesuffix(".0") + "s"
    return human_duration(duration_ns)


def precise_due(duration_ns: int) -> str:
    """The same of what is to come, which is never said to be sooner than it is."""
    whole_ns = -(-duration_ns // SECOND_NS) * SECOND_NS
    return precise_duration(duration_ns if duration_ns < 2 * MINUTE_NS else whole_ns)


@overload
def in_seconds(span_ns: int) -> float:
    """Of a span that is there."""


@overload
def in_seconds(span_ns: int | None) -> float | None:
    """Of one that may be missing."""


def in_seconds(span_ns: int | None) -> float | None:
    """A span as documents have it: seconds, to the ms; None stays None."""
    return None if span_ns is None else round(span_ns / SECOND_NS, 3)


def age(instant_ns: int | None, now_ns: int) -> str:
    """How long ago `instant_ns` was; `<unknown>` where there is none. As kubectl's AGE column."""
    return "<unknown>" if instant_ns is None else human_duration(now_ns - instant_ns)


def due_in(duration_ns: int) -> str:
    """`in 42s`, or `now`. Rounded up to a whole second: it is never said to be due before it is."""
    seconds = -(-duration_ns // SECOND_NS)
    return f"in {human_duration(seconds * SECOND_NS)}" if seconds > 0 else "now"


def due_within(low_ns: int, high_ns: int) -> str:
    """`in 37s-42s`, or `in 42s` where the ends are shown alike, or `now`."""
    latest = due_in(high_ns)
    if latest == "now" or due_in(low_ns) == latest:
        return latest
    seconds = -(-max(0, low_ns) // SECOND_NS)
    return f"in {human_duration(seconds * SECOND_NS)}-{latest.removeprefix('in ')}"


def clock(seconds: float | None) -> str:
    """`4.2s`, `72s`, `12m05s`, `2h03m`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
