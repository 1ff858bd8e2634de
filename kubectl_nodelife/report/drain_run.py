"""A drain that was carried out: each wave's promised and real time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kubectl_nodelife.drain.results import Estimate
from kubectl_nodelife.report.drain_headline import clock, span
from kubectl_nodelife.report.table import Table, columns

_COLUMNS = columns("wave | nodes | pods | promised | took | result")


class WaveOutcome(Protocol):
    """A wave that was begun (`acts.drain.WaveRun`)."""

    nodes: list[str]
    promised: Estimate | None
    pods: int
    seconds: float | None
    errors: dict[str, str]


def drain_run_text(waves: Sequence[WaveOutcome]) -> str:
    """The table: promised against real."""
    rows = [(number, *_row(wave)) for number, wave in enumerate(waves, 1)]
    return Table(_COLUMNS, rows).text()


def _row(wave: WaveOutcome) -> Iterator[object]:
    yield ",".join(wave.nodes)
    yield wave.pods
    yield span(wave.promised) if wave.promised is not None else "-"
    yield clock(wave.seconds)
    yield _result(wave.promised, wave.seconds, wave.errors)


def _result(promised: Estimate | None, seconds: float | None, errors: Mapping[str, str]) -> str:
    if errors:
        return f"not drained{'' if promised else ', as promised'}: {', '.join(errors)}"
    if seconds is None or promised is None:
        return "drained"
    if seconds > promised.high:
        return "drained, later than promised"
    if seconds < promised.low:
        return "drained, sooner than promised"
    return "drained, as promised"
