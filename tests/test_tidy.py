"""Limits that keep the code readable; a failure prints what is over and by which rule."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("kubectl_nodelife", "bench", "release", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGE = [path for path in SOURCES if path.is_relative_to(ROOT / "kubectl_nodelife")]

FUNCTION_LINES = 50
FILE_LINES = 600
COLUMNS = 100

PRINTERS = ("report", "cli.py")
YES_OR_NO = ("bool", "TypeGuard", "TypeIs")


def complain(rule: str, over: list[str]) -> None:
    assert not over, f"rule: {rule}; {len(over)} over:\n" + "\n".join(over)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def trees(paths: list[Path]) -> Iterator[tuple[str, ast.Module]]:
    for path in paths:
        yield str(path.relative_to(ROOT)), tree_of(path)


def test_functions_are_short() -> None:
    over = [
        f"{name}:{node.lineno} {node.name}: {length} lines"
        for name, tree in trees(SOURCES)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]
    complain(f"a function has at most {FUNCTION_LINES} lines", over)


def test_a_class_name_means_one_thing() -> None:
    """Whoever reads a name in one folder must not think of another folder's class."""
    where: dict[str, list[str]] = {}
    for name, tree in trees(PACKAGE):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    twice = [f"{name}: {', '.join(places)}" for name, places in where.items() if len(places) > 1]
    complain("a class name stands once in the package", twice)


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES}
    over = [
        f"{path.relative_to(ROOT)}: {length} lines"
        for path, length in lengths.items()
        if length > FILE_LINES
    ]
    complain(f"a file has at most {FILE_LINES} lines", over)


def test_lines_are_short() -> None:
    over = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    complain(f"a line has at most {COLUMNS} columns", over)


def test_files_of_the_package_begin_with_prose() -> None:
    over = [name for name, tree in trees(PACKAGE) if tree.body and not ast.get_docstring(tree)]
    complain("a file with code begins with a docstring that says what it is", over)


def test_public_functions_and_classes_say_what_they_do() -> None:
    over = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees(PACKAGE)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    complain("a public function or class has a docstring", over)


def unclear_predicates(name: str, tree: ast.Module) -> list[str]:
    """Functions whose name asks yes or no, and which answer something else."""
    return [
        f"{name}:{node.lineno} {node.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.lstrip("_").startswith(("is_", "has_"))
        and (node.returns is None or ast.unparse(node.returns).split("[")[0] not in YES_OR_NO)
    ]


def test_what_asks_yes_or_no_answers_it() -> None:
    over = [found for name, tree in trees(SOURCES) for found in unclear_predicates(name, tree)]
    complain("is_... and has_... return a bool", over)
    planted = ast.parse("def is_ready(node) -> str: ...\ndef _has_taint(node): ...")
    assert unclear_predicates("x.py", planted) == ["x.py:1 is_ready", "x.py:2 _has_taint"]


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE}
    over = [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()]
    complain("each folder of the package has an __init__.py, or a wheel leaves it out", over)


def test_only_report_and_cli_print() -> None:
    over = []
    for path in PACKAGE:
        if path.relative_to(ROOT / "kubectl_nodelife").parts[0] not in PRINTERS:
            over += [
                f"{path.relative_to(ROOT)}:{node.lineno}"
                for node in ast.walk(tree_of(path))
                if prints(node)
            ]
    complain("only report/ and cli.py print", over)


def prints(node: ast.AST) -> bool:
    """True if the node calls print, or mentions click.echo, sys.stdout or sys.stderr."""
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return True
        case ast.Attribute(value=ast.Name(id="click"), attr="echo" | "secho"):
            return True
        case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
            return True
    return False
