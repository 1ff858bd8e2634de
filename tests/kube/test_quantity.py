"""Quantities as text, and what a pod requests."""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import (
    Quantity,
    milli_value,
    parse_quantity,
    pod_requests,
    value,
)

NANOS: dict[Quantity, int] = {
    "0": 0,
    "1": 10**9,
    1: 10**9,
    0.5: 5 * 10**8,
    "100m": 10**8,
    "250u": 250_000,
    "7n": 7,
    "1k": 10**12,
    "1Ki": 1024 * 10**9,
    "1.5Gi": 3 * (1 << 29) * 10**9,
    "2e3": 2 * 10**12,
    "2E3": 2 * 10**12,
    "1E": 10**27,
    "1e-3": 10**6,
    "-1": -(10**9),
    "+1": 10**9,
    ".5": 5 * 10**8,
    "5.": 5 * 10**9,
    "0.1n": 1,
    "-0.1n": -1,
    "1.0000000001": 10**9 + 1,
}


@pytest.mark.parametrize(("quantity", "nanos"), NANOS.items(), ids=map(str, NANOS))
def test_parse_quantity(quantity: Quantity, nanos: int) -> None:
    assert parse_quantity(quantity) == nanos


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1ki", "1KiB", "Ki", "1e", "1.2.3", "--1"]
)
def test_parse_quantity_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as"):
        parse_quantity(text)


ROUNDED = [
    ("100m", 100, 1),
    ("1", 1000, 1),
    ("1001u", 2, 1),
    ("128Mi", 1000 << 27, 1 << 27),
    ("-1500m", -1500, -1),
]


@pytest.mark.parametrize(("quantity", "milli", "whole"), ROUNDED)
def test_values_are_rounded_up(quantity: str, milli: int, whole: int) -> None:
    assert milli_value(quantity) == milli
    assert value(quantity) == whole


def container(cpu: str, memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


SIDECAR = {"restartPolicy": "Always"}

REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing": ({"containers": [{"name": "c"}]}, {}),
    "the sum of containers": (
        {"containers": [container("100m", "1Ki"), container("1", "1Ki")]},
        {"cpu": 1100, "memory": 2048},
    ),
    "a larger init container": (
        {"containers": [container("100m")], "initContainers": [container("2"), container("1")]},
        {"cpu": 2000, "memory": 0},
    ),
    "a sidecar adds to all": (
        {"containers": [container("100m")], "initContainers": [container("1", **SIDECAR)]},
        {"cpu": 1100, "memory": 0},
    ),
    "an init container runs beside the sidecars before it": (
        {
            "containers": [container("100m")],
            "initContainers": [
                container("1", **SIDECAR),
                container("2"),
                container("1", **SIDECAR),
            ],
        },
        {"cpu": 3000, "memory": 0},
    ),
    "overhead comes on top": (
        {"containers": [container("100m")], "overhead": {"cpu": "50m"}},
        {"cpu": 150, "memory": 0},
    ),
    "a limit stands in for a missing request": (
        {
            "containers": [
                {"resources": {"limits": {"cpu": 2, "x.io/gpu": "1"}, "requests": {"cpu": "1"}}}
            ]
        },
        {"cpu": 1000, "x.io/gpu": 1},
    ),
    "the pod's own resources go first": (
        {"containers": [container("100m", "1Ki")], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": 3000, "memory": 1024},
    ),
}


@pytest.mark.parametrize(("spec", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_pod_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_requests(msgspec.convert({"spec": spec}, Pod)) == expected
