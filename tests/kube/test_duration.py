"""Go's notation of durations, both ways."""

import pytest

from kubectl_nodelife.kube.times import format_duration, parse_duration

MS = 1_000_000
S = 1000 * MS

PARSED = {
    "0": 0,
    "-0": 0,
    "0s": 0,
    "5s": 5 * S,
    "30m": 1800 * S,
    "1478s": 1478 * S,
    "-5s": -5 * S,
    "+5s": 5 * S,
    "5.0s": 5 * S,
    "5.6s": 5600 * MS,
    "5.s": 5 * S,
    ".5s": 500 * MS,
    "1.004s": 1004 * MS,
    "100.00100s": 100_001 * MS,
    "10ns": 10,
    "11us": 11_000,
    "12µs": 12_000,
    "12μs": 12_000,
    "13ms": 13 * MS,
    "16h": 16 * 3600 * S,
    "3h30m": 12600 * S,
    "10.5s4m": 250_500 * MS,
    "-2m3.4s": -123_400 * MS,
    "39h9m14.425s": 140_954_425 * MS,
    "9223372036854775807ns": (1 << 63) - 1,
    "0.3333333333333333333h": 1_200 * S,
}

REFUSED = [
    "",
    "3",
    "-",
    "s",
    ".",
    "-.",
    ".s",
    "+.s",
    "1d",
    "1 s",
    "1s ",
    "1m30",
    "ten",
    "\u0663s",
    "9223372036854775808ns",
]

PRINTED = {
    0: "0s",
    1: "1ns",
    1100: "1.1µs",
    2_200_000: "2.2ms",
    100 * MS: "100ms",
    3300 * MS: "3.3s",
    8500 * MS: "8.5s",
    50 * S: "50s",
    300 * S: "5m0s",
    245 * S: "4m5s",
    245_001 * MS: "4m5.001s",
    18_367_001 * MS: "5h6m7.001s",
    480_000_000_001: "8m0.000000001s",
    -90 * S: "-1m30s",
    (1 << 63) - 1: "2562047h47m16.854775807s",
}


@pytest.mark.parametrize(("text", "expected"), PARSED.items())
def test_parse_duration(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_parse_duration_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(("duration_ns", "text"), PRINTED.items())
def test_format_duration(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text
    assert parse_duration(text) == duration_ns
