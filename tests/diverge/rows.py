"""What rows of tests are made of: a record at a few words, in seconds from T0."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.diverge.observations import (
    LOST,
    TAINTED,
    AssumedSettings,
    ExpectedWrite,
    Judgement,
    LeaseObservation,
    Observations,
    ObservedWrite,
    UnwatchedSpan,
)

SECOND = 10**9
T0 = 1_767_225_600 * SECOND
UNREACHABLE = "node.kubernetes.io/unreachable"
HELD = LeaseObservation(holder="cm-1", duration_ns=16 * SECOND, renewed_ns=T0, read_ns=T0)
UNREADABLE = LeaseObservation(error="it may not be read")


def at(seconds: float) -> int:
    """An instant."""
    return T0 + round(seconds * SECOND)


def record(*parts: ExpectedWrite | ObservedWrite | UnwatchedSpan, **more: Any) -> Observations:
    """A record of 40 s grace, 5 s period, 0.1 nodes a second, with a lease that is held."""
    assumed = AssumedSettings(5 * SECOND, 40 * SECOND, 0.1, {"node-monitor-period": "--set"})
    made = Observations(assumed=assumed, since_ns=T0 - 600 * SECOND, lease=HELD)
    writes = tuple(p for p in parts if isinstance(p, ExpectedWrite))
    more.setdefault("last_writes", _last_writes(writes))
    return replace(
        made,
        writes=writes,
        observed=tuple(p for p in parts if isinstance(p, ObservedWrite)),
        unwatched=tuple(p for p in parts if isinstance(p, UnwatchedSpan)),
        **more,
    )


def _last_writes(writes: Iterable[ExpectedWrite]) -> dict[str, int]:
    """What a recorder keeps: controller -> its last write."""
    last: dict[str, int] = {}
    for one in writes:
        if one.outcome == "confirmed" and one.settled_ns is not None:
            last[one.controller] = max(last.get(one.controller, 0), one.settled_ns)
    return last


def judged(
    now: float, *parts: ExpectedWrite | ObservedWrite | UnwatchedSpan, **more: Any
) -> Judgement:
    """The judgement at `now`. `stale`: for so many seconds nobody renewed the lease."""
    stale = more.pop("stale_s", None)
    if stale is not None:
        more["lease"] = replace(HELD, read_ns=at(now), renewed_ns=at(now - stale))
    return divergence_judgement(record(*parts, **more), at(now))


def kinds(judgement: Judgement) -> list[str]:
    """The kinds of the findings, in order."""
    return [finding.kind for finding in judgement.findings]


def write(
    number: int,
    decided: float,
    action: str = "SetNodeCondition",
    *,
    came: float | None = None,
    outcome: str = "",
    on: str = "n1",
    pod: str = "",
    **more: Any,
) -> ExpectedWrite:
    """A write decided upon at `decided`, open unless it `came` (or ended otherwise) later."""
    controller = "taint-eviction" if action == "DeletePod" else "node-lifecycle"
    what = {"SetNodeCondition": "Ready=Unknown", "AddTaint": f"{UNREACHABLE}:NoExecute"}
    made = ExpectedWrite(
        id=number,
        time_ns=at(decided),
        controller=controller,
        action=action,
        kind="Pod" if pod else "Node",
        namespace="default" if pod else "",
        name=pod or on,
        node=on,
        what=what.get(action, ""),
        because="silent for too long",
        zone="a",
        rate=0.1,
        outcome=outcome or ("would" if came is None else "confirmed"),
        settled_ns=None if came is None else at(came),
    )
    return replace(made, **more)


def lost(seen: float, silent: float | None, on: str = "n1") -> ObservedWrite:
    """A node was called Unknown after so long a silence."""
    silent_ns = None if silent is None else round(silent * SECOND)
    return ObservedWrite(at(seen), LOST, on, "a", silent_ns=silent_ns, ready="Unknown")


def tainted(
    seen: float, waiting: float, on: str, *, rate: float = 0.1, **more: Any
) -> ObservedWrite:
    """A lost node, not Ready since `waiting`, got its NoExecute taint."""
    made = ObservedWrite(
        at(seen),
        TAINTED,
        on,
        "a",
        detail=f"{UNREACHABLE}:NoExecute",
        own=True,
        explained=True,
        waiting_ns=at(waiting),
        rate=rate,
        zone_state="Normal",
        ready="Unknown",
    )
    return replace(made, **more)


def span(
    begin: float, end: float | None, why: str = "warming up: it has only begun"
) -> UnwatchedSpan:
    """A time out of sight."""
    return UnwatchedSpan(at(begin), None if end is None else at(end), why)
