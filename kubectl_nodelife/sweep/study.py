"""Reads a study: one document of kind Study, and the recorded traces that it names.

docs/sweep.md has the format.

A trace is CSV or JSON with time, machine, event (down or up), duration. A machine goes down and
comes up by two lines, or by one line with a duration. Gaps (up without down, down to the end) and
overlaps are refused with the line at fault.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import HOUR_NS, MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.sim.fields import (
    FieldPath,
    Fields,
    count,
    duration_ns,
    given,
    items,
    mapping,
    nearest,
    one_of,
    sequence,
    some_of,
    text,
)
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, FEWEST_PODS, SCHEDULERS, read_document
from kubectl_nodelife.sweep.failures import (
    Flap,
    Group,
    Independent,
    LateHeartbeats,
    Link,
    MachineOutage,
    Model,
    RollingPower,
    Trace,
    positive,
    read_law,
)
from kubectl_nodelife.sweep.points import LatinHypercube, Value, read_sampling, read_space
from kubectl_nodelife.sweep.result import OPERATORS, STATISTICS, Assertion
from kubectl_nodelife.sweep.runs import MEASURES

BASES: Final = ("snapshot", "dump", "scenario", "generate")
DEFAULT_MEASURES: Final = ("evictions", "needlessEvictions", "unavailablePodMinutes")
_MOST_SEEDS: Final = 1_000_000
_MOST_DURATION_NS: Final = 24 * HOUR_NS
_ASSERTION: Final = re.compile(
    r"(?:(?P<statistic>\w+)\s+)?(?P<measure>\w+)\s*(?P<op><=|>=|==|<|>)\s*(?P<value>\S+)"
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

ReadFile = Callable[[str], bytes]


_LAWS: Final = {"mtbf", "mttr", "every", "silence", "lasts", "delay", "begins", "gap"}
_MODELS: Final = {
    "independent": (Independent, ("mtbf", "mttr")),
    "group": (Group, ("label", "mtbf", "mttr")),
    "flap": (Flap, ("every", "silence")),
    "lateHeartbeats": (LateHeartbeats, ("delay", "share")),
    "link": (Link, ("every", "lasts")),
    "rollingPower": (RollingPower, ("label", "begins", "gap", "lasts")),
    "trace": (Trace, ("file",)),
}
"""kind -> (its class, the fields that it must have)."""
_MACHINES: Final = ("seed", "name")
COLUMNS: Final = ("time", "machine", "event", "duration")
_MOST_SECONDS: Final = 1e10


class Study(msgspec.Struct, frozen=True):
    """A study as it is written. `base`: (one of BASES, its value); `profile` "": the base's.
    `document`: the whole as plain values."""

    file: str
    name: str
    base: tuple[str, Any]
    failures: tuple[tuple[str, Model], ...]
    profile: str = ""
    flags: dict[str, object] = {}
    controllers: tuple[str, ...] = CONTROLLER_NAMES
    scheduler: str = FEWEST_PODS
    space: dict[str, tuple[Value, ...]] = {}
    sampling: LatinHypercube | None = None
    seeds: tuple[int, ...] = (1,)
    duration_ns: int = HOUR_NS
    measures: tuple[str, ...] = DEFAULT_MEASURES
    assertions: tuple[Assertion, ...] = ()


def read_study(content: bytes, file: str, read_file: ReadFile) -> Study:
    """Read a study. `read_file` has the content of a file that the study names, by a path that is
    relative to it. Raises BadInput with the file, the path in the document, and the remedy."""
    meta, spec, top = read_document(content, file, "Study")
    mapping(meta, top.key("metadata"), ("name",))
    place = top.key("metadata").key("name")
    name = text(meta.get("name", "study"), place)
    if not _NAME.fullmatch(name):
        raise place.fault(f"{name!r} is no name", "use lower-case letters, digits, - and .")
    at = top.key("spec")
    mapping(spec, at, ("failures", *_FIELDS))
    for needed in ("base", "failures"):
        if needed not in spec:
            raise at.key(needed).fault("the field is missing", "docs/sweep.md has the format")
    read = given(spec, at, _FIELDS)
    models = _failures(spec["failures"], at.key("failures"), read_file)
    return Study(file=file, name=name, failures=models, **read)


def _base(value: Any, at: FieldPath) -> tuple[str, Any]:
    base = mapping(value, at, BASES)
    if len(base) != 1:
        raise at.fault("names no cluster or several", f"give one of {', '.join(BASES)}")
    ((kind, what),) = base.items()
    return kind, mapping(what, at.key(kind)) if kind == "generate" else text(what, at.key(kind))


def _seeds(value: Any, at: FieldPath) -> tuple[int, ...]:
    """1 to N, or a list."""
    if not isinstance(value, list):
        return tuple(range(1, count(value, at, least=1, most=_MOST_SEEDS) + 1))
    seeds = items(value, at, partial(count, most=1 << 48))
    if not seeds or len(set(seeds)) < len(seeds):
        raise at.fault("has no seeds, or one twice", "give N, or a list of different numbers")
    return seeds


def _measures(value: Any, at: FieldPath) -> tuple[str, ...]:
    measures = some_of(value, at, MEASURES)
    if not measures:
        raise at.fault("the list is empty", f"known here: {', '.join(MEASURES)}")
    return measures


def _assertion(value: Any, at: FieldPath) -> Assertion:
    """`[p5|median|p95|mean] MEASURE OP NUMBER`, of the mean where no statistic is given."""
    written = text(value, at)
    parts = _ASSERTION.fullmatch(written.strip())
    if parts is None:
        remedy = f"write [{'|'.join(STATISTICS)}] MEASURE {'|'.join(OPERATORS)} NUMBER"
        raise at.fault(f"{written!r} is no assertion", remedy)
    statistic, measure = parts["statistic"] or "mean", parts["measure"]
    if statistic not in STATISTICS:
        raise at.fault(f"unknown statistic {statistic!r}", nearest(statistic, STATISTICS))
    if measure not in MEASURES:
        raise at.fault(f"unknown measure {measure!r}", nearest(measure, MEASURES))
    try:
        number = float(parts["value"])
    except ValueError:
        raise at.fault(f"{parts['value']!r} is no number") from None
    if number != number:
        raise at.fault("NaN is no number")
    return Assertion(statistic, measure, parts["op"], number)


_FIELDS: Final[Fields] = {
    "base": ("base", _base),
    "profile": ("profile", text),
    "flags": ("flags", mapping),
    "controllers": ("controllers", partial(some_of, words=CONTROLLER_NAMES)),
    "scheduler": ("scheduler", partial(one_of, words=tuple(SCHEDULERS))),
    "space": ("space", read_space),
    "sampling": ("sampling", read_sampling),
    "repeat": ("seeds", _seeds),
    "duration": (
        "duration_ns",
        partial(duration_ns, least_ns=SECOND_NS, most_ns=_MOST_DURATION_NS),
    ),
    "measure": ("measures", _measures),
    "assert": ("assertions", partial(items, read=_assertion)),
}


def _failures(value: Any, at: FieldPath, read_file: ReadFile) -> tuple[tuple[str, Model], ...]:
    """(name, model): the kind, and a number where it stands there more than once."""
    models: list[tuple[str, Model]] = []
    for i, item in enumerate(sequence(value, at)):
        place = at.item(i)
        fields = mapping(item, place)
        kind = one_of(fields.get("kind"), place.key("kind"), tuple(_MODELS))
        rest = {key: each for key, each in fields.items() if key != "kind"}
        before = sum(name.partition("-")[0] == kind for name, _ in models)
        model = _trace(rest, place, read_file) if kind == "trace" else _model(kind, rest, place)
        models.append((f"{kind}-{before + 1}" if before else kind, model))
    if not models:
        raise at.fault("the list is empty", f"known here: {', '.join(_MODELS)}")
    return tuple(models)


def _model(kind: str, fields: dict[str, Any], at: FieldPath) -> Model:
    model_type, needed = _MODELS[kind]
    read: dict[str, Any] = {}
    for key, value in mapping(fields, at, model_type.__struct_fields__).items():
        if key in _LAWS:
            read[key] = read_law(value, at.key(key))
        elif key == "share":
            read[key] = positive(value, at.key(key), 1.0)
        else:
            read[key] = text(value, at.key(key))
    for key in needed:
        if key not in read:
            raise at.key(key).fault("the field is missing", f"{kind} needs {', '.join(needed)}")
    model: Model = model_type(**read)
    return model


def _trace(fields: dict[str, Any], at: FieldPath, read_file: ReadFile) -> Trace:
    trace = mapping(fields, at, ("file", "columns", "machines", "offset"))
    if "file" not in trace:
        raise at.key("file").fault("the field is missing", "name a CSV or JSON file")
    place = at.key("columns")
    columns = {
        key: text(value, place.key(key))
        for key, value in mapping(trace.get("columns", {}), place, COLUMNS).items()
    }
    name = text(trace["file"], at.key("file"))
    machines = one_of(trace.get("machines", "seed"), at.key("machines"), _MACHINES)
    offset_ns = duration_ns(trace.get("offset", 0), at.key("offset"))
    outages = read_trace(read_file(name), name, columns)
    whole = offset_ns // MILLISECOND_NS * MILLISECOND_NS
    return Trace(outages, machines == "name", whole)


def read_trace(content: bytes, file: str, columns: Mapping[str, str]) -> tuple[MachineOutage, ...]:
    """The times for which machines are down, by time. `columns`: the trace's own names for
    COLUMNS, where they differ. Times are seconds. Raises BadInput."""
    outages: list[MachineOutage] = []
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
            outages.append(MachineOutage(machine, at_ns, ends_ns))
            last[machine] = ends_ns
        elif event == "up" and machine in down:
            outages.append(MachineOutage(machine, down.pop(machine), at_ns))
            last[machine] = at_ns
        elif event == "up" and machine in last and at_ns == last[machine]:
            continue  # given twice: by a duration, and by its end
        elif event in ("up", "down"):
            raise BadInput(f"{machine} goes {event} and is {event} already", on=place)
        else:
            raise BadInput(f"{event!r} is no event", on=place, remedy="write down or up")
    if down:
        machine = min(down)
        raise BadInput(f"{machine} goes down and never up", on=file, remedy="give its duration")
    return tuple(sorted(outages, key=lambda o: (o.from_ns, o.machine)))


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
