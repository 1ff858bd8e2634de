"""Decisions that change no object: a zone's state, a node's place in a queue, a pod's eviction
timer, and the Event by which a controller informs people of what it does.

They are recorded like writes, since all that is written later follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kubectl_nodelife.engine.actions.action import (
    Action,
    Detail,
    NodeAction,
    ObjectAction,
    PodAction,
)
from kubectl_nodelife.kube.node import Taint


class SetZoneState(Action, frozen=True, kw_only=True, gc=False):
    """A zone's state and with it the rate at which its nodes are tainted, in nodes a second."""

    tells: ClassVar[tuple[str, ...]] = ("zone", "from_", "to", "rate")

    writes: ClassVar[bool] = False

    zone: str
    from_: str
    to: str
    rate: float

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Zone", ("", zone key))"""
        return ("Zone", ("", self.zone))


class QueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node waits in its zone's queue for a NoExecute taint.

    In classic mode it waits for the eviction of its pods.
    """

    tells: ClassVar[tuple[str, ...]] = ("zone",)

    writes: ClassVar[bool] = False

    zone: str


class UnqueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node that waited no longer does, without having been tainted."""

    tells: ClassVar[tuple[str, ...]] = ("zone",)

    writes: ClassVar[bool] = False

    zone: str


class ScheduleEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod will be deleted at `due_ns`, after `toleration_seconds` under the taints (0: now)."""

    writes: ClassVar[bool] = False

    due_ns: int
    toleration_seconds: int
    taints: tuple[Taint, ...] = ()

    def records(self) -> Iterator[tuple[str, Detail]]:
        """ScheduleEviction; `due` is made relative where the record is written."""
        yield (
            "ScheduleEviction",
            {"due_ns": self.due_ns, "tolerationSeconds": self.toleration_seconds},
        )


class CancelEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A scheduled eviction will not happen; `due_ns` is when it would have."""

    writes: ClassVar[bool] = False

    due_ns: int

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "CancelEviction", {"due_ns": self.due_ns}


class RecordEvent(ObjectAction, frozen=True, kw_only=True, gc=False):
    """An Event on an object. It never changes what a controller reads."""

    type: str = "Normal"
    reason: str
    message: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        detail: Detail = {"type": self.type, "reason": self.reason}
        if self.message:
            detail["message"] = self.message
        yield "RecordEvent", detail
