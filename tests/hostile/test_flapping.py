"""A node is not called lost against what is known of its kubelet when that is written down."""

import pytest

from tests.enforce.simulation import play
from tests.hostile.flapping import AFTER, KNOWN, ON_ITS_WAY, Flapping


@pytest.mark.parametrize("seed", [4, 5])
def test_what_was_heard_while_a_write_waited_withdraws_it(seed: int) -> None:
    """Kubelets that come back about when their nodes are called lost, behind a busy server."""
    stand = Flapping(150, seed)
    played = play(stand, seed)
    assert [text for text in played.broken if "called lost" not in text] == []
    assert stand.called_lost > 50, "a judge that saw nothing has judged nothing"
    assert stand.sorts[KNOWN] == 0, stand.early
    window = stand.sorts[ON_ITS_WAY] + stand.sorts[AFTER]
    assert window < stand.called_lost / 20, stand.early
    assert all(early.heard_s < 0.5 for early in stand.early), stand.early
