"""The server's clock from whole seconds in `Date`."""

from __future__ import annotations

from email.utils import formatdate

from kubectl_nodelife.live.clock import SECOND_NS, ServerClock

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


def test_skew_is_our_wall_clock_against_the_servers() -> None:
    clock, offset_ns = ServerClock(), EPOCH_S * SECOND_NS
    answer(clock, 0, offset_ns)
    ahead_ns = clock.skew_ns(0, offset_ns + 90 * SECOND_NS)
    assert abs(ahead_ns - 90 * SECOND_NS) <= SECOND_NS
