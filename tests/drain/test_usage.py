"""Ways to say which nodes are drained that kubectl refuses, in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main

TWO_ZONES = str(Path(__file__).parents[1] / "dumps" / "two-zones")


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
