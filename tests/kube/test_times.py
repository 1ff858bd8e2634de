"""RFC 3339 both ways, and the hook that decodes instants in API objects."""

import pytest

from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.meta import MicroTime, Time
from kubectl_nodelife.kube.times import (
    SECOND_NS,
    decode_time,
    format_micro_time,
    format_time,
    parse_time,
    to_datetime,
)

PARSED = {
    "epoch": ("1970-01-01T00:00:00Z", 0),
    "seconds": ("2026-01-01T00:00:00Z", 1_767_225_600 * SECOND_NS),
    "micro": ("1970-01-01T00:00:01.500000Z", 1_500_000_000),
    "one digit": ("1970-01-01T00:00:00.5Z", 500_000_000),
    "nine digits": ("1970-01-01T00:00:00.123456789Z", 123_456_789),
    "finer than a nanosecond is cut": ("1970-01-01T00:00:00.1234567899Z", 123_456_789),
    "east": ("1970-01-01T02:00:00+02:00", 0),
    "west": ("1969-12-31T19:30:00-04:30", 0),
    "before the epoch": ("1969-12-31T23:59:59Z", -SECOND_NS),
    "before the epoch with fraction": ("1969-12-31T23:59:59.5Z", -SECOND_NS // 2),
    "last second of a day": ("1969-12-31T23:59:59.9Z", -SECOND_NS // 10),
    "year 1": ("0001-01-01T00:00:00Z", -62_135_596_800 * SECOND_NS),
    "leap day": ("2024-02-29T00:00:00Z", 1_709_164_800 * SECOND_NS),
}

REFUSED = {
    "date only": "2026-01-01",
    "no zone": "2026-01-01T00:00:00",
    "week": "2026-W01-1T00:00:00Z",
    "no seconds": "2026-01-01T00:00+01Z",
    "sign": "2026-01-01T00:-1:00Z",
    "space": "2026-01-01 00:00:00Z",
    "month 13": "2026-13-01T00:00:00Z",
    "no leap day": "2025-02-29T00:00:00Z",
    "dot without digits": "2026-01-01T00:00:00.Z",
    "trailing": "2026-01-01T00:00:00Z ",
    "other digits": "\uff12026-01-01T00:00:00Z",
    "empty": "",
    "word": "now",
}


@pytest.mark.parametrize(("text", "expected"), PARSED.values(), ids=PARSED.keys())
def test_parse_time(text: str, expected: int) -> None:
    assert parse_time(text) == expected
    assert type(parse_time(text)) is Time


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_parse_time_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_time(text)


@pytest.mark.parametrize(
    ("instant_ns", "seconds", "micros"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1_999_999_999, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.999999Z"),
        (-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999999Z"),
        (1_767_225_600_000_001_000, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z"),
    ],
)
def test_format(instant_ns: int, seconds: str, micros: str) -> None:
    assert format_time(instant_ns) == seconds
    assert format_micro_time(instant_ns) == micros
    assert parse_time(micros) == instant_ns // 1000 * 1000


def test_to_datetime_is_aware_and_exact_to_the_microsecond() -> None:
    assert to_datetime(1_500_000_999).isoformat() == "1970-01-01T00:00:01.500000+00:00"


def test_decode_time_gives_the_type_asked_for() -> None:
    text = "2026-01-01T00:00:00.25Z"
    assert type(decode_time(Time, text)) is Time
    assert type(decode_time(MicroTime, text)) is MicroTime
    assert decode_time(MicroTime, text) == decode_time(Time, text)
    assert decode_time(Time, text) is decode_time(Time, text)


def test_decode_time_refuses() -> None:
    with pytest.raises(ValueError, match="expected an RFC 3339 time, got 7"):
        decode_time(Time, 7)
    with pytest.raises(NotImplementedError):
        decode_time(dict, "2026-01-01T00:00:00Z")


def test_instants_of_leases_are_not_kept() -> None:
    """Each renewal has another one: they filled a cache that nobody asked again."""
    before = times._cached_time.cache_info().currsize
    for number in range(1_000):
        decode_time(MicroTime, f"2026-01-31T12:00:00.{number:06d}Z")
    assert times._cached_time.cache_info().currsize == before
