"""Which cluster a verb looks at, and whether a daemon is asked about it."""

import sys

import pytest

from kubectl_nodelife.commands.flags import Where
from kubectl_nodelife.live.connection import Connection


@pytest.mark.parametrize(
    ("platform", "via", "direct"),
    [
        pytest.param("linux", "", False, id="Linux: the daemon of this machine"),
        pytest.param("darwin", "", True, id="macOS: a daemon cannot be forked"),
        pytest.param("darwin", "deploy/nodelife", False, id="macOS: a daemon in the cluster can"),
    ],
)
def test_a_daemon_is_asked_what_takes_a_forked_child_where_it_can_be_forked(
    platform: str, via: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert Where(Connection(via=via)).of_forked_answer().direct is direct
