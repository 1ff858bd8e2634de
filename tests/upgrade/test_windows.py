"""Maintenance windows: rows 49 and 50 of the decision vectors, midnight, and summer time."""

from datetime import datetime

import pytest

from kubectl_nodelife.controllers.upgrade import policy
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS

HOUR_NS = 60 * MINUTE_NS


def at(text: str) -> int:
    """An instant of 2026 from RFC 3339 without its seconds; Monday is 2026-06-01."""
    return int(datetime.fromisoformat(text + ":00Z").timestamp()) * SECOND_NS


def closes(windows: str | tuple[str, ...], moment: str) -> int | None:
    return policy.closes_ns((windows,) if isinstance(windows, str) else windows, at(moment))


def test_50_the_day_is_that_on_which_the_window_begins() -> None:
    window = "Fri 22:00-04:00"
    assert closes(window, "2026-06-06T02:00") == at("2026-06-06T04:00"), "Saturday, still open"
    assert closes(window, "2026-06-05T02:00") is None, "Friday, not yet open"


def test_49_a_node_is_claimed_only_if_its_high_estimate_ends_inside() -> None:
    windows = ["Mon 22:00-04:00"]
    now = at("2026-06-02T03:40")
    assert policy.fits_ns(windows, now, 20 * MINUTE_NS) == now
    assert policy.fits_ns(windows, now, 25 * MINUTE_NS) == at("2026-06-08T22:00")
    assert policy.fits_ns(windows, now, 7 * HOUR_NS) is None
    assert policy.fits_ns([], now, 1000 * HOUR_NS) == now


@pytest.mark.parametrize(
    "window, moment, is_open",
    [
        pytest.param("Mon 22:00-04:00", "2026-06-01T22:00", True, id="the begin is in"),
        pytest.param("Mon 22:00-04:00", "2026-06-01T21:59", False, id="before it is out"),
        pytest.param("Mon 22:00-04:00", "2026-06-02T04:00", False, id="the end is out"),
        pytest.param("Sat,Sun 00:00-24:00", "2026-06-07T23:59", True, id="whole days"),
        pytest.param("Sat-Mon 10:00-11:00", "2026-06-01T10:30", True, id="days across the week"),
        pytest.param("Sat-Mon 10:00-11:00", "2026-06-02T10:30", False, id="and no other"),
        pytest.param("10:00-11:00", "2026-06-03T10:30", True, id="no days: every day"),
        pytest.param("Mon 08:00-08:00", "2026-06-02T07:59", True, id="same time: a whole day"),
        pytest.param("Mon 08:00-08:00", "2026-06-02T08:00", False, id="and not more"),
        pytest.param("mon 22:00-23:00 Europe/Berlin", "2026-06-01T20:30", True, id="summer time"),
        pytest.param("mon 22:00-23:00 Europe/Berlin", "2026-01-05T21:30", True, id="winter time"),
    ],
)
def test_open_and_closed(window: str, moment: str, is_open: bool) -> None:
    assert (closes(window, moment) is not None) == is_open


@pytest.mark.parametrize(
    "window, opens, end",
    [
        # On 2026-03-29 Berlin's clock goes from 02:00 to 03:00, which is 01:00 UTC.
        pytest.param("Sun 02:30-05:00", "2026-03-29T01:00", "2026-03-29T03:00", id="begin skipped"),
        pytest.param("Sun 01:00-02:30", "2026-03-29T00:00", "2026-03-29T01:00", id="end skipped"),
        pytest.param("Sat 22:00-04:00", "2026-03-28T21:00", "2026-03-29T02:00", id="an hour less"),
        # On 2026-10-25 it goes from 03:00 back to 02:00, which is 01:00 UTC.
        pytest.param("Sun 02:30-05:00", "2026-10-25T00:30", "2026-10-25T04:00", id="begin twice"),
        pytest.param("Sun 01:00-02:30", "2026-10-24T23:00", "2026-10-25T00:30", id="end twice"),
        pytest.param("Sat 22:00-04:00", "2026-10-24T20:00", "2026-10-25T03:00", id="an hour more"),
    ],
)
def test_changes_of_the_clock(window: str, opens: str, end: str) -> None:
    windows = [f"{window} Europe/Berlin"]
    assert policy.opens_ns(windows, at(opens) - SECOND_NS) == at(opens)
    assert policy.closes_ns(windows, at(opens) - SECOND_NS) is None
    assert policy.closes_ns(windows, at(opens)) == at(end)


def test_windows_that_touch_are_one() -> None:
    both = ("Fri 22:00-24:00", "Sat 00:00-04:00")
    assert closes(both, "2026-06-05T23:00") == at("2026-06-06T04:00")
    assert policy.longest_ns(both, at("2026-06-01T00:00")) == 6 * HOUR_NS


def test_always_open_ends_some_day() -> None:
    end = closes("Mon-Sun 00:00-24:00", "2026-06-01T00:00")
    assert end is not None and end > at("2026-06-08T00:00")


def test_the_next_window() -> None:
    windows = ["Fri 22:00-04:00", "Tue 01:00-02:00"]
    assert policy.opens_ns(windows, at("2026-06-01T00:00")) == at("2026-06-02T01:00")
    assert policy.opens_ns(windows, at("2026-06-02T01:30")) == at("2026-06-05T22:00")
    assert policy.longest_ns([], 0) == 0


@pytest.mark.parametrize(
    "text, says",
    [
        ("nightly", "is no window"),
        ("Mon 22:00", "is no window"),
        ("Mon 24:00-02:00", "begins before 24:00"),
        ("Mon 22:70-23:00", "22:70 is no time of day"),
        ("Mon 22:00-25:00", "25:00 is no time of day"),
        ("Mo-Fr 22:00-23:00", "'Mo' is no day"),
        ("Mon 22:00-23:00 Europe/Atlantis", "Europe/Atlantis is no time zone"),
        ("Mon 22:00-23:00 ../etc", "is no time zone"),
    ],
)
def test_what_is_no_window(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("'", "'")):
        policy.parse_window(text)
