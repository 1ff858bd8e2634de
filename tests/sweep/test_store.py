"""Runs in files: lines as they come, in the study's order at the end, and read again."""

from pathlib import Path

import msgspec
import pytest

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.sweep.result import LINES, TABLE, RunStore, runs_of
from kubectl_nodelife.sweep.runs import Plan
from tests.sweep.stand import base, plan, refusal

RUNS = runs_of([{"zones": 1}, {"zones": 2}], [1, 2])


def figures(of: Plan, number: int) -> dict[str, float]:
    return {name: float(number) for name in of.measures}


def filled(folder: Path, of: Plan, numbers: list[int]) -> bytes:
    with RunStore(folder, of, RUNS, resume=False) as store:
        for number in numbers:
            store.add(number, figures(of, number))
        store.finish({})
    return (folder / LINES).read_bytes()


def test_lines_are_in_the_studys_order_however_they_came(tmp_path: Path) -> None:
    of = plan(base([]))
    found = filled(tmp_path / "a", of, [2, 0, 3, 1])
    assert found == filled(tmp_path / "b", of, [0, 1, 2, 3])
    assert [msgspec.json.decode(line)["seed"] for line in found.splitlines()] == [1, 2, 1, 2]


def test_the_table_has_a_column_for_each_name_and_measure(tmp_path: Path) -> None:
    from pyarrow import parquet

    of = plan(base([]))
    filled(tmp_path, of, [0, 1, 2, 3])
    table = parquet.read_table(tmp_path / TABLE)
    assert table.column_names == ["zones", "seed", *of.measures]
    assert table["zones"].to_pylist() == [1, 1, 2, 2]
    assert table["evictions"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("torn", [b"", b'{"key":"', b"\x00\xff\n", b"[1]\n"])
def test_a_torn_last_line_is_dropped_and_nothing_is_repeated(tmp_path: Path, torn: bytes) -> None:
    of = plan(base([]))
    whole = filled(tmp_path / "whole", of, [0, 1, 2, 3])
    filled(tmp_path / "torn", of, [0, 1])
    with open(tmp_path / "torn" / LINES, "ab") as file:
        file.write(torn)
    with RunStore(tmp_path / "torn", of, RUNS, resume=True) as store:
        assert sorted(store.found) == [0, 1]
        for number in (2, 3):
            store.add(number, figures(of, number))
        store.finish({})
    assert (tmp_path / "torn" / LINES).read_bytes() == whole
    tables = {(tmp_path / name / TABLE).read_bytes() for name in ("whole", "torn")}
    assert len(tables) == 1


def test_runs_of_another_study_or_cluster_are_not_taken(tmp_path: Path) -> None:
    filled(tmp_path, plan(base([])), [0, 1, 2, 3])
    with RunStore(tmp_path, plan(base([], nodes=("a1",))), RUNS, resume=True) as store:
        assert store.found == {}


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    of = plan(base([]))
    before = filled(tmp_path, of, [0])
    line = refusal(lambda: RunStore(tmp_path, of, RUNS, resume=False))
    assert (
        line == f"{tmp_path}: holds runs already; go on with --resume, or name another folder "
        "with --out"
    )
    assert (tmp_path / LINES).read_bytes() == before


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    of = plan(base([]))
    full = "cannot be written: No space left on device; make room, and go on with --resume"
    with (
        open("/dev/full", "ab", buffering=0) as file,
        pytest.raises(Failed, match=full),
        RunStore(tmp_path, of, RUNS, resume=False) as store,
    ):
        store._out = file
        store.add(0, figures(of, 0))
