"""Speed that cannot slip unseen: the counted work of each job's unit stays within its table."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from bench import counts

ROOT = Path(__file__).parents[1]
PYTHON = json.loads(counts.TABLE.read_bytes())["python"]


@pytest.mark.skipif(
    platform.python_version().rpartition(".")[0] != PYTHON,
    reason=f"the table is of Python {PYTHON}, and each minor version makes other calls",
)
def test_no_unit_of_work_costs_more_than_its_table_allows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "counts"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["counts"].keys() == counts.read_table().keys()
    assert told["above"] == {}, "make it cheaper, or say in the commit why it must do more"


COUNT_THREE_TIMES = """
import json
from bench._counting import CountingStopwatch

def work():
    return [str(number) for number in range(10)]

found = []
for _ in range(3):
    counter = CountingStopwatch()
    with counter:
        kept = [work() for _ in range(5)]
    found.append((counter.calls, counter.kept_blocks))
    assert len(kept) == 5
    del kept
print(json.dumps(found))
"""


def test_what_a_function_calls_is_counted_the_same_each_time() -> None:
    # In a process of its own: threads of a test run hold memory blocks too.
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREE_TIMES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    _, (calls, kept), third = json.loads(done.stdout)
    assert [calls, kept] == third, "the first run fills Python's own caches"
    assert calls >= 5
    assert kept >= 5


@pytest.mark.parametrize(
    ("title", "calls", "above"),
    [
        ("as in the table", 100.0, {}),
        ("cheaper than the table", 50.0, {}),
        ("within 3 %", 103.0, {}),
        ("4 % above", 104.0, {"pod": "calls 100.0 -> 104.0"}),
    ],
)
def test_a_unit_above_its_figure_is_named(title: str, calls: float, above: dict[str, str]) -> None:
    table = {"pod": {"calls": 100.0, "keptBlocks": 2.0}}
    assert counts.worse({"pod": {"calls": calls, "keptBlocks": 2.0}}, table) == above, title


def test_a_unit_that_the_table_does_not_have_has_no_limit() -> None:
    assert counts.worse({"new": {"calls": 9.0, "keptBlocks": 0.0}}, {}) == {}
