"""How many files of the package run for a question, from its command to its output.

Each command is run twice on a dump, and the second time is traced: by then modules are imported and
Python's caches are filled. A file counts once one of its functions is entered; `before`, `in` and
`after` count the files entered until the function that decides is called, in it, and from its
return to the last line of output.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import kubectl_nodelife
from bench import BenchFailed, Stopwatch
from kubectl_nodelife.cli import main

NODES = PODS = 0
ROOT: Final = Path(kubectl_nodelife.__file__).parent
DUMP: Final = str(ROOT.parent / "tests" / "dumps" / "two-zones")


class Walk(NamedTuple):
    """A command, and the function that decides: its file below the package, and its name."""

    words: tuple[str, ...]
    file: str
    function: str


WALKS: Final = {
    "status": Walk(("status", "worker-a3"), "outlook/node.py", "node"),
    "explain node": Walk(("explain", "node", "worker-a3"), "outlook/node.py", "node"),
    "drain-plan": Walk(
        ("drain-plan", "worker-a3", "--ignore-daemonsets"), "drain/plan.py", "planned"
    ),
    "what-if": Walk(
        ("what-if", "lose", "node", "worker-a3"), "outlook/what_if/question.py", "play"
    ),
    "daemonset": Walk(("daemonset", "-A"), "outlook/daemonset/summary.py", "summarize"),
    "upgrade plan": Walk(
        ("upgrade", "plan", "worker-a1", "--nothing"), "upgrade/plan.py", "make_upgrade_plan"
    ),
}


class Trace:
    """The files that are entered inside the `with` block, by phase: until the walk's function is
    called, in it, and from its return.
    """

    def __init__(self, walk: Walk) -> None:
        self.files: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        self._decides = (str(ROOT / walk.file), walk.function)
        self._phase = 0
        self._inside: FrameType | None = None

    def __enter__(self) -> Trace:
        sys.setprofile(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _entered(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "return" and frame is self._inside:
            self._phase, self._inside = 2, None
        if event != "call" or not code.co_flags & CO_OPTIMIZED:  # the body of a module or a class
            return
        if self._inside is None and (code.co_filename, code.co_name) == self._decides:
            self._phase, self._inside = 1, frame
        path = Path(code.co_filename)
        if ROOT in path.parents:
            self.files[self._phase].add(str(path.relative_to(ROOT)))


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Trace each of the walks. Raises BenchFailed where a command has no answer."""
    with stopwatch:
        return {name: count(walk) for name, walk in WALKS.items()}


def count(walk: Walk) -> dict[str, int]:
    """How many files, in all and by phase."""
    words = [*walk.words, "-f", DUMP]
    _run(words)
    with Trace(walk) as trace:
        _run(words)
    before, inside, after = trace.files
    if not inside:
        raise BenchFailed(f"{' '.join(words)} never calls {walk.function} of {walk.file}")
    return {
        "files": len(before | inside | after),
        "before": len(before),
        "in": len(inside),
        "after": len(after),
    }


def _run(words: Sequence[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(list(words))
    if not out.getvalue():
        raise BenchFailed(f"{' '.join(words)} prints nothing")
