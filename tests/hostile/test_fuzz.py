"""A bounded number of mutated events on every run; by hand a million (`tests.hostile.fuzz`)."""

import random
from itertools import islice

import pytest

from tests.deep import first_few
from tests.hostile.fuzz import SUBJECTS, Find, clusters, fuzz, play, steps_of, told

EVENTS, SECONDS = 1_500, 12.0


@pytest.mark.parametrize("host", SUBJECTS)
@pytest.mark.parametrize("seed", first_few([1, 2, 7], 1))
def test_no_mutated_event_ends_or_deceives_the_daemon(host: str, seed: int) -> None:
    try:
        assert fuzz(EVENTS, seed, SECONDS, SUBJECTS[host]) > 0
    except Find as find:
        pytest.fail(told(find))


def test_what_a_plan_leaves_on_an_unreadable_object_makes_it_no_readable_one() -> None:
    """Found after 45,281 events of seed 1: another object's plan showed the node as it was."""
    found = steps_of(clusters(1), random.Random(1))
    assert play(list(islice(found, 45_200, 45_281))) is None
