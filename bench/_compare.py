"""`python -m bench compare REV [NAME ...]`: this tree beside another commit, run by run in turn.

Each side runs its own bench in a process of its own, in a work tree of its own, with the packages
of this environment. They alternate, so that a machine that grows slower does so for both. CPU time
is compared, the lowest of the runs: other programs change it less than wall time.

With --counts nothing is run: the two commits' `counts.json` are compared, which a test holds to
what each commit does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tabulate import tabulate

from bench import BenchFailed
from bench._process import ROOT, run_bench

TIMES = 3
DEFAULT = ("audit", "drain-plan", "monitor-pass", "present", "status", "upgrade", "zone-outage")
"""Benches that need no control plane, and less than a minute at their default size."""

TABLE: Final = "bench/counts.json"


class Compared(NamedTuple):
    """The CPU seconds of one bench's runs: of the other commit, and of this tree."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """This tree's lowest to the other's lowest."""
        return min(self.after) / min(self.before)

    def row(self) -> tuple[str, ...]:
        """The table's row; the spread is of the highest to the lowest of a side's runs."""
        spreads = (max(runs) / min(runs) - 1 for runs in (self.before, self.after))
        return (
            self.name,
            f"{min(self.before):.2f} s",
            f"{min(self.after):.2f} s",
            f"{self.ratio:.2f}",
            " / ".join(f"{spread:.0%}" for spread in spreads),
        )


def main(argv: Sequence[str]) -> None:
    """Parse the command line, run, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("revision", metavar="REV", help="a commit, a branch or a tag")
    parser.add_argument("names", nargs="*", default=DEFAULT, metavar="NAME")
    parser.add_argument("--times", type=int, default=TIMES, help=f"runs a side, {TIMES} by default")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--pods", type=int)
    parser.add_argument("--counts", action="store_true", help="the tables of counts, without a run")
    given = parser.parse_args(argv)
    if given.counts:
        print_counts(table_of(given.revision), json.loads((ROOT / TABLE).read_bytes()))
        return
    size = [f"--{key}={n}" for key in ("nodes", "pods") if (n := getattr(given, key)) is not None]
    with work_tree(given.revision) as other:
        rows = [row for name in given.names for row in rows_of(name, size, other, given.times)]
    headers = ("BENCH", "BEFORE", "AFTER", "RATIO", "SPREAD")
    print(tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True))


def table_of(revision: str) -> Mapping[str, Any]:
    """The counts that a commit holds."""
    shown = _git("show", f"{revision}:{TABLE}")
    if shown.returncode:
        sys.exit(f"error: {shown.stderr.strip()}")
    return dict(json.loads(shown.stdout))


def print_counts(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """The table of both commits' counts."""
    headers = ("A UNIT'S CALLS", "BEFORE", "AFTER", "RATIO")
    print(tabulate(counts_rows(before, after), headers=headers, tablefmt="plain"))


def counts_rows(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, float | None, float | None, float | None]]:
    """A row for each unit of work that either table has: Python calls before and after."""
    rows = []
    for unit in {**before["counts"], **after["counts"]}:
        was, now = (table["counts"].get(unit, {}).get("calls") for table in (before, after))
        rows.append((unit, was, now, round(now / was, 2) if was and now else None))
    return rows


@contextmanager
def work_tree(revision: str) -> Iterator[Path]:
    """A folder with the files of the commit; it is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        added = _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        if added.returncode:
            sys.exit(f"error: {added.stderr.strip()}")
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def rows_of(name: str, size: Sequence[str], other: Path, times: int) -> list[tuple[str, ...]]:
    """The row of one bench; if a side cannot run it, the row has no figures and names the side."""
    before: list[float] = []
    after: list[float] = []
    for number in range(times):
        print(f"{name}: run {number + 1} of {times}", file=sys.stderr)
        for tree, runs in ((other, before), (ROOT, after)):
            seconds = cpu_seconds(tree, [name, *size])
            if seconds is None:
                which = "this tree" if tree is ROOT else "the other commit"
                return [(name, "", "", "", f"{which} cannot run it")]
            runs.append(seconds)
    return [Compared(name, tuple(before), tuple(after)).row()]


def cpu_seconds(tree: Path, arguments: Sequence[str]) -> float | None:
    """The CPU seconds of the bench's measured part in that tree; None where it fails."""
    try:
        return float(run_bench(arguments, tree)["cpuSeconds"])
    except BenchFailed:
        return None


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
