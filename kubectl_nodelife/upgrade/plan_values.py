"""The plan of an upgrade as values: nodes with their decisions, the course, what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.counts import ScopeBudget
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.drain.results import Remedy
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.upgrade_course import Course, NodeTurn

CLAIM: Final = "claim"
SKIP: Final = "skip"
HOLD: Final = "hold"

REFUSED_BY: Final = "refused"
WARNING: Final = "warning"
NOT_EVALUATED: Final = "not evaluated"


class PreflightFinding(NamedTuple):
    """Something to be said before the start. `check`: what was looked at; `severity`: `refused`
    (the start is), `warning`, or `not evaluated`.
    """

    check: str
    severity: str
    text: str


class UpgradeEstimate(NamedTuple):
    """How long the run takes, in seconds. `cold`: what passes before the first claim."""

    low: float
    high: float
    cold: float


@dataclass(slots=True)
class PlannedNode:
    """One selected node. `decision`: claim, skip (it is left out), hold (its turn never comes).

    `turn`: when, for those that are claimed. `remedy`, `flags_needed`: of one that cannot be
    drained.
    """

    node: Node
    pool: str
    zone: str
    decision: str
    reason: str
    verdict: DrainVerdict
    turn: NodeTurn | None = None
    remedy: Remedy | None = None
    flags_needed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.node.name


@dataclass(slots=True)
class UpgradePlan:
    """The answer to "what will happen, how long does it take, how low does the cluster get?".

    `budgets`: the numbers of each scope as they are now. `refusals`: why no run would be started.
    `rights`: kubectl lines that ask whether one may do what a run does; a plan itself does not ask.
    """

    policy: UpgradePolicy
    nodes: list[PlannedNode]
    course: Course
    estimate: UpgradeEstimate | None
    budgets: list[ScopeBudget] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    findings: list[PreflightFinding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    not_evaluated: list[str] = field(default_factory=list)
    rights: list[str] = field(default_factory=list)

    @property
    def expected_seconds(self) -> float:
        """How long the run takes as it was played."""
        cold = self.estimate.cold if self.estimate is not None else 0.0
        return cold + self.course.end_ns / SECOND_NS

    @property
    def done(self) -> list[PlannedNode]:
        """The nodes that the run does."""
        return [node for node in self.nodes if node.decision == CLAIM]

    @property
    def undone(self) -> list[PlannedNode]:
        """The nodes that cannot be done: not those that are there already, or held by a person."""
        bad = {"never", "refused", "unknown"}
        return [
            node
            for node in self.nodes
            if node.decision == HOLD
            or (node.decision == SKIP and (node.verdict.verdict in bad or node.turn is not None))
        ]
