"""Each row of the tables of releases that begins or ends with v1.33 to v1.38 is held by real code
of the release before and of the release after: moved by one release, it differs.

What the real code did is recorded, so that no program is needed; where REAL_CONTROLLERS names one,
it still does what is recorded of its release.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.settings import SWITCHES, parse_profile
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS
from tests.real_code import boundaries
from tests.real_code.boundaries import BOUNDARIES, FIRST_MINOR, LAST_MINOR, NOT_PLAYED
from tests.real_code.test_real_code import program
from tests.real_code.workload_scenario import RELEASE

__all__ = ["program"]

MINOR = parse_profile(RELEASE).minor

SIDES = [
    pytest.param(rule, boundaries.minor_of(rule) - before, id=f"{rule}-{side}")
    for rule in BOUNDARIES
    for before, side in ((1, "before"), (0, "after"))
]


def recorded(rule: str, minor: int) -> dict[str, Any]:
    """What the real code of v1.`minor` did."""
    told: dict[str, Any] = json.loads(boundaries.recording_of(minor).read_bytes())["real"][rule]
    return told


def test_every_row_is_here() -> None:
    rows = {
        rule
        for table in (SWITCHES, KUBELETS, DAEMON_SETS)
        for rule, span in table.items()
        if any(minor and FIRST_MINOR < minor <= LAST_MINOR for minor in span)
    }
    assert rows == BOUNDARIES.keys() | NOT_PLAYED.keys()


@pytest.mark.parametrize(("rule", "minor"), SIDES)
def test_a_boundary_moved_by_a_release_differs_from_real_code(rule: str, minor: int) -> None:
    span, boundary = BOUNDARIES[rule].table[rule], boundaries.minor_of(rule)
    real = recorded(rule, minor)
    assert not boundaries.apart(rule, minor, real, span)
    later = 1 if minor == boundary else -1
    assert boundaries.apart(rule, minor, real, boundaries.moved(span, boundary, later))


@pytest.mark.parametrize("rule", boundaries.at(MINOR))
def test_the_real_code_does_what_is_recorded(rule: str, program: Path, tmp_path: Path) -> None:
    now, before = boundaries.record(rule, MINOR, program, tmp_path), recorded(rule, MINOR)
    if "final" not in now:
        assert now == before
    else:
        play = boundaries.play_of(rule, MINOR)
        assert not list(boundaries.timelines_apart(play, before, now))
