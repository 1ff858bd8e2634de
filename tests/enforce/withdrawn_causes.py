"""Judges that nothing follows a write that was not applied, from what an executor reports.

It counts naively, and shares no code with `engine/dependent_writes.py`: every write that was
decided is kept, with the instant of its decision and its end. In the end each one that was applied
is held against all others of its controller.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.calls.call import NOT_FOUND


class Ended(NamedTuple):
    """A write and what became of it; `order`: how many writes had ended before."""

    action: actions.Action
    decided_ns: int
    result: Result
    order: int

    @property
    def applied(self) -> bool:
        """True if the API server has it, by this write or another's: a pod that was to be deleted
        may be gone, as one of a StatefulSet once its status says Failed.
        """
        if isinstance(self.action, actions.DeletePod) and self.result.code == NOT_FOUND:
            return True
        return self.result.ok and "not wanted" not in self.result.message


class WithdrawnCauses:
    """Listens as an executor's recorder does; see the module."""

    def __init__(self, recorder: Any = None) -> None:
        """`recorder`: the one that listens already, and goes on to."""
        self.ended_writes: list[Ended] = []
        self._decided: dict[int, tuple[actions.Action, int]] = {}
        if recorder is not None:
            planned, ended = recorder.planned, recorder.ended

            def both_planned(action: actions.Action, seen: Any, now_ns: int) -> None:
                self.planned(action, now_ns)
                planned(action, seen, now_ns)

            def both_ended(action: actions.Action, result: Result, now_ns: int) -> None:
                self.ended(action, result)
                ended(action, result, now_ns)

            recorder.planned, recorder.ended = both_planned, both_ended

    def planned(self, action: actions.Action, now_ns: int) -> None:
        """It was decided."""
        self._decided[id(action)] = (action, now_ns)

    def ended(self, action: actions.Action, result: Result) -> None:
        """It was carried out, or not."""
        _, decided_ns = self._decided.pop(id(action), (action, -1))
        self.ended_writes.append(Ended(action, decided_ns, result, len(self.ended_writes)))

    def broken(self) -> Iterator[str]:
        """A line for each write that was applied though one that it follows was not."""
        of_controller: dict[str, list[Ended]] = defaultdict(list)
        by_identity: dict[int, Ended] = {}
        for end in self.ended_writes:
            if not isinstance(end.action, actions.RecordEvent):
                of_controller[end.action.controller].append(end)
                by_identity[id(end.action)] = end
        for ends in of_controller.values():
            together: dict[int, list[Ended]] = defaultdict(list)
            for end in ends:
                together[end.decided_ns].append(end)
            for end in ends:
                if not (end.applied and end.result.changed):
                    continue
                for first in _before(end, together[end.decided_ns], by_identity):
                    if not first.applied:
                        yield f"{_said(end)} although {_said(first)} came to {first.result.code}"
                    elif first.order > end.order:
                        yield f"{_said(end)} before {_said(first)}"


def _before(end: Ended, together: list[Ended], by_identity: dict[int, Ended]) -> Iterator[Ended]:
    """The writes without which it may not have been made."""
    action = end.action
    cause = action.cause
    while cause is not None:
        led = by_identity.get(id(cause))
        if led is not None and (led.decided_ns == end.decided_ns or led.order > end.order):
            yield led
        cause = cause.cause
    for other in together:
        first = other.action
        if first is action:
            continue
        if isinstance(first, actions.SetNodeConditions):
            marks = isinstance(action, actions.MarkPodNotReady)
            follows = marks and action.because == f"node {first.node} is not Ready"
        else:
            patches = isinstance(first, (actions.SetPodCondition, actions.SetPodPhase))
            follows = (
                patches and isinstance(action, actions.DeletePod) and first.target == action.target
            )
        if follows:
            yield other


def _said(end: Ended) -> str:
    action = end.action
    where = "/".join(filter(None, action.target[1]))
    node = f" of {action.because}" if isinstance(action, actions.PodAction) else ""
    return f"{type(action).__name__} {where}{node} ({action.id}, decided at {end.decided_ns})"
