"""Which cluster a verb looks at, and whether a daemon is asked about it."""

import sys
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.flags import Where
from kubectl_nodelife.live.connection import Connection

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("status --profile v1.2", "--profile: unknown profile 'v1.2'"),
        (f"status -f {DUMP} --set nonsense=1", "--set: unknown flag nonsense"),
        ("status --set node-monitor-period=x", "flag node-monitor-period: malformed value 'x'"),
        ("audit -A --set nonsense=1", "--set: unknown flag nonsense"),
        ("what-if lose node a --profile nonsense", "--profile: unknown profile 'nonsense'"),
        ("what-if looose node a --no-daemon", "what-if: no act 'looose'; did you mean lose?"),
        ("what-if --each nodes", "--each: no such group 'nodes'"),
        ("what-if --each node delete", "--each: delete is not for each of them"),
        ("what-if --each pair-of foo", "--each: no such group 'pair-of foo'"),
    ],
)
def test_what_is_wrong_with_any_cluster_is_told_before_one_is_asked(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With this kubeconfig any read would end with "no cluster is configured"."""
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


def test_a_flag_of_an_old_release_is_no_mistake_until_the_release_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    assert main(["status", "--set", "pod-eviction-timeout=1m"]) == 2
    assert "no cluster is configured" in capsys.readouterr().err
