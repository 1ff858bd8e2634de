"""How the test on a real control plane compares what was foretold with what was written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.real.predictions import Window, compare

WINDOW = Window(0.0, 46.0, 3.0)
DARK = "no zone has a single ready node: the fault may be this side's, evictions stop"
TAINT = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def wrote(action: str, at: float, node: str = "z-1") -> dict[str, Any]:
    """A line of the audit log."""
    return {
        "controller": "node-lifecycle",
        "action": action,
        "object": {"name": node},
        "detail": dict(TAINT),
        "at": at,
    }


def told(action: str, at: float, reason: str = DARK) -> dict[str, Any]:
    """A line of the journal."""
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    line = {**wrote(action, at), "time": stamp, "outcome": "confirmed", "reason": reason}
    return {key: value for key, value in line.items() if key != "at"}


@pytest.mark.parametrize(
    ("added_at", "removed_at", "foretold_at", "reason", "left_on", "unmatched"),
    [
        pytest.param(28.7, 38.0, 28.6, DARK, 1, 0, id="put-on-in-the-pass-that-found-all-lost"),
        pytest.param(28.7, 30.0, 28.6, DARK, 0, 0, id="taken-off-by-that-pass"),
        pytest.param(20.0, 38.0, 28.6, DARK, 0, 1, id="put-on-long-before-it"),
        pytest.param(28.7, 38.0, 28.6, "the node is ready", 0, 1, id="foretold-for-another-reason"),
        pytest.param(28.7, 29.0, 38.6, DARK, 0, 1, id="foretold-too-late"),
    ],
)
def test_a_taint_that_is_put_on_while_all_nodes_are_found_lost_may_stay(
    added_at: float,
    removed_at: float,
    foretold_at: float,
    reason: str,
    left_on: int,
    unmatched: int,
) -> None:
    """By upstream's own copies of the nodes; which nodes these are is decided by milliseconds."""
    real = [wrote("AddTaint", added_at), wrote("RemoveTaint", removed_at)]
    said = [told("AddTaint", added_at), told("RemoveTaint", foretold_at, reason)]
    tally = compare(real, said, WINDOW)
    assert (tally.matched, tally.left_on, len(tally.unmatched)) == (2, left_on, unmatched)
