"""The server's clock from whole seconds in `Date`."""

import itertools
from email.utils import formatdate

from kubectl_nodelife.live.clock import SECOND_NS, ServerClock, spread_warnings

EPOCH_S = 1_767_225_600
MS = 1_000_000


def answer(clock: ServerClock, at_ns: int, offset_ns: int, round_trip_ns: int = 2 * MS) -> None:
    """An answer at this monotonic instant from a server whose clock is that far off it."""
    server_ns = at_ns + offset_ns
    date = formatdate(server_ns // SECOND_NS, usegmt=True)
    clock.observe(date, at_ns - round_trip_ns // 2, at_ns + round_trip_ns // 2)


def test_unknown_until_an_answer_says_a_date() -> None:
    clock = ServerClock()
    clock.observe(None, 0, 1)
    clock.observe("yesterday", 0, 1)
    assert not clock.known
    assert clock.now_ns(5) is None
    assert clock.skew_ns(5, 77) == 0


def test_several_answers_narrow_the_offset_down() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS + 340 * MS
    errors = []
    for number in range(10):
        at_ns = number * 1_130 * MS
        answer(clock, at_ns, offset_ns)
        now_ns = clock.now_ns(at_ns)
        assert now_ns is not None
        errors.append(abs(now_ns - (at_ns + offset_ns)))
    assert errors[0] <= SECOND_NS
    assert errors[-1] <= 150 * MS


def test_a_stepped_server_clock_is_followed_at_once() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    for number in range(5):
        answer(clock, number * SECOND_NS, offset_ns)
    stepped_ns = offset_ns + 3600 * SECOND_NS
    answer(clock, 6 * SECOND_NS, stepped_ns)
    now_ns = clock.now_ns(6 * SECOND_NS)
    assert now_ns is not None
    assert abs(now_ns - (6 * SECOND_NS + stepped_ns)) <= SECOND_NS


def test_dates_count_from_the_instant_at_which_the_clock_was_set() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    for number in range(5):
        answer(clock, number * SECOND_NS, offset_ns)
    assert clock.dates_count_from_ns == 0
    for by_s in (3600, -20):
        set_ns = (10 + by_s % 60) * SECOND_NS
        for later_s in range(5):
            answer(clock, set_ns + later_s * SECOND_NS, offset_ns + by_s * SECOND_NS)
        off_ns = clock.dates_count_from_ns - (set_ns + offset_ns + by_s * SECOND_NS)
        assert abs(off_ns) <= SECOND_NS


def test_skew_is_our_wall_clock_against_the_servers() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    answer(clock, 0, offset_ns)
    ahead_ns = clock.skew_ns(0, offset_ns + 90 * SECOND_NS)
    assert abs(ahead_ns - 90 * SECOND_NS) <= SECOND_NS


def test_a_date_that_cannot_be_says_nothing() -> None:
    """The year 9999 made `daemon status` fail, and every age with it."""
    clock = ServerClock()
    for date in (
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 01 Jan 0001 00:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999",
    ):
        clock.observe(date, 0, 1)
    assert not clock.known


def test_two_servers_whose_clocks_differ_are_no_clock_that_is_set() -> None:
    """By 4 s: the time changes once, when the second one is first heard, and then no more."""
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    offsets = []
    for number in range(60):
        ahead_ns = 4 * SECOND_NS if number % 3 == 1 else 0
        answer(clock, number * 7 * SECOND_NS, offset_ns + ahead_ns)
        now_ns = clock.now_ns(number * 7 * SECOND_NS)
        assert now_ns is not None
        offsets.append(now_ns - number * 7 * SECOND_NS - offset_ns)
    jumps = sum(abs(b - a) > 2 * SECOND_NS for a, b in itertools.pairwise(offsets))
    assert jumps == 1
    assert abs(clock.spread_ns - 4 * SECOND_NS) <= SECOND_NS
    assert spread_warnings(clock) == [
        "the clocks of the API servers differ by 4s; ages may be wrong by as much"
    ]


def test_a_server_that_is_heard_no_more_is_forgotten() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    answer(clock, 0, offset_ns)
    answer(clock, SECOND_NS, offset_ns + 60 * SECOND_NS)  # set by mistake
    for number in range(2, 30):
        answer(clock, number * SECOND_NS, offset_ns)  # and set back
    now_ns = clock.now_ns(30 * SECOND_NS)
    assert now_ns is not None
    assert abs(now_ns - 30 * SECOND_NS - offset_ns) <= SECOND_NS
    assert spread_warnings(clock) == []


def test_our_wall_clock_is_believed_within_what_the_answers_allow() -> None:
    offset_ns = EPOCH_S * SECOND_NS + 340 * MS
    for ahead_ns, error_ns in ((3 * MS, 3 * MS), (-2 * SECOND_NS, 500 * MS)):
        clock = ServerClock(lambda ahead_ns=ahead_ns: offset_ns + ahead_ns, lambda: 0)
        answer(clock, 0, offset_ns)
        now_ns = clock.now_ns(0)
        assert now_ns is not None
        assert abs(now_ns - offset_ns) <= error_ns
