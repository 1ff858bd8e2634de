"""Makes the screens in the documentation's pages anew: `python -m release.page_screens [PAGE...]`.

A block of a page that begins with `$ kubectl nodelife` has a comment in front of it that says where
it comes from:

    <!-- screen in FOLDER -->        made by its commands, run in that folder of the repository
    <!-- screen on the sandbox -->   made on a sandbox like that of the page of screens, in order
    <!-- screen of DATE, WHERE -->   seen elsewhere; `a control plane: NAME` is made anew by
                                     tests/real/page_screens.py, which knows its NAME

A test checks that what is committed is what the commands print now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from release.screens import ROOT, sandbox

DOCS = ROOT / "docs"
PROGRAM = (sys.executable, "-m", "kubectl_nodelife")
ON_SANDBOX = "on the sandbox"

_PROMPT = "$ kubectl nodelife "
_SCREEN = re.compile(r"^<!-- screen ([^\n]+?) -->\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^(?:```\n|    )\$ kubectl nodelife .*$", re.MULTILINE)
_MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r"(watching|warming up) +\d+"), r"\1 PID"),
    (re.compile(r"\b(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?s\b|\b\d+m\b"), "TIME"),
    (re.compile(r" +"), " "),
)


class Screen(NamedTuple):
    """A marked block of a page."""

    source: str
    text: str

    def commands(self) -> list[str]:
        """The typed commands, without the program's name."""
        lines = self.text.splitlines()
        return [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]

    def is_made(self) -> bool:
        """True if it can be made anew."""
        return not self.source.startswith("of ")


def screens(page: str) -> list[Screen]:
    """The marked blocks of a page in Markdown."""
    return [Screen(found[1], found[2]) for found in _SCREEN.finditer(page)]


def unmarked(page: str) -> list[str]:
    """The first lines of blocks that look like screens and have no mark."""
    rest = _SCREEN.sub("", page)
    return [found[0].removeprefix("```").strip() for found in _BLOCK.finditer(rest)]


def remake(page: str) -> str:
    """The page with all screens as the commands print them now."""
    made = iter([screen for screen in screens(page) if screen.is_made()])
    texts = _remade(list(made))

    def replaced(found: re.Match[str]) -> str:
        screen = Screen(found[1], found[2])
        text = next(texts) if screen.is_made() else screen.text
        return f"<!-- screen {screen.source} -->\n```\n{text}```"

    return _SCREEN.sub(replaced, page)


def comparable(page: str) -> str:
    """The page; screens of a sandbox without what differs each time: times, ports, pids, widths."""

    def masked(found: re.Match[str]) -> str:
        return _mask(found[0]) if found[1] == ON_SANDBOX else found[0]

    return _SCREEN.sub(masked, page)


def _mask(text: str) -> str:
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text


def _remade(wanted: list[Screen]) -> Iterator[str]:
    if not any(screen.source == ON_SANDBOX for screen in wanted):
        yield from (_run(screen, os.environ, ROOT) for screen in wanted)
        return
    with tempfile.TemporaryDirectory(prefix="nl-") as name, sandbox(Path(name)) as environ:
        try:
            for screen in wanted:
                yield _run(screen, environ, Path(name))
        finally:
            subprocess.run([*PROGRAM, "daemon", "stop"], env=environ, capture_output=True)


def _run(screen: Screen, environ: Mapping[str, str], home: Path) -> str:
    folder = home if screen.source == ON_SANDBOX else ROOT / screen.source.removeprefix("in ")
    parts = []
    for words in screen.commands():
        done = subprocess.run(
            [*PROGRAM, *words.split()], env={**environ, "PYTHONPATH": str(ROOT)}, cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        )  # fmt: skip
        printed = done.stdout.replace(str(home), "~") if home != ROOT else done.stdout
        lines = [line.rstrip() for line in printed.rstrip().splitlines()]
        parts.append("\n".join([f"{_PROMPT}{words}", *lines]) + "\n")
    return "".join(parts)


def pages() -> list[Path]:
    """The README and the pages of docs/."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def main(names: list[str]) -> None:
    """Make the screens of those pages anew, in place; default: all pages."""
    for path in [DOCS / name for name in names] or pages():
        before = path.read_text()
        after = remake(before)
        if comparable(after) != comparable(before):
            path.write_text(after)
            print(f"{path.relative_to(ROOT)}: made anew")


if __name__ == "__main__":
    main(sys.argv[1:])
