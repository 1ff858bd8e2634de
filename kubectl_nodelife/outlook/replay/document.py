"""`replay`: what happened, who did it and what led to it, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine


def replay_document(
    lines: Sequence[ReplayLine],
    source: dict[str, Any],
    since_ns: int,
    until_ns: int,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The Replay document. Lines are not folded; `cause` is the id of another line."""
    ids = {line: number for number, line in enumerate(lines)}
    return document(
        "Replay",
        source=source,
        since=format_micro_time(since_ns),
        until=format_micro_time(until_ns),
        items=[_item(line, ids) for line in lines],
        warnings=list(warnings),
    )


def _item(line: ReplayLine, ids: dict[ReplayLine, int]) -> dict[str, Any]:
    obj = {"kind": line.kind, "namespace": line.namespace, "name": line.name}
    made: dict[str, Any] = {
        "id": ids[line],
        "time": format_micro_time(line.time_ns),
        "actor": {"kind": line.actor.kind, "name": line.actor.name},
        "action": line.action,
        "object": {key: value for key, value in obj.items() if value},
        "detail": line.detail,
        "reason": line.why,
        "cause": ids.get(line.cause) if line.cause is not None else None,
        "seenBy": list(line.seen),
    }
    if line.inferred and made["cause"] is not None:
        made["causeInferred"] = True
    if line.node:
        made["node"] = line.node
    if line.outcome:
        made["outcome"] = line.outcome
    if line.count > 1:
        made["count"] = line.count
    if line.first_ns is not None:
        made["firstTime"] = format_micro_time(line.first_ns)
    if line.change is not None:
        made["change"] = line.change
    return made
