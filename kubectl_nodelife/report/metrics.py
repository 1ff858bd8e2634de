"""The page of `metrics list`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import Table, columns

_COLUMNS = columns("name | type | labels | most series | help*")


class _Family(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def most(self) -> str: ...

    @property
    def help(self) -> str: ...


class MetricsPage:
    """The table of metrics as an answer. In `most`, `z` stands for each zone, `n` for each node."""

    def __init__(self, families: Sequence[_Family]) -> None:
        self._families = families

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The table."""
        rows = [(f.name, f.type, ", ".join(f.labels), f.most, f.help) for f in self._families]
        yield Table(_COLUMNS, rows)

    def document(self) -> object:
        """The MetricList."""
        return document(
            "MetricList",
            items=[
                {
                    "name": family.name,
                    "type": family.type,
                    "labels": list(family.labels),
                    "mostSeries": family.most,
                    "help": family.help,
                }
                for family in self._families
            ],
        )

    def names(self) -> Iterable[str]:
        """metric/NAME of each."""
        return (f"metric/{family.name}" for family in self._families)
