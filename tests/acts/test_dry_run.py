"""A client-side dry run, and an act that nobody confirmed, send GETs only: held on the socket."""

import pytest

from kubectl_nodelife.cli import main
from tests.drain.test_live import Capture
from tests.drain.test_live import cluster as cluster  # fails a test in which anything but GET came
from tests.raw_server import RawServer


@pytest.mark.parametrize(
    "words, code",
    [
        pytest.param(("drain", "a1", "--dry-run=client"), 0, id="drain-client"),
        pytest.param(("drain", "a1", "--dry-run"), 0, id="drain-as-kubectls-bare-flag"),
        pytest.param(("drain", "a1"), 5, id="drain-without-a-terminal"),
        pytest.param(("drain", "a1", "--yes"), 5, id="drain-over-plain-http"),
        pytest.param(("drain", "a1", "--yes", "--max-writes=1"), 5, id="drain-too-large"),
        pytest.param(("repair", "-A", "--dry-run=client"), 0, id="repair-client"),
        pytest.param(("repair", "-A"), 0, id="repair-with-nothing-to-do"),
        pytest.param(("daemonset", "undo", "ds/none", "--yes"), 1, id="undo-of-no-set"),
    ],
)
def test_nothing_is_written(
    cluster: RawServer, capsys: Capture, words: tuple[str, ...], code: int
) -> None:
    assert main(words) == code, capsys.readouterr().err
    assert cluster.requests, "it has looked"


def test_what_would_be_done_is_said_as_kubectl_does(cluster: RawServer, capsys: Capture) -> None:
    assert main(["drain", "a1", "--dry-run=client"]) == 0
    out = capsys.readouterr().out
    assert "node/a1 cordoned (dry run)\n" in out and out.endswith("node/a1 drained (dry run)\n")
    assert out.count("evicting pod default/web-") == 3
