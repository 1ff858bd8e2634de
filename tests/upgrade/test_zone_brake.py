"""How many nodes of a zone may go: rows 9 to 13 of the specification's decision vectors."""

import pytest

from kubectl_nodelife.controllers.nodelifecycle.zones import NORMAL, compute_zone_state
from kubectl_nodelife.controllers.upgrade.counts import zone_hold

THRESHOLD = 0.55


@pytest.mark.parametrize(
    "counts, begins",
    [
        pytest.param((3, 0, 0), "", id="9: n 3, alone"),
        pytest.param((3, 1, 0), "3 of its zone's 3 nodes", id="9: n 3, another down"),
        pytest.param((4, 0, 1), "3 of its zone's 4 nodes", id="10: 0.75"),
        pytest.param((10, 0, 3), "", id="11: 0.5"),
        pytest.param((10, 0, 4), "6 of its zone's 10 nodes", id="11: 0.6"),
        pytest.param((20, 4, 5), "11 of its zone's 20", id="12: float32 0.55"),
        pytest.param((20, 4, 4), "", id="12: 0.5"),
        pytest.param((1, 0, 0), "no Ready node of its zone's 1", id="13: n 1 is dark"),
        pytest.param((2, 1, 0), "no Ready node of its zone's 2", id="13: n 2, one down"),
    ],
)
def test_zone_hold(counts: tuple[int, int, int], begins: str) -> None:
    found = zone_hold(*counts, THRESHOLD)
    assert found.startswith(begins) and bool(found) == bool(begins)


def test_13_a_zone_of_one_may_be_left_dark_by_word() -> None:
    assert zone_hold(1, 0, 0, THRESHOLD, allow_dark=True) == ""


@pytest.mark.parametrize("nodes, at_once", [(3, 1), (4, 1), (5, 1), (10, 4), (100, 53)])
def test_how_many_of_a_zone_go_at_once(nodes: int, at_once: int) -> None:
    ours = 0
    while not zone_hold(nodes, 0, ours, THRESHOLD):
        ours += 1
    assert ours == at_once


@pytest.mark.parametrize("nodes", range(2, 40))
def test_with_one_accident_more_the_lifecycle_controller_still_sees_a_normal_zone(
    nodes: int,
) -> None:
    for not_ready in range(nodes):
        for ours in range(nodes - not_ready):
            if not zone_hold(nodes, not_ready, ours, THRESHOLD):
                down = not_ready + ours + 1 + (nodes > 2)
                assert compute_zone_state(nodes - down, down, THRESHOLD) == NORMAL
