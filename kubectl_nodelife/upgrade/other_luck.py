"""Runs that do a node with some luck of the scheduler's, and not with other.

Of several nodes with the best score kube-scheduler takes one by chance. A run is played with the
first of them each time; where that may decide, also with the last. What both do is sure, and what
neither does never is; a node that one of them alone does may not be done, and the run takes as long
as the quicker of them at least, and as the slower one at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubectl_nodelife.sim.upgrade_course import PlayedRun
from kubectl_nodelife.upgrade.findings import CLAIM, PlannedNode

FEW_NODES: Final = 20
"""In clusters of no more nodes other luck is played wherever a pod got its node by chance. In
larger ones single pods matter less to the time, so that there only a sign of trouble counts."""
_BY_CHANCE: Final = "if replacements land on other nodes of the same score"


def may_decide(course: PlayedRun, claimed: int, nodes: int) -> bool:
    """True if other luck may bring another end, or another time: of `claimed` nodes of a cluster of
    `nodes`."""
    if not course.by_chance:
        return False
    turns = course.turns.values()
    tried_again = any(turn.tried_ns != turn.claimed_ns for turn in turns)
    return nodes <= FEW_NODES or tried_again or bool(course.waiting) or _done(course) < claimed


def doing_most(courses: Sequence[PlayedRun]) -> PlayedRun:
    """The first of those that do the most nodes."""
    return max(courses, key=_done)


def doing_as_many(courses: Sequence[PlayedRun]) -> list[PlayedRun]:
    """Those that do as many as any."""
    most = max(map(_done, courses))
    return [course for course in courses if _done(course) == most]


def add_doubts(nodes: Sequence[PlannedNode], courses: Sequence[PlayedRun]) -> None:
    """Say of the nodes which of them are done in some of the courses and not in others."""
    for node in nodes:
        left = [course for course in courses if not course.does(node.name)]
        if not left or len(left) == len(courses):
            continue
        why = left[0].why_not(node.name)
        if node.decision == CLAIM and not node.reason:
            node.reason = f"it may not be done {_BY_CHANCE}" + (f": {why}" if why else "")
        else:
            node.reason += f"; it is done {_BY_CHANCE}"
        node.by_chance = True


def _done(course: PlayedRun) -> int:
    return sum(map(course.does, course.turns))
