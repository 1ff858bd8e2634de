"""The page of `doctor`: each check, what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kubectl_nodelife.document import API_VERSION
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import NONE, Table, columns

OK, WARNING, FAILED = "ok", "warning", "failed"

_COLUMNS = columns("check | result | found | to do")


class Finding(NamedTuple):
    """The finding of one check: OK, WARNING or FAILED, in words, and what to do about it."""

    check: str
    result: str
    found: str
    remedy: str = ""


class DoctorPage:
    """All findings, in the order of the checks."""

    def __init__(self, findings: Sequence[Finding], hint: str = "") -> None:
        """`hint`: the last line for people, "" for none."""
        self._findings, self._hint = findings, hint

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """A line for each check."""
        bad = [f for f in self._findings if f.result != OK]
        if not bad:
            yield f"Nothing is missing: {counted(len(self._findings), 'check')} passed."
        else:
            first = next((f for f in bad if f.result == FAILED), bad[0])
            failed = sum(f.result == FAILED for f in bad)
            many = counted(len(self._findings), "check")
            yield (
                f"Of {many} {failed} failed, {counted(len(bad) - failed, 'warning')}; the first "
                f"is {first.check}: {first.found}."
            )
        rows = [(f.check, f.result, f.found, f.remedy or NONE) for f in self._findings]
        yield Table(_COLUMNS, rows)
        if self._hint:
            yield self._hint

    def document(self) -> object:
        """The same for programs."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Doctor",
            "items": [finding._asdict() for finding in self._findings],
        }

    def names(self) -> Iterable[str]:
        """The checks that did not pass."""
        yield from (f"check/{f.check}" for f in self._findings if f.result != OK)
