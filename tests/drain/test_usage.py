"""Ways to say which nodes are drained that kubectl refuses, in its own words."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.objects import write_list

TWO_ZONES = str(Path(__file__).parents[1] / "dumps" / "two-zones")


def test_a_cluster_without_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moment = {"nodelife.dev/moment": "2026-01-01T00:00:00Z", "nodelife.dev/kinds": "nodes,pods"}
    dump = write_list(tmp_path / "empty.json", [], annotations=moment)
    for words in (["drain-plan", "--all"], ["upgrade", "plan", "--all", "--nothing"]):
        assert main([*words, "-f", dump]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == "error: there are no nodes"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        pytest.param(
            ["worker-a1", "-l", "zone=a"],
            2,
            "cannot specify both a node name and a --selector option",
            id="names and a selector",
        ),
        pytest.param([], 2, "USAGE: drain NODE [flags]", id="no node"),
        pytest.param(["-l", "no=such"], 1, "--selector no=such: no node matches", id="no match"),
        pytest.param(["worker-a1", "--all"], 2, "USAGE: drain NODE [flags]", id="names and all"),
        pytest.param(["worker-x"], 1, 'nodes "worker-x" not found', id="unknown"),
        pytest.param(["worker-a1", "worker-x"], 1, 'nodes "worker-x" not found', id="one unknown"),
    ],
)
def test_which_nodes(
    words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drain-plan", *words, "-f", TWO_ZONES]) == code
    said = capsys.readouterr()
    assert told in said.err and said.out == ""
