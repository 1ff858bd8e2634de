"""The frame of the benches: the object that others read."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from bench import BenchFailed, Stopwatch, __main__, _compare
from bench._compare import Compared
from bench.enforce_burst import check_counts


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


def test_a_burst_in_which_one_left_pods_unmarked_has_no_figures() -> None:
    counts = {"lostNodes": 2, "lostPods": 20}
    counts |= {f"{who}TaintedNodes": 2 for who in ("ours", "real")}
    check_counts({**counts, "oursMarkedPods": 20, "realMarkedPods": 20})
    with pytest.raises(BenchFailed, match=r"MarkedPods of 20: \{'ours': 5, 'real': 20\}"):
        check_counts({**counts, "oursMarkedPods": 5, "realMarkedPods": 20})


def test_a_comparison_takes_the_lowest_of_each_side_and_tells_the_spread() -> None:
    compared = Compared("audit", before=(2.0, 2.5), after=(1.5, 1.0))
    assert compared.ratio == 0.5
    assert compared.row() == ("audit", "2.00 s", "1.00 s", "0.50", "25% / 50%")


def test_a_comparison_alternates_and_names_the_side_that_cannot_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = []

    def cpu_seconds(tree: Path, arguments: Sequence[str]) -> float | None:
        ran.append("other" if tree is tmp_path else "this")
        return None if arguments[0] == "newer" and tree is tmp_path else 1.0

    monkeypatch.setattr(_compare, "cpu_seconds", cpu_seconds)
    rows = _compare.rows_of("audit", [], tmp_path, 2)
    assert (ran, rows[0][3]) == (["other", "this"] * 2, "1.00")
    rows = _compare.rows_of("newer", [], tmp_path, 2)
    assert rows == [("newer", "", "", "", "the other commit cannot run it")]


def test_tables_of_counts_are_compared_unit_by_unit() -> None:
    before = {"counts": {"pod audited": {"calls": 20.0}, "pod drawn": {"calls": 1.0}}}
    after = {"counts": {"pod audited": {"calls": 15.0}, "pod moved": {"calls": 2.0}}}
    assert _compare.counts_rows(before, after) == [
        ("pod audited", 20.0, 15.0, 0.75),
        ("pod drawn", 1.0, None, None),
        ("pod moved", None, 2.0, None),
    ]


def test_a_revision_without_a_table_ends_the_comparison_in_a_line() -> None:
    with pytest.raises(SystemExit, match=r"error: .*no-such-tag"):
        _compare.table_of("no-such-tag")
