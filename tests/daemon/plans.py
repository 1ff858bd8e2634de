"""Planned actions for tests of the journal, and how they ended."""

from typing import Any

from kubectl_nodelife.daemon.changes import ChangeFilter
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.node import NodeCondition
from tests.daemon.lab import SECOND, T0, unreachable

HOUR = 3600 * SECOND


def lost(name: str = "n1") -> actions.SetNodeConditions:
    return actions.SetNodeConditions(
        controller="node-lifecycle",
        because="silent",
        node=name,
        node_uid=f"uid-{name}",
        conditions=(NodeCondition("Ready", "Unknown", "NodeStatusUnknown"),),
    )


def tainted(cause: Any = None, name: str = "n1") -> actions.AddTaints:
    return actions.AddTaints(
        controller="node-lifecycle",
        because="lost",
        cause=cause,
        node=name,
        node_uid=f"uid-{name}",
        taints=(unreachable("NoSchedule"), unreachable()),
    )


def scheduled(cause: Any = None, due_s: int = 300) -> actions.ScheduleEviction:
    return actions.ScheduleEviction(
        controller="taint-eviction",
        because="tainted",
        cause=cause,
        namespace="default",
        pod="p1",
        pod_uid="uid-p1",
        due_ns=T0 + due_s * SECOND,
        toleration_seconds=300,
    )


def deleted(cause: Any = None) -> actions.DeletePod:
    return actions.DeletePod(
        controller="taint-eviction",
        because="its time is over",
        cause=cause,
        namespace="default",
        pod="p1",
        pod_uid="uid-p1",
    )


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
