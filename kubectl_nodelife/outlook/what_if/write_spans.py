"""When the writes of an outage begin and end in two plays: what the pace of a client comes to.

Both plays have the same acts, and other settings (`set kube-api-qps=100`, `--enforced`). Writes of
the node lifecycle and taint eviction controllers are counted that were carried out; a pod's
deletion that is repeated counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.sim.timeline import ObjectRef, Record

_WRITERS: Final = frozenset({"node-lifecycle", "taint-eviction"})
_KINDS: Final = ("called Unknown", "pods marked not ready", "NoExecute taints", "pods deleted")


class WriteSpan(msgspec.Struct, frozen=True, rename="camel"):
    """How many writes there are in a play; seconds until the first and the last, None where there
    are none."""

    count: int = 0
    first_seconds: float | None = None
    last_seconds: float | None = None


class WriteSpans(msgspec.Struct, frozen=True, rename="camel"):
    """The writes of one kind, with today's settings and with the others."""

    write: str
    baseline: WriteSpan
    future: WriteSpan


def write_spans(baseline: Iterable[Record], future: Iterable[Record]) -> list[WriteSpans]:
    """The kinds of writes that one of the two plays has."""
    was, now = _spans(baseline), _spans(future)
    none = WriteSpan()
    return [
        WriteSpans(kind, was.get(kind, none), now.get(kind, none))
        for kind in _KINDS
        if kind in was or kind in now
    ]


def _spans(records: Iterable[Record]) -> dict[str, WriteSpan]:
    times: dict[str, list[float]] = {}
    for kind, at in _told(records):
        times.setdefault(kind, []).append(at)
    return {kind: WriteSpan(len(at), at[0], at[-1]) for kind, at in times.items()}


def _told(records: Iterable[Record]) -> Iterator[tuple[str, float]]:
    unknown, marked, tainted, deleted = _KINDS
    gone: set[ObjectRef] = set()
    for record in records:
        if record.error or record.controller not in _WRITERS:
            continue
        action, detail = record.action, record.detail
        if action == "SetNodeCondition" and detail.get("type") == "Ready":
            if detail.get("status") == "Unknown":
                yield unknown, record.at
        elif action == "MarkPodNotReady":
            yield marked, record.at
        elif action == "AddTaint" and detail.get("effect") == "NoExecute":
            yield tainted, record.at
        elif action == "DeletePod" and record.object not in gone:
            gone.add(record.object)
            yield deleted, record.at
