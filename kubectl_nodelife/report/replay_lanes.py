"""The lanes of a replay as text: a bar for each state of a node or a zone, on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.outlook.replay.lanes import NOT_READY, StateSpan
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.screen import BAD, WARN, ColoredText
from kubectl_nodelife.report.table import Column, Table

MOST: Final = 20
"""Lanes on a screen; the page and the table above have all."""

_WIDTH: Final = 40
_BAR, _FREE = "=", "."


def lanes(spans: Sequence[StateSpan], begin_ns: int, end_ns: int) -> list[Block]:
    """The bars, nothing where there are none."""
    if not spans:
        return []
    columns = (
        Column("lane"),
        Column("state"),
        Column(f"{_clock(begin_ns)} to {_clock(end_ns)}", gives=2),
        Column("for", gives=1),
        Column("what"),
    )
    blocks: list[Block] = [Table(columns, [_row(span, begin_ns, end_ns) for span in spans[:MOST]])]
    if len(spans) > MOST:
        blocks.append(f"and {counted(len(spans) - MOST, 'more bar')} (-o html has all)")
    return blocks


def _row(span: StateSpan, begin_ns: int, end_ns: int) -> list[object]:
    until_ns = end_ns if span.end_ns is None else span.end_ns
    lasted = human_duration(max(0, until_ns - span.begin_ns))
    return [
        span.name,
        ColoredText(span.state, BAD if span.state == NOT_READY else WARN),
        _bar(span.begin_ns, until_ns, begin_ns, end_ns),
        f"{lasted}, goes on" if span.end_ns is None else lasted,
        span.what,
    ]


def _bar(from_ns: int, to_ns: int, begin_ns: int, end_ns: int) -> str:
    """At least one character wide."""
    length = max(1, end_ns - begin_ns)

    def place(at_ns: int) -> int:
        return min(_WIDTH, max(0, _WIDTH * (at_ns - begin_ns) // length))

    first = min(place(from_ns), _WIDTH - 1)
    last = max(first + 1, place(to_ns))
    return _FREE * first + _BAR * (last - first) + _FREE * (_WIDTH - last)


def _clock(at_ns: int) -> str:
    return format_time(at_ns)[11:19]
