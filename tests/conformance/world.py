"""Vectors' times: seconds relative to t = 0, also in objects; here the API's text and instants."""

import math
from typing import Any, TypeVar

import msgspec

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS, decode_time, format_time, parse_time

EPOCH_NS = int(parse_time("2026-01-01T00:00:00Z"))

_TIMES = frozenset(
    {
        "creationTimestamp",
        "deletionTimestamp",
        "lastHeartbeatTime",
        "lastTransitionTime",
        "lastProbeTime",
        "renewTime",
        "acquireTime",
        "timeAdded",
        "startTime",
        "startedAt",
        "finishedAt",
    }
)

T = TypeVar("T", bound=KubeObject)


def instant_ns(seconds_: float) -> int:
    """The instant that is so many seconds after t = 0."""
    return EPOCH_NS + round(seconds_ * SECOND_NS)


def seconds(at_ns: int) -> float:
    """Seconds after t = 0."""
    return (at_ns - EPOCH_NS) / SECOND_NS


def api_times(value: Any) -> Any:
    """The JSON value with numbers in time fields as RFC 3339 text."""
    if isinstance(value, dict):
        return {
            k: _text(v) if k in _TIMES and isinstance(v, (int, float)) else api_times(v)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [api_times(v) for v in value]
    return value


def whole_seconds(value: Any) -> Any:
    """The JSON value with times cut to whole seconds, as the API stores them."""
    if isinstance(value, dict):
        return {
            k: math.floor(v) if k in _TIMES and isinstance(v, float) else whole_seconds(v)
            for k, v in value.items()
        }
    return [whole_seconds(v) for v in value] if isinstance(value, list) else value


def decode(raw: dict[str, Any], type_: type[T]) -> T:
    """A vector's object as a slice."""
    return msgspec.convert(api_times(raw), type_, dec_hook=decode_time)


def _text(seconds_: float) -> str:
    whole, rest = divmod(instant_ns(seconds_), SECOND_NS)
    return f"{format_time(whole * SECOND_NS)[:-1]}.{rest:09d}Z"
