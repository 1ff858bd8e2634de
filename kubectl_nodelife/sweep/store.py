"""The runs of a study in files: `runs.jsonl`, a whole line for each run as it comes in the study's
order, and `runs.parquet` of the same at the end.

A line has the run's key (see `Plan.key`), so that a study which was interrupted goes on where it
was, and one that was changed repeats only what is new. A torn last line is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.sweep.runs import Plan, RunId

LINES: Final = "runs.jsonl"
TABLE: Final = "runs.parquet"


class RunStore:
    """A context: the folder's runs.jsonl, open to be written. Raises Failed by the disk's word."""

    def __init__(self, folder: Path, plan: Plan, runs: Sequence[RunId], *, resume: bool) -> None:
        """Raises BadInput where there are runs already, and `resume` is not meant."""
        self.folder, self._plan, self._runs = folder, plan, runs
        self.path = folder / LINES
        self._keys = {run.number: plan.key(run) for run in runs}
        self._out: IO[bytes] | None = None
        self.found: dict[int, dict[str, float]] = {}
        if not resume and self.path.exists():
            remedy = "go on with --resume, or name another folder with --out"
            raise BadInput("holds runs already", on=str(folder), remedy=remedy)
        self._read = self._known() if resume else {}

    def __enter__(self) -> RunStore:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_all(self._read)
            self._out = open(self.path, "ab")
        except OSError as error:
            raise self._failed(error) from None
        self.found = dict(self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._out is not None:
            try:
                self._out.close()
            except OSError as failure:
                if error is None:
                    raise self._failed(failure) from None

    def add(self, number: int, measures: dict[str, float]) -> None:
        """Take in a run."""
        assert self._out is not None
        try:
            self._out.write(self._line(number, measures))
            self._out.flush()
        except OSError as error:
            raise self._failed(error) from None
        self.found[number] = measures

    def finish(self, documents: Mapping[str, bytes]) -> None:
        """Put all runs in the study's order, and write the table and these files."""
        try:
            if self._out is not None:
                self._out.close()
            self._write_all(self.found)
            self._write_table()
            for name, content in documents.items():
                (self.folder / name).write_bytes(content)
        except OSError as error:
            raise self._failed(error) from None

    def _line(self, number: int, measures: Mapping[str, float]) -> bytes:
        run = self._runs[number]
        told = {"key": self._keys[number], "point": run.point, "seed": run.seed}
        return msgspec.json.encode({**told, **measures}) + b"\n"

    def _known(self) -> dict[int, dict[str, float]]:
        """The runs that the file has of this study, by number."""
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as error:
            raise self._failed(error) from None
        numbers = {key: number for number, key in self._keys.items()}
        found: dict[int, dict[str, float]] = {}
        for line in lines:
            try:
                told: Any = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(told, dict) and told.get("key") in numbers:
                measures: dict[str, Any] = {name: told.get(name) for name in self._plan.measures}
                if all(isinstance(value, (int, float)) for value in measures.values()):
                    found[numbers[told["key"]]] = measures
        return dict(sorted(found.items()))

    def _write_all(self, found: Mapping[int, Mapping[str, float]]) -> None:
        draft = self.folder / f".{LINES}.part"
        with open(draft, "wb") as out:
            out.writelines(self._line(number, found[number]) for number in sorted(found))
        os.replace(draft, self.path)

    def _write_table(self) -> None:
        """A column for each name of the space, the seed, and each measure."""
        import pyarrow
        from pyarrow import parquet

        rows = [(self._runs[number], self.found[number]) for number in sorted(self.found)]
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(name for run, _ in rows for name in run.point):
            values = [run.point.get(name) for run, _ in rows]
            plain = all(isinstance(v, (int, float)) or v is None for v in values)
            columns[name] = values if plain else [None if v is None else str(v) for v in values]
        columns["seed"] = [run.seed for run, _ in rows]
        for name in self._plan.measures:
            columns[name] = [float(measures[name]) for _, measures in rows]
        draft = self.folder / f".{TABLE}.part"
        parquet.write_table(pyarrow.table(columns), draft)
        os.replace(draft, self.folder / TABLE)

    def _failed(self, error: OSError) -> Failed:
        what = f"cannot be written: {error.strerror or error}"
        return Failed(what, on=str(self.folder), remedy="make room, and go on with --resume")
