"""How far a `kubectl drain` has come: each node's turn, and each pod that it set out to remove."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final, Generic

from kubectl_nodelife.sim.kubectl.cluster import PodT
from kubectl_nodelife.sim.kubectl.filters import Decision
from kubectl_nodelife.workloads.eviction import EvictionRefused

# How a target ended.
GONE: Final = "gone"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed-out"


class PodDeletion(Generic[PodT]):
    """One pod that kubectl set out to evict or delete.

    `outcome` is None while it goes on. `refused`: when it was refused, `refusal`: the last of
    these; `answers`: how many of them to the request that is under way.
    """

    __slots__ = (
        "accepted_ns",
        "actor",
        "answers",
        "looks",
        "outcome",
        "refusal",
        "refused",
        "version",
    )

    def __init__(self, actor: PodT) -> None:
        self.actor = actor
        self.accepted_ns: int | None = None
        self.outcome: str | None = None
        self.refusal: EvictionRefused | None = None
        self.refused: list[int] = []
        self.answers = 0
        self.version = -1
        self.looks = 0

    def fork(self, actor: PodT) -> PodDeletion[PodT]:
        """The same in a fork of the cluster; `actor` is its pod there."""
        other = copy(self)
        other.actor, other.refused = actor, list(self.refused)
        return other


class NodeRun(Generic[PodT]):
    """One node's turn.

    `decisions`: what the filters said of each pod that was listed. `refused`: one of them objected
    and nothing was touched. `end_ns` is None for a turn that never ends.
    """

    __slots__ = (
        "deadline_ns",
        "decisions",
        "end_ns",
        "left",
        "name",
        "refused",
        "start_ns",
        "targets",
    )

    def __init__(self, name: str, start_ns: int) -> None:
        self.name = name
        self.start_ns = start_ns
        self.decisions: list[tuple[PodT, Decision]] = []
        self.refused = False
        self.targets: list[PodDeletion[PodT]] = []
        self.left = 0
        self.deadline_ns: int | None = None
        self.end_ns: int | None = None

    def fork(self, listed: Callable[[PodT], PodT], moved: dict[object, object]) -> NodeRun[PodT]:
        """The same in a fork of the cluster; `moved` notes what this and its targets became."""
        other = copy(self)
        pods = {actor: listed(actor) for actor, _ in self.decisions}
        other.decisions = [(pods[actor], decision) for actor, decision in self.decisions]
        other.targets = [target.fork(pods[target.actor]) for target in self.targets]
        moved.update(zip(self.targets, other.targets, strict=True))
        moved[self] = other
        return other

    @property
    def drained(self) -> bool:
        """Whether kubectl says `node/NAME drained`."""
        ended = self.end_ns is not None and not self.refused
        return ended and all(t.outcome in (GONE, SKIPPED) for t in self.targets)
