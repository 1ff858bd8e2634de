"""Asks about situations that operators reported in public, each in a folder beside this file.

`right.json` there says in a few facts what the right answer is.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.cli import main

FOLDER = Path(__file__).parent
NOW = ("--now", "2026-09-20T12:00:00Z")


class Told(NamedTuple):
    """The exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.out)


class Report:
    """A folder with dumps about which verbs are asked."""

    def __init__(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = FOLDER / folder
        self._capsys = capsys

    def ask(self, *words: str, dump: str, now: bool = True) -> Told:
        """What the command says of the dump at noon, or at the moment that the dump itself has."""
        self._capsys.readouterr()
        code = main([*words, "-f", str(self._folder / dump), *(NOW if now else ())])
        out, err = self._capsys.readouterr()
        return Told(code, out, err)

    def simulate(self, scenario: str, *words: str) -> Told:
        """The play of a scenario or a dump."""
        self._capsys.readouterr()
        code = main(["simulate", "-f", str(self._folder / scenario), *words])
        out, err = self._capsys.readouterr()
        return Told(code, out, err)


def sections(told: Told) -> dict[str, list[str]]:
    """An explanation's sentences by question."""
    return {a["question"]: a["sentences"] for a in told.document["answers"]}


def first_lines(told: Told) -> str:
    """What ends the search, or does not: the first three lines."""
    return "\n".join(told.out.splitlines()[:3])
