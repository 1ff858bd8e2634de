"""Durations in flags, such as `--since 10m`."""

from __future__ import annotations

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.duration import parse_duration


def duration_ns(text: str, flag: str) -> int:
    """A duration in Go's notation, in nanoseconds. Raises BadInput."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(str(error), on=flag) from None


def waiting_ns(text: str, flag: str) -> int:
    """The same of one that may not be negative."""
    if (parsed := duration_ns(text, flag)) < 0:
        raise BadInput("must not be negative", on=flag)
    return parsed
