"""The course of a simulated upgrade, read from the records of its run: which nodes were claimed
when, the steps, and the least availability. `upgrade plan` shows it of the run that it plays.

Instants are nanoseconds since the leader has watched for one grace period, before which it claims
nothing; None: not reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.claiming import CONTROL_PLANE
from kubectl_nodelife.controllers.upgrade.claims import (
    ClaimHold,
    is_control_plane,
    pool_name,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.counts import NodeScope
from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeState, decode_mark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.engine.actions import Action, EvictPod, NodeMarkPatch, UpdateRun
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.sim.api import MakePod

Entries = Sequence[tuple[int, Action]]


@dataclass(slots=True)
class NodeTurn:
    """One node of a run, from its claim to its end.

    `restored`: why it was given back without the work; `failed`: why it is not proven. `""`: none.
    `tried_ns`: when it was claimed first in its step; later claims follow drains that did not end.
    """

    name: str
    pool: str
    zone: str
    step: int
    claimed_ns: int
    tried_ns: int
    drained_ns: int | None = None
    worked_ns: int | None = None
    settled_ns: int | None = None
    released_ns: int | None = None
    done_ns: int | None = None
    restored: str = ""
    failed: str = ""


@dataclass(slots=True)
class CourseStep:
    """Nodes that belong together: a growth step of `width` nodes, or, with width 0, a zone (or
    several) once growth is over. `soak_ns`: how long the run waits after it.
    """

    pool: str
    width: int
    start_ns: int
    names: list[str] = field(default_factory=list)
    zones: list[str] = field(default_factory=list)
    end_ns: int | None = None
    soak_ns: int = 0


class LowPoint(NamedTuple):
    """The fewest nodes of a scope that are available at once, and when."""

    available: int
    at_ns: int


@dataclass(slots=True)
class Course:
    """A run from its first claim to its end.

    `available`: how many nodes of the run's pools are available, from each instant on. `held`: the
    nodes that are never claimed, and what holds them. `free_share`: the least free share of cpu and
    memory. `moves`: how often a pod that moves is moved, as (mean, most); `waiting`: pods that
    would stay Pending, and why. `phase`: the run's, at the end. `decided`: what its leaders
    decided, each with its instant in ns since the epoch.
    """

    turns: dict[str, NodeTurn] = field(default_factory=dict)
    steps: list[CourseStep] = field(default_factory=list)
    held: dict[str, ClaimHold] = field(default_factory=dict)
    available: list[tuple[int, int]] = field(default_factory=list)
    lowest: dict[NodeScope, LowPoint] = field(default_factory=dict)
    free_share: dict[str, float] = field(default_factory=dict)
    evictions: int = 0
    moves: tuple[float, int] = (0.0, 0)
    waiting: list[str] = field(default_factory=list)
    end_ns: int = 0
    phase: str = str(RunPhase.RUNNING)
    decided: list[tuple[int, Action]] = field(default_factory=list)


_REACHED: Final = {
    NodeState.WORKING: "drained_ns",
    NodeState.SETTLING: "worked_ns",
    NodeState.PROVING: "settled_ns",
    NodeState.SOAKING: "released_ns",
    NodeState.DONE: "done_ns",
}


class CourseReader:
    """Reads turns and steps from a run's records.

    `nodes`: as they were when the run began. `soaks_ns`: when the run began to soak after a step.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        policy: UpgradePolicy,
        origin_ns: int,
        soaks_ns: Sequence[int] = (),
    ) -> None:
        self._nodes, self._policy, self._origin_ns = nodes, policy, origin_ns
        self._soaks_ns = soaks_ns
        self._width = 0
        self._open: set[str] = set()
        self._in_place_of: dict[str, str] = {}
        self.course = Course()

    def read(self, entries: Iterable[tuple[int, Action]]) -> Course:
        """The course. `entries`: what happened and was not refused."""
        course = self.course
        for at_ns, action in entries:
            if isinstance(action, UpdateRun):
                self._width = self._width if action.window is None else action.window
                course.phase = action.phase or course.phase
                if action.phase in OVER:
                    course.end_ns = at_ns - self._origin_ns
            elif isinstance(action, NodeMarkPatch) and action.from_ != action.to:
                self._mark(action, at_ns - self._origin_ns)
            elif isinstance(action, EvictPod):
                course.evictions += 1
        ends = [turn.done_ns or turn.claimed_ns for turn in course.turns.values()]
        course.end_ns = course.end_ns or max(ends, default=0)
        return course

    def _mark(self, action: NodeMarkPatch, at_ns: int) -> None:
        text = action.annotations.get(ANNOTATION)
        before = decode_mark(text).for_ if text else ""
        if before:
            self._in_place_of[action.node] = before
        name = self._in_place_of.get(action.node, action.node)
        if action.to == NodeState.DRAINING:
            self._claim(name, at_ns)
            return
        turn = self.course.turns.get(name)
        if turn is None:
            return
        if action.to in _REACHED:
            setattr(turn, _REACHED[NodeState(action.to)], at_ns)
        elif action.from_ == NodeState.DRAINING:
            turn.restored, turn.done_ns = action.because, at_ns
        elif action.to in (NodeState.FAILED, NodeState.HELD):
            turn.failed, turn.done_ns = action.because, at_ns
        if turn.done_ns is not None and name in self._open:  # marks go once more, at the run's end
            self._open.discard(name)
            if not self._open:
                self.course.steps[turn.step].end_ns = at_ns

    def _claim(self, name: str, at_ns: int) -> None:
        node = self._nodes[name]
        zone = zone_name(node)
        pool = CONTROL_PLANE if is_control_plane(node) else pool_name(node, self._policy)
        steps = self.course.steps
        if not steps or self._is_another(steps[-1], pool, at_ns):
            steps.append(CourseStep(pool, max(0, self._width), at_ns))
        step, number = steps[-1], len(steps) - 1
        step.names.append(name)
        step.end_ns = None
        if zone not in step.zones:
            step.zones.append(zone)
        self._open.add(name)
        before = self.course.turns.get(name)
        tried_ns = before.tried_ns if before is not None and before.step == number else at_ns
        self.course.turns[name] = NodeTurn(name, pool, zone, number, at_ns, tried_ns)

    def _is_another(self, step: CourseStep, pool: str, at_ns: int) -> bool:
        """True if a claim now begins a new step: another pool or window, or after a soak."""
        differs = (step.pool, step.width) != (pool, max(0, self._width))
        if step.end_ns is None:
            return differs
        soaked = any(step.end_ns <= soak - self._origin_ns <= at_ns for soak in self._soaks_ns)
        if soaked:
            step.soak_ns = int(self._policy.soak_ns)
        return soaked or differs


def moves_of_pods(actions: Iterable[Action]) -> tuple[float, int]:
    """How often a pod and its successors were evicted: mean over evicted pods, and most."""
    moves: Counter[str] = Counter()
    ended: dict[str, int] = {}
    for action in actions:
        if isinstance(action, EvictPod):
            moves[action.pod_uid] += 1
        elif isinstance(action, MakePod):
            cause = action.cause
            while cause is not None and not isinstance(cause, EvictPod):
                cause = cause.cause
            if isinstance(cause, EvictPod):
                moves[action.pod_uid] = moves[cause.pod_uid]
                ended.pop(cause.pod_uid, None)
                ended[action.pod_uid] = moves[action.pod_uid]
    counts = list(ended.values())
    return (sum(counts) / len(counts) if counts else 0.0), max(counts, default=0)
