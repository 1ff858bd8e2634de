"""Maintenance windows: when nodes may be claimed.

`Mon-Fri 22:00-04:00 Europe/Berlin`: the days are those on which the window begins, so the one of
Friday is still open on Saturday at 02:00. Times are wall-clock times of the zone, UTC where none is
named; the end is excluded. Where a change to or from summer time skips or repeats a time, what
counts is the first instant at which the clock reads that time or later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubectl_nodelife.kube.times import SECOND_NS

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES: Final = 24 * 60
LOOK_AHEAD_DAYS: Final = 15

_WINDOW = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z,-]*) )?(?P<from>\d\d?:\d\d)-(?P<to>\d\d?:\d\d)(?: (?P<zone>\S+))?"
)
_EXAMPLE: Final = 'such as "Mon-Fri 22:00-04:00 Europe/Berlin"'

Span = tuple[int, int]
"""Begin and end, nanoseconds since the epoch; the end is excluded."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that comes again each week. `days`: 0 is Monday. Minutes count from midnight; an
    end of more than a day is on the day after.
    """

    text: str
    days: frozenset[int]
    begin_minutes: int
    end_minutes: int
    zone: ZoneInfo

    def spans(self, after_ns: int) -> Iterator[Span]:
        """The window's spans that end after the instant, in order, for two weeks."""
        today = datetime.fromtimestamp(after_ns // SECOND_NS, self.zone).date()
        for ahead in range(-2, LOOK_AHEAD_DAYS):
            day = today + timedelta(days=ahead)
            if day.weekday() in self.days:
                begin_ns = _instant_ns(day, self.begin_minutes, self.zone)
                end_ns = _instant_ns(day, self.end_minutes, self.zone)
                if end_ns > max(after_ns, begin_ns):
                    yield begin_ns, end_ns


def parse_window(text: str) -> Window:
    """The window that the text describes. Raises ValueError, with what is wrong."""
    found = _WINDOW.fullmatch(" ".join(text.split()))
    if found is None:
        raise ValueError(f"{text!r} is no window {_EXAMPLE}")
    begin, end = _minutes(found["from"]), _minutes(found["to"])
    if begin == DAY_MINUTES:
        raise ValueError(f"{text!r}: a window begins before 24:00")
    zone = found["zone"] or "UTC"
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{text!r}: {zone} is no time zone of this machine's database") from None
    end += 0 if end > begin else DAY_MINUTES
    return Window(text, _days(found["days"] or "Mon-Sun"), begin, end, info)


def closes_ns(windows: Sequence[Window], now_ns: int) -> int | None:
    """When the windows that are open now close, those included that follow without a break.

    None where none is open; more than a week ahead where they hardly ever close.
    """
    end_ns = now_ns
    limit_ns = now_ns + 7 * DAY_MINUTES * 60 * SECOND_NS
    while end_ns <= limit_ns:
        ends = [end for w in windows for begin, end in w.spans(end_ns) if begin <= end_ns < end]
        if not ends:
            break
        end_ns = max(ends)
    return None if end_ns == now_ns else end_ns


def opens_ns(windows: Sequence[Window], now_ns: int) -> int | None:
    """When the next window begins, None where none does within two weeks."""
    begins = [begin for w in windows for begin, _ in w.spans(now_ns) if begin > now_ns]
    return min(begins, default=None)


def fits(windows: Sequence[Window], now_ns: int, high_ns: int) -> bool:
    """True if what takes up to `high_ns` ends while a window is open; always without windows."""
    if not windows:
        return True
    end_ns = closes_ns(windows, now_ns)
    return end_ns is not None and now_ns + high_ns <= end_ns


def longest_ns(windows: Sequence[Window], now_ns: int) -> int:
    """How long the windows are open at a stretch, at most, in the next week; 0 without windows."""
    lengths = [0]
    for window in windows:
        for begin_ns, _ in window.spans(now_ns):
            lengths.append((closes_ns(windows, begin_ns) or begin_ns) - begin_ns)
    return max(lengths)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > DAY_MINUTES:
        raise ValueError(f"{text} is no time of day")
    return total


def _days(text: str) -> frozenset[int]:
    """The weekdays of `Mon-Fri`, `Sat,Sun`, `Fri-Mon`. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = _day(first), _day(last if dash else first)
        found |= {(begin + n) % 7 for n in range((end - begin) % 7 + 1)}
    return frozenset(found)


def _day(text: str) -> int:
    name = text.capitalize()
    if name not in DAYS:
        raise ValueError(f"{text!r} is no day; the days are {', '.join(DAYS)}")
    return DAYS.index(name)


def _instant_ns(day: date, minutes: int, zone: ZoneInfo) -> int:
    """The first instant at which the zone's clock reads that day and time, or later."""
    naive = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    late = int(naive.replace(tzinfo=zone).timestamp())
    if datetime.fromtimestamp(late, zone).replace(tzinfo=None) != naive:
        early = int(naive.replace(tzinfo=zone, fold=1).timestamp())
        late = _end_of_gap(early, late, zone)
    return late * SECOND_NS


def _end_of_gap(before: int, after: int, zone: ZoneInfo) -> int:
    """The second between the two, after the epoch, at which the zone's offset from UTC changes."""
    offset = datetime.fromtimestamp(after, UTC).astimezone(zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
