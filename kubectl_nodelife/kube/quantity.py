"""Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) and what a pod requests.

Follows apimachinery/pkg/api/resource/quantity.go and component-helpers/resource/helpers.go
(`PodRequests`). A quantity is an int of nano-units, upstream's finest step; anything finer is
rounded away from zero, as there. Amounts of resources are ints in the scheduler's units: CPU in
thousandths of a core, everything else in whole units (bytes, pods, devices), both rounded up.

Left out: what a resize in place has allocated already (upstream takes the larger of spec and
status).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a size in a flag needs no pods
    from kubectl_nodelife.kube.pod import Container, Pod, PodSpec, ResourceRequirements

Quantity = str | int | float
Amounts = dict[str, int]

NANO = 1_000_000_000
CPU = "cpu"

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,100}(?:\.\d{0,100})?|\.\d{1,100}))"
    r"(?:[eE](?P<exponent>[+-]?\d{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))",
    re.ASCII,
)


@lru_cache(maxsize=1 << 14)
def parse_quantity(quantity: Quantity) -> int:
    """The quantity in nano-units. Follows `ParseQuantity`; a number stands for its decimal text.

    Raises ValueError for text that is not a quantity.
    """
    text = str(quantity).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity such as 100m, 2 or 1.5Gi")
    if match["exponent"] is not None:
        scale = Fraction(10) ** int(match["exponent"])
    else:
        scale = _SUFFIXES[match["suffix"]]
    nanos = Fraction(match["number"]) * scale * NANO
    return _ceil(nanos) if nanos >= 0 else -_ceil(-nanos)


def _ceil(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


@lru_cache(maxsize=1 << 14)
def milli_value(quantity: Quantity) -> int:
    """The quantity in thousandths, rounded up. Follows `Quantity.MilliValue`. Raises ValueError."""
    return -(-parse_quantity(quantity) // (NANO // 1000))


@lru_cache(maxsize=1 << 14)
def value(quantity: Quantity) -> int:
    """The quantity in whole units, rounded up. Follows `Quantity.Value`. Raises ValueError."""
    return -(-parse_quantity(quantity) // NANO)


def amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    """Resource amounts in the scheduler's units (`milli_value` for CPU). Raises ValueError."""
    if not quantities:
        return {}
    return {n: _in_units(n, q) for n, q in quantities.items()}


def _in_units(name: str, quantity: Quantity) -> int:
    return milli_value(quantity) if name == CPU else value(quantity)


def container_requests(resources: ResourceRequirements) -> Mapping[str, int]:
    """A container's requests; where it names a limit only, that is the request, as API defaults.

    Raises ValueError.
    """
    requests, limits = resources.requests, resources.limits
    return _requested(
        tuple(requests.items()) if requests else (), tuple(limits.items()) if limits else ()
    )


@lru_cache(maxsize=1 << 14)
def _requested(
    requests: tuple[tuple[str, Quantity], ...], limits: tuple[tuple[str, Quantity], ...]
) -> Mapping[str, int]:
    """The same by what is written, of which a cluster has far less than containers."""
    amounts = {name: _in_units(name, quantity) for name, quantity in requests}
    for name, limit in limits:
        if name not in amounts:
            amounts[name] = _in_units(name, limit)
    return amounts


ASSUMED_REQUESTS: Mapping[str, int] = {CPU: 100, "memory": 200 << 20}
"""What a container that names none counts for in a node's score. Follows `DefaultMilliCPURequest`
and `DefaultMemoryRequest` of pkg/scheduler/util.
"""


def pod_requests(pod: Pod, assumed: Mapping[str, int] | None = None) -> Mapping[str, int]:
    """The scheduler's reservation for the pod. Follows `PodRequests`. Raises ValueError.

    `assumed`: requests of each container that names none.

    The sum over containers and sidecars, or the peak while init containers run, if that is larger;
    resources of the pod as a whole go first where they are given; overhead comes on top.
    """
    spec = pod.spec
    match spec.containers:
        case [only]:  # as in most pods
            requests = _assuming(only.resources, assumed)
        case containers:
            requests = sum_of(_assuming(c.resources, assumed) for c in containers)
    if spec.init_containers:
        requests = _with_init_containers(requests, spec.init_containers, assumed)
    if spec.resources is not None:
        requests = {**requests, **_pod_level(spec)}
    return sum_of((requests, amounts(spec.overhead))) if spec.overhead else requests


def _assuming(
    resources: ResourceRequirements, assumed: Mapping[str, int] | None
) -> Mapping[str, int]:
    requests = container_requests(resources)
    return {**assumed, **requests} if assumed else requests


def _with_init_containers(
    requests: Mapping[str, int],
    init_containers: Iterable[Container],
    assumed: Mapping[str, int] | None,
) -> Amounts:
    """Sidecars (restartPolicy Always) stay; another init container runs beside those before it."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in init_containers:
        own = _assuming(container.resources, assumed)
        if container.restart_policy == "Always":
            sidecars = sum_of((sidecars, own))
            peak = max_of(peak, sidecars)
        else:
            peak = max_of(peak, sum_of((sidecars, own)))
    return max_of(sum_of((requests, sidecars)), peak)


def _pod_level(spec: PodSpec) -> Amounts:
    """Pod-level resources: CPU, memory and huge pages only (1.34 beta)."""
    if spec.resources is None:
        return {}
    return {
        name: amount
        for name, amount in container_requests(spec.resources).items()
        if name in (CPU, "memory") or name.startswith("hugepages-")
    }


def sum_of(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """All of them together."""
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def max_of(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Of each resource the larger amount."""
    return {n: max(one.get(n, 0), other.get(n, 0)) for n in (*one, *other)}
