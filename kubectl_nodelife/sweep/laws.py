"""How long something lasts, and how long after one another things happen: laws that are drawn from.

Written as a duration (always that long) or as a mapping with a mean or a median, as studies of
failures give them: exponential or Weibull for the time between failures, lognormal for repairs
(Schroeder and Gibson, "A large-scale study of failures in high-performance computing systems",
DSN 2006).
"""

from __future__ import annotations

import math
import random
from typing import Any, Final

import msgspec

from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.sim.fields import FieldPath, duration_ns, mapping

FIXED: Final = "fixed"
_DEFAULT_SIGMA: Final = 1.0
_MOST: Final = 100.0
_FIELDS: Final = {
    "exponential": {"mean"},
    "weibull": {"mean", "shape"},
    "lognormal": {"median", "sigma"},
    "uniform": {"from", "to"},
}


class Law(msgspec.Struct, frozen=True):
    """`kind` FIXED: always `scale_ns`. `exponential`, `weibull`: that mean; `lognormal`: that
    median; `uniform`: from `scale_ns` to `to_ns`. `shape`: of Weibull, or the sigma of lognormal.
    """

    kind: str
    scale_ns: int
    shape: float = 1.0
    to_ns: int = 0

    def draw(self, chance: random.Random) -> int:
        """One duration, ns, whole milliseconds and at least one."""
        match self.kind:
            case "exponential":
                ns = chance.expovariate(1 / self.scale_ns)
            case "weibull":
                scale = self.scale_ns / math.gamma(1 + 1 / self.shape)
                ns = chance.weibullvariate(scale, self.shape)
            case "lognormal":
                ns = chance.lognormvariate(math.log(self.scale_ns), self.shape)
            case "uniform":
                ns = chance.uniform(self.scale_ns, self.to_ns)
            case _:
                ns = self.scale_ns
        return max(1, round(ns / MILLISECOND_NS)) * MILLISECOND_NS


def read_law(value: Any, at: FieldPath) -> Law:
    """`10m`, or `{exponential: {mean: 1h}}` and the like. Raises BadInput."""
    if not isinstance(value, dict):
        return Law(FIXED, duration_ns(value, at, least_ns=MILLISECOND_NS))
    given = mapping(value, at, tuple(_FIELDS))
    if len(given) != 1:
        raise at.fault("names no law or several", f"give one of {', '.join(_FIELDS)}")
    ((kind, fields),) = given.items()
    place = at.key(kind)
    fields = mapping(fields, place, tuple(sorted(_FIELDS[kind])))
    first = {"lognormal": "median", "uniform": "from"}.get(kind, "mean")
    for needed in {first, *({"to"} if kind == "uniform" else ())}:
        if needed not in fields:
            raise place.fault(f"lacks the field {needed}", "give a duration, such as 10m")
    scale_ns = duration_ns(fields[first], place.key(first), least_ns=MILLISECOND_NS)
    if kind == "uniform":
        to_ns = duration_ns(fields["to"], place.key("to"), least_ns=scale_ns)
        return Law(kind, scale_ns, to_ns=to_ns)
    word = "sigma" if kind == "lognormal" else "shape"
    return Law(kind, scale_ns, positive(fields.get(word, _DEFAULT_SIGMA), place.key(word)))


def positive(value: Any, at: FieldPath, most: float = _MOST) -> float:
    """A number above 0. Raises BadInput."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= most
    if not good:
        raise at.fault(f"{value!r} is no number above 0 and at most {most:g}")
    return float(value)
