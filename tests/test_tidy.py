"""Limits that keep the code readable; a failure prints what is over and by which rule."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.deep import DEEP, why_deep

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


SAYS_WHAT_A_CALL_DOES = re.compile(
    r"(Called|Is called|Sends|Takes|Gets|Receives|Runs|Turns|Finds|True if)\b"
)
SAYS_HOW_MUCH = re.compile(r"(For so|After so|So|How) (long|many|often|much)\b")
SAYS_WHICH_WORDS = re.compile(r"(The|Part of|How|Of|In|As|For|Stands) ?")
NUMBER = re.compile(r"\d|_NS\b|_S\b|SECOND|MINUTE|HOUR")
MAPPING = re.compile(r"dict|Mapping|\{|Callable|list|tuple|Sequence")


def strayed_docstrings(name: str, tree: ast.Module) -> list[str]:
    """Docstrings of constants that cannot be about the constant above them."""
    return [
        f"{name}:{text.lineno} {ast.unparse(constant)[:40]}"
        for constant, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(constant, ast.Assign | ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
        and not fits(constant, text.value.value)
    ]


def fits(constant: ast.Assign | ast.AnnAssign, text: str) -> bool:
    """True if text that speaks of a call, an amount, a mapping or words is about such a thing."""
    told, value = ast.unparse(constant), constant.value
    if SAYS_WHAT_A_CALL_DOES.match(text):
        return "Callable" in told
    if SAYS_HOW_MUCH.match(text):
        return NUMBER.search(told) is not None
    if re.match(r"\(?\w+(, \w+)*\)? ->", text):
        return MAPPING.search(told) is not None
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and " " in value.value:
        return SAYS_WHICH_WORDS.match(text) is not None
    return True


def test_a_docstring_stands_under_the_constant_that_it_is_about() -> None:
    over = [found for name, tree in trees(PACKAGE) for found in strayed_docstrings(name, tree)]
    complain("the docstring of a constant follows it", over)
    planted = (
        'LOOK_S: Final = 1.0\n"""Sends a notice; True if it was taken."""',
        'Shown = Put | Gone\n"""Called with an object as it was and as it is."""',
        'KEEP_NS: Final = SECOND_NS\n"""(kind, key) -> the object as it was seen last."""',
        'RESTARTED = "the daemon was restarted"\n"""Settled actions that can still be named."""',
        'Target = tuple[str, str]\n"""For so long a daemon goes on without its program."""',
    )
    assert [bool(strayed_docstrings("x.py", ast.parse(one))) for one in planted] == [True] * 5


def is_there(named: str) -> bool:
    path, _, test = named.partition("::")
    return (ROOT / path).exists() and (not test or f"def {test}(" in (ROOT / path).read_text())


def test_what_is_called_deep_is_there() -> None:
    over = [name for names in DEEP.values() for name in names.split() if not is_there(name)]
    complain("tests/deep.py names files, folders and tests that there are", over)
    assert not is_there("tests/test_tidy.py::test_nothing")


SMOKE = ROOT / "tests/test_smoke.py"
STARTS = re.compile(r"from tests\.(daemon\.user|acts\.program|ui\.browser|release\.users) import")
"""What starts daemons, verbs that act, Chromium and installed programs for tests."""


def test_what_starts_daemons_and_programs_is_deep() -> None:
    over = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        inside = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        is_deep = why_deep(inside) or "pytest.mark.deep" in text
        if path != SMOKE and STARTS.search(text) and not is_deep:
            over.append(inside)
    complain("what starts daemons and programs is deep, see tests/deep.py", over)
    assert STARTS.search(SMOKE.read_text())
