"""`changes -f`: what was done to nodes and pods, as far as Events and objects show, as documents.

The same documents as a daemon's changes (`changes`), of writes that were seen and not
planned: nearly all are `confirmed`, and `by` says whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.outlook.replay.lines import FINISHED, LIFECYCLE
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine

MODE: Final = "observed"

_WRITES: Final = frozenset(
    {
        *("not-ready", "ready", "taint", "untaint", "taints", "cordon", "uncordon"),
        *("pod-not-ready", "delete", "kill", "create", "schedule", "cancel"),
        *(
            "RegisteredNode",
            "RemovingNode",
            "DeletingNode",
            "DeletingNodeFailed",
            "ScaleDown",
            "Rebooted",
        ),
        *("Evicted", "Preempted", LIFECYCLE, FINISHED),
    }
)
"""The families of lines about a write to a node or pod; the rest are about something else."""


_SETS: Final = {
    "AddTaint": ("key", "value", "effect"),
    "RemoveTaint": ("key", "value", "effect"),
    "SetNodeCondition": ("type", "status", "reason"),
}
"""What the detail of a daemon's record of each write has."""


def changes_seen(lines: Iterable[ReplayLine]) -> list[dict[str, Any]]:
    """The contract's Changes among these lines, numbered as they come."""
    writes = [line for line in lines if line.family in _WRITES]
    ids = {line: number for number, line in enumerate(writes, 1)}
    return [_change(line, ids) for line in writes]


def _change(line: ReplayLine, ids: Mapping[ReplayLine, int]) -> dict[str, Any]:
    obj = {"kind": line.kind, "namespace": line.namespace, "name": line.name}
    cause = ids.get(line.cause) if line.cause is not None else None
    more: dict[str, Any] = {
        "node": line.node,
        "count": line.count if line.count > 1 else None,
        "firstTime": format_micro_time(line.first_ns) if line.first_ns is not None else None,
        "causeInferred": cause is not None and line.inferred,
    }
    return {
        "id": ids[line],
        "time": format_micro_time(line.time_ns),
        "controller": line.actor.name,
        "by": {"kind": line.actor.kind, "name": line.actor.name},
        "action": line.action,
        "object": {key: value for key, value in obj.items() if value},
        "detail": _detail(line),
        "reason": line.why,
        "cause": cause,
        "mode": MODE,
        "outcome": line.outcome or "confirmed",
        "seenBy": list(line.seen),
        **{key: value for key, value in more.items() if value},
    }


def _detail(line: ReplayLine) -> dict[str, str]:
    """The detail that a daemon's record of the line's action would have."""
    names = _SETS.get(line.action)
    if names is not None and line.sets:
        return {name: line.sets.get(name) or "" for name in names}
    return {"told": line.detail} if line.detail else {}
