"""Instants as the API writes them: RFC 3339 text in, nanoseconds since the Unix epoch inside.

Follows `metav1.Time` and `metav1.MicroTime` (apimachinery/pkg/apis/meta/v1/time.go, micro_time.go).
Parsing takes any number of fractional digits and any offset, as Go's time.RFC3339 does; what is
finer than a nanosecond is cut off. Writing is always UTC: whole seconds for Time, six digits for
MicroTime. Left out on purpose: Go's zero time. The API prints an unset time as null, and so None it
is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

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
