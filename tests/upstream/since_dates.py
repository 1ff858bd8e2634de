"""Reads from Kubernetes' own Go modules since and until which release each behaviour holds.

    python -m tests.upstream.since_dates            what the modules say, against our tables
    python -m tests.upstream.since_dates --write    the same, written to docs/since-dates.md

Run by hand where Go can fetch modules (`go mod download k8s.io/kubernetes@vX.Y.Z`, 27 of them).
A behaviour is dated by a line of the source that stands, or no longer stands, where it is done: the
mark. Dates are those of the last patch of each release, but for v1.11.0; the node lifecycle and the
kubelet begin with v1.16.0.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.settings import SWITCHES as NODES
from kubectl_nodelife.engine.settings import Span
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS
from tests.upstream import coverage_dates
from tests.upstream.coverage_dates import Dated
from tests.upstream.marks import MARKS, Mark

PAGE = Path(__file__).parents[2] / "docs" / "since-dates.md"

PATCHES = {
    11: 0, 12: 10, 13: 12, 14: 10, 15: 12, 16: 15, 17: 17, 18: 20, 19: 16, 20: 15, 21: 14, 22: 17,
    23: 17, 24: 17, 25: 16, 26: 15, 27: 16, 28: 15, 29: 15, 30: 14, 31: 14, 32: 13, 33: 9, 34: 5,
    35: 2, 36: 3, 37: 2, 38: "0-beta.0",
}  # fmt: skip
"""The patch of each minor release that is read."""

FIRST = (16, 0)
"""Where the tables of the node lifecycle and of the kubelet begin, and its patch."""

SET, NODE, KUBELET = MARKS
TABLES = {SET: DAEMON_SETS, NODE: NODES, KUBELET: KUBELETS}
ROWS = {
    SET: coverage_dates.DAEMON_SETS,
    NODE: (*coverage_dates.NODE_LIFECYCLE, *coverage_dates.AROUND),
    KUBELET: coverage_dates.KUBELETS,
}

Sources = dict[int, Path]
"""The folder of each minor release's source."""


def module(minor: int, patch: int | str) -> Path:
    """The folder of a release's source. Raises FileNotFoundError where it cannot be fetched.

    A module that asks for a later Go than the one at hand is unpacked all the same.
    """
    name = f"k8s.io/kubernetes@v1.{minor}.{patch}"
    subprocess.run(["go", "mod", "download", name], capture_output=True, check=False, cwd="/")
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, check=True, text=True)
    folder = Path(cache.stdout.strip()) / name
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return folder


def span_of(mark: Mark, sources: Sources) -> Span:
    """Since and until which release the behaviour holds. Raises ValueError where it comes twice."""
    minors = [minor for minor, source in sources.items() if mark.holds_in(source)]
    if not minors or minors != list(range(minors[0], minors[-1] + 1)):
        raise ValueError(f"{mark.rule or mark.pattern}: the releases {minors} are no span")
    since = 0 if minors[0] == min(sources) else minors[0]
    return since, None if minors[-1] == max(sources) else minors[-1] + 1


def words_of(span: Span) -> str:
    """The span as coverage.md writes it."""
    since, until = span
    if until is None:
        return f"1.{since}" if since else "-"
    if since == until - 1:
        return f"1.{since} alone"
    return f"1.{since} to 1.{until - 1}" if since else f"to 1.{until - 1}"


def evidence(mark: Mark) -> str:
    """Where the mark stands."""
    files = ", ".join(f"`{path}`" for path in mark.path.split("|"))
    pattern = mark.pattern.replace("\\n", "").replace("\\", "").replace("|", " or ")
    where = f"{files}: {'' if mark.there else 'without '}`{pattern}`"
    where += f", {mark.times} times" if mark.times > 1 else ""
    return f"{where}, gate `{mark.gate}` on" if mark.gate else where


def rule_row(mark: Mark, span: Span) -> str:
    """The line of a rule of our tables."""
    since = f"1.{span[0]}" if span[0] else "-"
    until = f"1.{span[1] - 1}" if span[1] is not None else "-"
    return f"| `{mark.rule}` | {since} | {until} | {evidence(mark)} |"


def cells(dated: Dated, sources: Sources) -> Iterator[tuple[str, str]]:
    """(mechanism, since) of rows of coverage.md. Raises ValueError where a mark has no span."""
    spans = [span_of(mark, sources) for mark in dated.marks]
    for row in dated.rows:
        yield row, dated.words.format(*map(words_of, spans))
    for row in dated.before:
        yield row, words_of((0, spans[0][0]))


HEAD = """# Since and until which release

For maintainers: which release began or ended each behaviour, and which line of it says so.

Written by `python -m tests.upstream.since_dates --write` from each release's Go module. `since`
and `until` are the first and the last release that show the behaviour, with their last patch (the
node lifecycle and the kubelet begin with v1.16.0); the tables in the code that they are held
against are `controllers/daemonset/behaviour.py`, `engine/settings.py` and `kubelet/releases.py`.
Then come the rows of [coverage.md](coverage.md) that do not hold in every release, each with the
line that dates it.
"""


def rules(name: str, sources: Sources, differences: list[str]) -> Iterator[str]:
    """The lines of one table."""
    yield from (f"## {name[0].upper()}{name[1:]}", "")
    yield from ("| behaviour | since | until | dated by |", "| --- | --- | --- | --- |")
    for mark in MARKS[name]:
        try:
            span = span_of(mark, sources)
        except ValueError as error:
            differences.append(str(error))
            continue
        yield rule_row(mark, span)
        if span != TABLES[name][mark.rule]:
            differences.append(f"{mark.rule}: {span}, our table has {TABLES[name][mark.rule]}")
    yield ""


def rows(dates: Iterable[Dated], sources: Sources, differences: list[str]) -> Iterator[str]:
    """The lines of rows of coverage.md."""
    for dated in dates:
        try:
            for row, since in cells(dated, sources):
                yield f"| {row} | {since} | {'; '.join(map(evidence, dated.marks))} |"
        except ValueError as error:
            differences.append(str(error))


def page(of: dict[str, Sources]) -> tuple[str, list[str]]:
    """The page, and what differs from our tables."""
    lines, differences = [HEAD], list[str]()
    for name, sources in of.items():
        lines += rules(name, sources, differences)
    lines += ["## Rows of coverage.md", "", "| row | since | dated by |", "| --- | --- | --- |"]
    for name, sources in of.items():
        lines += rows(ROWS[name], sources, differences)
    lines += ["", "No line of two releases' last patches dates these:", ""]
    lines += [f"- {row}: {why}" for row, why in coverage_dates.UNDATED.items()]
    return "\n".join([*lines, ""]), differences


def main() -> int:
    """Compare, and write the page where asked."""
    all_of_them = {minor: module(minor, patch) for minor, patch in PATCHES.items()}
    first, patch = FIRST
    later = {minor: source for minor, source in all_of_them.items() if minor >= first}
    later[first] = module(first, patch)
    text, differences = page({SET: all_of_them, NODE: later, KUBELET: later})
    if "--write" in sys.argv:
        PAGE.write_text(text)
    print("\n".join(differences) or "our tables are what the modules say")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
