"""Planned actions for tests of the journal, and how they ended."""

from typing import Any

from kubectl_nodelife.daemon.changes import ChangeFilter
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.engine import actions
from tests import planned
from tests.daemon.lab import SECOND, T0, unreachable
from tests.planned import on_pod

HOUR = 3600 * SECOND


def tainted(cause: Any = None, name: str = "n1") -> actions.AddTaints:
    both = (unreachable("NoSchedule"), unreachable())
    return planned.tainted(name, *both, because="lost", cause=cause)


def scheduled(cause: Any = None, due_s: int = 300) -> actions.ScheduleEviction:
    due = {"due_ns": T0 + due_s * SECOND, "toleration_seconds": 300}
    return on_pod(actions.ScheduleEviction, "p1", because="tainted", cause=cause, **due)


def deleted(cause: Any = None) -> actions.DeletePod:
    return on_pod(actions.DeletePod, "p1", because="its time is over", cause=cause)


def event(cause: Any) -> actions.RecordEvent:
    return actions.RecordEvent(
        controller="taint-eviction",
        because="x",
        cause=cause,
        kind="Pod",
        namespace="default",
        name="p1",
        reason="TaintManagerEviction",
    )


def zone_state(to: str, cause: Any) -> actions.SetZoneState:
    return actions.SetZoneState(
        controller="node-lifecycle", because=to, cause=cause, zone="z", from_="x", to=to, rate=0.1
    )


async def outcomes(journal: Journal) -> list[tuple[str, str]]:
    return [(c.action, c.outcome) for c in await journal.select(ChangeFilter())]
