"""The space of a study: what is varied, and the points that are played.

A point gives each name of the space a value. `grid` plays every combination, in the order in which
the names are written, the last one fastest; `latinHypercube` plays N points, of which each name's
values are spread evenly.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Any, Final

import msgspec

from kubectl_nodelife.kube.duration import format_duration, parse_duration
from kubectl_nodelife.sim.fields import FieldPath, count, mapping, sequence

Value = str | int | float | bool
Point = dict[str, Value]

FLAG: Final = "flags."
TOLERATION: Final = "tolerationSeconds"
REPLICAS: Final = "replicas"
MIN_AVAILABLE: Final = "budgets.minAvailable"
ZONES: Final = "zones"
RENEWS: Final = "leaseRenewInterval"
NAMES: Final = (TOLERATION, REPLICAS, MIN_AVAILABLE, ZONES, RENEWS)
GENERATED_ONLY: Final = (REPLICAS, ZONES)
_WHOLE: Final = (TOLERATION, REPLICAS, ZONES)
_RANGE: Final = ("from", "to", "step", "log")
_MOST_VALUES: Final = 10_000
_MOST_POINTS: Final = 100_000


class LatinHypercube(msgspec.Struct, frozen=True):
    """So many points; which values meet is drawn by the seed."""

    points: int
    seed: int


def read_space(value: Any, at: FieldPath) -> dict[str, tuple[Value, ...]]:
    """Names -> their values. Raises BadInput."""
    found = {}
    for name, given in mapping(value, at).items():
        place = at.key(name)
        if not (name in NAMES or (name.startswith(FLAG) and len(name) > len(FLAG))):
            raise place.fault("is not varied", f"known here: flags.NAME, {', '.join(NAMES)}")
        values = _range(given, place) if isinstance(given, dict) else _list(given, place)
        found[name] = tuple(_checked(name, each, place) for each in values)
        if len(set(found[name])) < len(found[name]):
            raise place.fault("has a value twice")
    return found


def _list(value: Any, at: FieldPath) -> list[Value]:
    items = sequence(value, at)
    if not items:
        raise at.fault("has no values")
    for number, item in enumerate(items):
        if not isinstance(item, (str, int, float)):
            raise at.item(number).fault("is no value", "give text or a number")
    return items


def _checked(name: str, value: Value, at: FieldPath) -> Value:
    if name in _WHOLE and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise at.fault(f"{value!r} is no whole number")
    if name in GENERATED_ONLY and value == 0:
        raise at.fault("0 is out of range", "give a number from 1")
    if name == RENEWS:
        try:
            good = parse_duration(str(value)) > 0
        except ValueError:
            good = False
        if not good:
            raise at.fault(f"{value!r} is no interval", "write a Go duration, such as 10s")
    return value


def _range(value: dict[str, Any], at: FieldPath) -> list[Value]:
    """`{from, to, step}`, or `{from, to, log: N}`: numbers, or durations."""
    given = mapping(value, at, _RANGE)
    if not {"from", "to"} <= given.keys() or ("step" in given) == ("log" in given):
        raise at.fault("is no range", "give from and to, and either step or log")
    are_durations = isinstance(given["from"], str)
    low, high = (_number(given[key], at.key(key), are_durations) for key in ("from", "to"))
    if high < low:
        raise at.fault("to is less than from")
    if "step" in given:
        step = _number(given["step"], at.key("step"), are_durations)
        if step <= 0 or (high - low) / step >= _MOST_VALUES:
            raise at.key("step").fault(f"must be above 0 and make at most {_MOST_VALUES} values")
        numbers = [low + step * i for i in range(int((high - low) // step) + 1)]
    else:
        many = count(given["log"], at.key("log"), least=2, most=_MOST_VALUES)
        if low <= 0:
            raise at.key("from").fault("must be above 0 for log")
        ratio = float(high / low) ** (1 / (many - 1))
        numbers = [_rounded(float(low) * ratio**i) for i in range(many)]
    if are_durations:
        return [format_duration(round(n)) for n in numbers]
    return [int(n) if n == int(n) else float(n) for n in numbers]


def _rounded(number: float) -> Decimal:
    """To three figures, so that a value can be read."""
    return Decimal(f"{number:.3g}")


def _number(value: Any, at: FieldPath, is_duration: bool) -> Decimal:
    """A number, or the ns of a duration. Raises BadInput."""
    if is_duration and isinstance(value, str):
        try:
            return Decimal(parse_duration(value))
        except ValueError as error:
            raise at.fault(str(error), "write a Go duration: 20s, 1m") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise at.fault(f"{value!r} is no number", "give numbers, or durations throughout")
    return Decimal(str(value))


def read_sampling(value: Any, at: FieldPath) -> LatinHypercube | None:
    """None for the grid. Raises BadInput."""
    if value == "grid":
        return None
    given = mapping(value, at, ("latinHypercube", "seed"))
    if "latinHypercube" not in given:
        raise at.fault("is no way to sample", "give grid, or {latinHypercube: N, seed: S}")
    points = count(given["latinHypercube"], at.key("latinHypercube"), least=1, most=_MOST_POINTS)
    return LatinHypercube(points, count(given.get("seed", 1), at.key("seed"), most=1 << 48))


def points_of(space: Mapping[str, Sequence[Value]], sampling: LatinHypercube | None) -> list[Point]:
    """The points, each with a value for each name."""
    if sampling is None:
        return [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    chance = random.Random(sampling.seed)
    columns: list[list[Value]] = []
    for values in space.values():
        strata = list(range(sampling.points))
        chance.shuffle(strata)
        columns.append([values[i * len(values) // sampling.points] for i in strata])
    points = [dict(zip(space, row, strict=True)) for row in zip(*columns, strict=True)]
    return points or [{}]
