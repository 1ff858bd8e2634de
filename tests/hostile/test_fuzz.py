"""A bounded number of mutated events on every run; by hand a million (`tests.hostile.fuzz`)."""

from __future__ import annotations

import pytest

from tests.hostile.fuzz import SUBJECTS, Find, fuzz, told

EVENTS, SECONDS = 1_500, 12.0


@pytest.mark.parametrize("host", SUBJECTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_mutated_event_ends_the_daemon(host: str, seed: int) -> None:
    try:
        assert fuzz(EVENTS, seed, SECONDS, SUBJECTS[host]) > 0
    except Find as find:
        pytest.fail(told(find))
