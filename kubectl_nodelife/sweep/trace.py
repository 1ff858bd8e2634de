"""Reads a recorded trace of machines: CSV or JSON with time, machine, event (down or up), duration.

A machine goes down and comes up by two lines, or by one line with a duration. Gaps (up without
down, down to the end) and overlaps are refused with the line at fault.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.sweep.failures import MachineOutage

COLUMNS: Final = ("time", "machine", "event", "duration")
_MOST_SECONDS: Final = 1e10


def read_trace(content: bytes, file: str, columns: Mapping[str, str]) -> tuple[MachineOutage, ...]:
    """The times for which machines are down, by time. `columns`: what the trace calls COLUMNS,
    where it does not call them so. Times are seconds. Raises BadInput."""
    found: list[MachineOutage] = []
    down: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, row in _rows(content, file):
        place = f"{file}:{number}"
        time, machine, event, lasts = (row.get(columns.get(c, c)) for c in COLUMNS)
        at_ns, machine = _ns(time, "time", place), str(machine or "")
        if not machine:
            raise BadInput("names no machine", on=place)
        if at_ns < last.get(machine, 0):
            raise BadInput(f"{machine} is down already or time goes back", on=place)
        if event == "down" and machine not in down:
            if lasts in (None, ""):
                down[machine] = last[machine] = at_ns
                continue
            ends_ns = at_ns + _ns(lasts, "duration", place)
            found.append(MachineOutage(machine, at_ns, ends_ns))
            last[machine] = ends_ns
        elif event == "up" and machine in down:
            found.append(MachineOutage(machine, down.pop(machine), at_ns))
            last[machine] = at_ns
        elif event == "up" and machine in last and at_ns == last[machine]:
            continue  # said twice: by a duration, and by its end
        elif event in ("up", "down"):
            raise BadInput(f"{machine} goes {event} and is {event} already", on=place)
        else:
            raise BadInput(f"{event!r} is no event", on=place, remedy="write down or up")
    if down:
        machine = min(down)
        raise BadInput(f"{machine} goes down and never up", on=file, remedy="give its duration")
    return tuple(sorted(found, key=lambda o: (o.from_ns, o.machine)))


def _rows(content: bytes, file: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line or number of item, its fields)."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", on=file) from None
    if not text.lstrip().startswith("["):
        reader = csv.DictReader(io.StringIO(text))
        yield from ((reader.line_num, row) for row in reader)
        return
    try:
        items: Sequence[Any] = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"is no JSON: {error}", on=file) from None
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise BadInput("is no mapping", on=f"{file}:{number}")
        yield number, item


def _ns(value: object, column: str, place: str) -> int:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MOST_SECONDS:
        raise BadInput(f"{value!r} is no {column} in seconds", on=place)
    return round(seconds * SECOND_NS / MILLISECOND_NS) * MILLISECOND_NS
