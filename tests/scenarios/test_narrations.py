"""Each scenario's narration must be the one beside it, and the same in every run."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.yaml"))


def narrate(scenario: Path, capsys: pytest.CaptureFixture[str], output: str) -> str:
    code = main(["simulate", "-f", scenario.name, "-o", output])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_narration(
    scenario: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(HERE)  # origins of settings name the file
    told = narrate(scenario, capsys, "table")
    golden = scenario.with_suffix(".narration")
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(told)
    assert told == golden.read_text()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_equal_runs_give_equal_bytes(
    scenario: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    assert narrate(scenario, capsys, "json") == narrate(scenario, capsys, "json")


def test_there_are_enough_of_them() -> None:
    assert len(SCENARIOS) >= 10
    assert {p.stem for p in SCENARIOS} == {p.stem for p in HERE.glob("*.narration")}
