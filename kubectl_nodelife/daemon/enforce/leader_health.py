"""Says whether this process can do a leader's work: the Lease is renewed for as long as it can.

Renewed by a timer alone, the Lease of a process whose decision task hangs, or that can open no file
any more, would keep every standby from working in its place. client-go's leader election has the
same check for its own loop alone (leaderelection/healthzadaptor.go).

What a person or another writer ordered, such as a pause, the kill switch or an open breaker, is no
reason: a standby would go on in spite of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Protocol

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.kube.times import SECOND_NS

UNFIT_NS: Final = 6 * SECOND_NS
"""With the two seconds between looks, and the time between the tries of a standby, a standby leads
within a Lease's duration."""
JOURNAL_NS: Final = 2 * SECOND_NS
"""The journal is tried every two seconds, which is waited for besides."""
BLIND_NS: Final = 30 * SECOND_NS
"""A watch that does not work may be the API server's trouble, in which no standby does better."""
_SPARE: Final = 4


class LeaderWork(Protocol):
    """What is looked at."""

    def decision_task(self) -> DecisionTask | None:
        """That of the controllers that enforce; None while nobody does."""

    def journal_error(self) -> str:
        """Why nothing can be kept, "" where it can."""


class LeaderHealth:
    """Says whether this process can do a leader's work.

    `steady_ns`: a clock that cannot be set.
    """

    def __init__(self, work: LeaderWork, steady_ns: Callable[[], int]) -> None:
        self.has_descriptors: Callable[[], bool] = can_open
        self._work = work
        self._steady_ns = steady_ns
        self._since_ns: dict[str, int] = {}
        self._turn: tuple[int, int] = (0, -1)

    def why_unfit(self) -> str:
        """Why another should lead, "" for no reason. To be asked every other second."""
        task = self._work.decision_task()
        journal, blind = self._work.journal_error(), task.stands_still if task is not None else ""
        found = {
            f"the journal cannot be written: {journal}": (bool(journal), JOURNAL_NS),
            "no file or connection can be opened": (not self.has_descriptors(), UNFIT_NS),
            "the controllers make no turn": (self._hangs(task), UNFIT_NS),
            f"nothing can be decided: {blind}": (bool(blind), BLIND_NS),
        }
        now_ns = self._steady_ns()
        present = {why: limit for why, (holds, limit) in found.items() if holds}
        self._since_ns = {why: self._since_ns.get(why, now_ns) for why in present}
        over = (why for why, limit in present.items() if now_ns - self._since_ns[why] >= limit)
        return next(over, "")

    def _hangs(self, task: DecisionTask | None) -> bool:
        """True if the task has made no turn since this was asked last."""
        before = self._turn
        self._turn = (id(task), task.slices.turns) if task is not None else (0, -1)
        return task is not None and self._turn == before


def can_open() -> bool:
    """True if a few files or connections more can be opened."""
    opened: list[int] = []
    try:
        for _ in range(_SPARE):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        for number in opened:
            os.close(number)
    return True
