"""Durations for people; the expected texts are those of upstream's duration_test.go rules."""

import pytest

from kubectl_nodelife.kube.times import SECOND_NS, age, due_in, human_duration

M, H, D = 60, 3600, 86400
Y = 365 * D


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.999, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (0.999, "0s"),
        (1, "1s"),
        (119.9, "119s"),
        (2 * M, "2m"),
        (9 * M + 59, "9m59s"),
        (9 * M, "9m"),
        (10 * M, "10m"),
        (10 * M + 59, "10m"),
        (179 * M, "179m"),
        (3 * H, "3h"),
        (3 * H + 5 * M + 7, "3h5m"),
        (7 * H + 59 * M, "7h59m"),
        (8 * H, "8h"),
        (47 * H + 59 * M, "47h"),
        (2 * D, "2d"),
        (5 * D + 3 * H + 40 * M, "5d3h"),
        (8 * D - 1, "7d23h"),
        (8 * D, "8d"),
        (2 * Y - 1, "729d"),
        (2 * Y, "2y"),
        (2 * Y + 30 * D, "2y30d"),
        (8 * Y - 1, "7y364d"),
        (8 * Y, "8y"),
        (20 * Y + 100 * D, "20y"),
    ],
)
def test_human_duration(seconds: float, text: str) -> None:
    assert human_duration(int(seconds * SECOND_NS)) == text


def test_age() -> None:
    assert age(None, 5 * SECOND_NS) == "<unknown>"
    assert age(2 * SECOND_NS, 5 * SECOND_NS) == "3s"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(-SECOND_NS, "now"), (0, "now"), (1, "in 1s"), (42 * SECOND_NS, "in 42s"),
     (42 * SECOND_NS + 1, "in 43s"), (300 * SECOND_NS, "in 5m")],
)  # fmt: skip
def test_due_in_never_says_less_than_is_left(duration_ns: int, text: str) -> None:
    assert due_in(duration_ns) == text
