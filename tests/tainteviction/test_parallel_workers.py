"""The taint manager's workers apart: what they may not change, and a race that they show."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.sim.documents import document, node, pod, stop

NODES = [node(f"a{i}") for i in range(1, 6)]


def simulated(
    capsys: pytest.CaptureFixture[str], path: Path, seed: int | None, **spec: Any
) -> dict[str, Any]:
    """The Timeline of a scenario. `seed` None: with the workers in step."""
    path.write_text(json.dumps(document(**spec)))
    apart = () if seed is None else ("--workers-seed", str(seed))
    assert main(["simulate", "-f", str(path), "-o", "json", *apart]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def deletions(timeline: dict[str, Any]) -> dict[str, float]:
    """When the taint manager deleted which pod."""
    return {
        r["object"]["name"]: r["at"]
        for r in timeline["records"]
        if r["action"] == "DeletePod" and r["controller"] == "taint-eviction"
    }


def test_the_same_pods_go_some_milliseconds_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods = [pod(f"p{i}", f"a{1 + i % 2}", tolerates=(-1, 20, 40)[i % 3]) for i in range(12)]
    spec = {"objects": [*NODES, *pods], "duration": "3m", "events": [stop("10s", "a1", "a2")]}
    in_step = deletions(simulated(capsys, tmp_path / "s.json", None, **spec))
    assert len(in_step) == 12
    for seed in range(5):
        apart = deletions(simulated(capsys, tmp_path / "s.json", seed, **spec))
        assert apart.keys() == in_step.keys()
        assert all(0 <= apart[p] - in_step[p] < 0.1 for p in apart)
        assert apart != in_step


def test_a_seed_gives_the_same_bytes_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods = [pod(f"p{i}", "a1", tolerates=-1) for i in range(6)]
    spec = {"objects": [*NODES, *pods], "duration": "90s", "events": [stop("10s", "a1")]}
    one, again, other = (simulated(capsys, tmp_path / "s.json", s, **spec) for s in (3, 3, 4))
    assert one == again and one != other


def test_a_taint_that_stands_for_3_ms_evicts_by_chance(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A worker reads the node when its turn comes: it may never have seen the taint."""
    taint = {"nodes": ["a1"], "add": ["mine:NoExecute"]}
    back = {"nodes": ["a1"], "remove": ["mine:NoExecute"]}
    spec = {
        "objects": [*NODES, pod("p", "a1", tolerates=-1)],
        "duration": "30s",
        "events": [{"at": "10s", "taint": taint}, {"at": "10.003s", "taint": back}],
    }
    assert deletions(simulated(capsys, tmp_path / "s.json", None, **spec)) == {"p": 10}
    ends = {bool(deletions(simulated(capsys, tmp_path / "s.json", n, **spec))) for n in range(12)}
    assert ends == {True, False}
