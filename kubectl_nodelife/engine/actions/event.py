"""The Event by which a controller tells people of what it does."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.engine.actions.action import Detail, ObjectAction


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
