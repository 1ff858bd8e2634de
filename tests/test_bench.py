"""The frame of the benches: the object that others read."""

from __future__ import annotations

import json
import sys
import time
from types import ModuleType

import pytest

from bench import Stopwatch, __main__


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench `small-one` that sleeps: half a measured part, half not."""

    def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
        time.sleep(0.05)
        for _ in range(2):
            with stopwatch:
                time.sleep(0.02)
        return {"sizes": [nodes, pods, seed]}

    module = ModuleType("bench.small_one")
    module.run = run  # type: ignore[attr-defined]
    module.NODES = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.small_one", module)
    monkeypatch.setattr(__main__, "names", lambda: ["small-one"])


@pytest.mark.usefixtures("small")
def test_the_object_has_the_contracted_keys(capsys: pytest.CaptureFixture) -> None:
    __main__.main(["small-one", "--pods", "9", "--seed", "3", "-o", "json"])
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == [
        *("name", "nodes", "pods", "seed", "wallSeconds", "cpuSeconds", "peakRssBytes"),
        *("referenceSeconds", "ratio", "sizes"),
    ]
    assert (figures["name"], figures["sizes"]) == ("small-one", [7, 9, 3])
    assert figures["wallSeconds"] >= 0.04
    assert figures["cpuSeconds"] < figures["wallSeconds"]  # it slept
    assert figures["ratio"] == pytest.approx(
        figures["wallSeconds"] / figures["referenceSeconds"], rel=0.01
    )
    assert figures["peakRssBytes"] > 5_000_000


@pytest.mark.usefixtures("small")
def test_an_unknown_bench_names_those_that_exist(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        __main__.main(["large-one"])
    assert stopped.value.code == 2
    assert "small-one" in capsys.readouterr().err


def test_every_module_in_the_folder_is_a_bench() -> None:
    for name in __main__.names():
        module = __import__(f"bench.{name.replace('-', '_')}", fromlist=["run"])
        assert callable(module.run) and module.__doc__
