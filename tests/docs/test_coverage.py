"""docs/coverage.md: its tables are whole, and the files and functions that it names exist."""

import ast
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kubectl_nodelife"
PAGE = ROOT / "docs" / "coverage.md"
HEADER = ("mechanism", "since", "code", "how a user sees it", "deviation")


class Row(NamedTuple):
    """A line of a table, with the heading above it."""

    system: str
    cells: tuple[str, ...]

    @property
    def mechanism(self) -> str:
        return self.cells[0]


def rows() -> list[Row]:
    system, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            system = line[3:]
        elif line.startswith("|") and not re.match(r"\|[| -]*\|$", line):
            cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
            if cells != HEADER:
                found.append(Row(system, cells))
    return found


@lru_cache
def names_of(path: str) -> frozenset[str]:
    """What a file defines: functions, classes and constants, and `Class.method`."""
    names: set[str] = set()
    for node in ast.parse((PACKAGE / path).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name, body=body):
                names.add(name)
                for inner in body:
                    match inner:
                        case ast.FunctionDef(name=method):
                            names.add(f"{name}.{method}")
                        case ast.AnnAssign(target=ast.Name(id=field)):
                            names.add(f"{name}.{field}")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return frozenset(names)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.mechanism[:60])
def test_a_row_is_whole_and_its_code_exists(row: Row) -> None:
    assert len(row.cells) == len(HEADER), "a cell is missing, or a | stands within one"
    _, since, code, seen, _ = row.cells
    assert since and seen
    places = re.findall(r"`([^`:]+\.py):([\w.]+)`", code)
    assert places, "name the code as `folder/file.py:function`"
    for path, name in places:
        assert (PACKAGE / path).is_file(), path
        assert name in names_of(path), f"{path} has no {name}"


def test_each_mechanism_stands_once() -> None:
    times = Counter((row.system, row.mechanism) for row in rows())
    assert [row for row, count in times.items() if count > 1] == []


@lru_cache
def uses() -> Counter[str]:
    """How often the package reads each name; its definition does not count."""
    found: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    found[name] += 1
                case ast.keyword(arg=str(name)):
                    found[name] += 1
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.mechanism[:60])
def test_the_code_that_a_row_names_is_used_by_the_package(row: Row) -> None:
    """A rule that only tests call does nothing for a user."""
    for _, name in re.findall(r"`([^`:]+\.py):([\w.]+)`", row.cells[2]):
        assert uses()[name.rpartition(".")[2]], f"nothing in the package uses {name}"
