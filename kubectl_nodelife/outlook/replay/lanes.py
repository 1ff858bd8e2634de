"""For how long nodes were not Ready, tainted, cordoned or under maintenance, and zones braked.

Made of a replay's lines, so that a state whose beginning nobody tells is not drawn. What our copy
only planned is no state of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kubectl_nodelife.kube.wellknown import TAINT_NODE_UNSCHEDULABLE, TRUE
from kubectl_nodelife.outlook.replay import lines
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine

NOT_READY: Final = "NotReady"
TAINTED: Final = "tainted"
CORDONED: Final = "cordoned"
MAINTENANCE: Final = "maintenance"
ZONE: Final = "zone braked"
STATES: Final = (NOT_READY, TAINTED, CORDONED, MAINTENANCE, ZONE)
"""In the order in which they are drawn."""

_NORMAL: Final = ("Initial", "Normal")
_HAPPENED: Final = ("", "confirmed", "applied")


class StateSpan(NamedTuple):
    """A state of a node or zone, in ns since the epoch. `what`: the taint, condition or state.

    `end_ns` None: nothing tells its end.
    """

    name: str
    state: str
    what: str
    begin_ns: int
    end_ns: int | None


def state_spans(told: Iterable[ReplayLine]) -> list[StateSpan]:
    """All states, by name, then in the order of STATES. `told` in the order of time."""
    begun: dict[tuple[str, str, str], int] = {}
    found: list[StateSpan] = []
    for line in told:
        if line.outcome not in _HAPPENED:
            continue
        for state, what, begins in _changes(line):
            key = (line.name, state, what)
            if begins:
                begun.setdefault(key, line.time_ns)
            elif key in begun:
                found.append(StateSpan(*key, begun.pop(key), line.time_ns))
    found += [StateSpan(*key, begin_ns, None) for key, begin_ns in begun.items()]
    return sorted(found, key=lambda span: (span.name, STATES.index(span.state), span.begin_ns))


def _changes(line: ReplayLine) -> Iterator[tuple[str, str, bool]]:
    """(state, what, whether it begins) that a line tells."""
    match line.family:
        case "not-ready" | "ready":
            yield NOT_READY, "", line.family == "not-ready"
        case "cordon" | "uncordon":
            yield CORDONED, "", line.family == "cordon"
        case "taint" | "untaint" if line.gist[2] != TAINT_NODE_UNSCHEDULABLE:
            yield TAINTED, ":".join(line.gist[2:]), line.family == "taint"
        case "taints" if line.detail != lines.NO_TAINTS:
            yield TAINTED, line.detail, True
        case lines.LIFECYCLE:
            yield MAINTENANCE, line.gist[2], line.gist[3] == TRUE
        case "SetZoneState":
            before, _, after = line.detail.partition(" at ")[0].partition(" to ")
            if before not in _NORMAL:
                yield ZONE, before, False
            if after not in _NORMAL:
                yield ZONE, after, True
