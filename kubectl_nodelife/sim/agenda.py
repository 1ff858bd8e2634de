"""The agenda of a world: a heap of instants, and for each the things due then, in order.

Ties are broken by rank (the scenario's events, then kubelets; controllers come last, by the loop),
and then by the order in which things were put down. All that share an instant and a rank share one
heap entry, since thirty pods of a node tend to become ready in the same nanosecond.

A happening is kept as data: which part of the world acts, by its class, and with which arguments.
So a fork of the world shares what is put down, and its own parts act.

A play makes hundreds of thousands of objects that stay until it ends, and the garbage collector
would look at them over and over: `without_collector` runs one without it.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.errors import Failed

SCRIPT = 0
KUBELET = 1
OWNER = 2

Happening = Callable[..., None]
"""Is called with the arguments it was put down with, and its instant."""

_Entry = tuple[type | None, Happening, tuple[Any, ...]]


class NotForkableError(Failed):
    """Something in the world acts that cannot be copied, such as an upgrade's leader."""


class Agenda:
    """Happenings with their instants, in ns since the epoch.

    `parts`: those that act in the world, by class. A happening is a method of one of them; any
    other callable does as well, in a world that is not forked while it is due.
    """

    def __init__(self) -> None:
        self.parts: dict[type, object] = {}
        self._heap: list[tuple[int, int]] = []
        self._due: dict[tuple[int, int], list[_Entry]] = {}
        self._foreign = 0

    def fork(self) -> Agenda:
        """The same happenings; who acts is to be told (`join`). Raises NotForkableError."""
        if self._foreign:
            raise NotForkableError("something is under way that is no part of the world")
        other = Agenda()
        other._heap = list(self._heap)
        self._due, other._due = fork_dict(self._due, list)
        return other

    def join(self, *parts: object) -> None:
        """These act in the world, one of each class."""
        self.parts.update((type(part), part) for part in parts)

    def mine(self, call: Happening) -> Any:
        """The method of a fork's part as that of the part of this world.

        Raises NotForkableError.
        """
        part = self.parts.get(type(getattr(call, "__self__", None)))
        if part is None:
            raise NotForkableError(f"{call} is no part of the world")
        return MethodType(call.__func__, part)  # type: ignore[attr-defined]

    def add(self, at_ns: int, rank: int, happening: Happening, *arguments: Any) -> None:
        """Put something down; there is no taking back, so a happening checks whether it still
        applies.
        """
        part = getattr(happening, "__self__", None)
        kind = type(part)
        entry: _Entry
        if part is not None and self.parts.get(kind) is part:
            entry = (kind, happening.__func__, arguments)  # type: ignore[attr-defined]
        else:
            self._foreign += 1
            entry = (None, happening, arguments)
        slot = (at_ns, rank)
        if slot in self._due:
            self._due[slot].append(entry)
        else:
            self._due[slot] = [entry]
            heapq.heappush(self._heap, slot)

    def next_at(self) -> int | None:
        """The earliest instant at which something happens, or None."""
        return self._heap[0][0] if self._heap else None

    def due(self) -> Iterator[tuple[int, str]]:
        """(instant, name of what acts) of all that is to happen."""
        for (at_ns, _), entries in self._due.items():
            for kind, happening, _ in entries:
                yield at_ns, kind.__name__ if kind is not None else happening.__name__

    def clear(self) -> None:
        """Forget all that was to happen, and who acts."""
        self._heap.clear()
        self._due.clear()
        self.parts.clear()

    def run(self, now_ns: int) -> None:
        """Let everything happen that is due at or before now, what comes due meanwhile included.

        What owners do in answer to it has to wait for the next run: they too only know what they
        were told before.
        """
        ran = False
        while self._heap and self._heap[0][0] <= now_ns:
            if ran and self._heap[0][1] == OWNER:
                return
            slot = heapq.heappop(self._heap)
            ran = True
            for kind, happening, arguments in self._due.pop(slot):
                if kind is not None:
                    happening(self.parts[kind], *arguments, slot[0])
                else:
                    self._foreign -= 1
                    happening(*arguments, slot[0])


@contextmanager
def without_collector(*, stay: bool = False) -> Iterator[None]:
    """`stay`: no circles are left among what was made, and the collector need never look at it;
    it goes when nobody holds it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if stay:
                gc.freeze()
            gc.enable()
