"""A play to its end, as it is read from outside."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.service_levels import ServiceLevels
from kubectl_nodelife.sim.timeline import Record, Timeline
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger


class DueThing(NamedTuple):
    """Something that was still to happen when a play ended: whose, and when, ns."""

    at_ns: int
    whose: str


class Played(msgspec.Struct, frozen=True):
    """A play to its end: the cluster as it is then, what happened, and what served when.

    `end_ns`: the horizon; `ended_ns`: when nothing was to happen any more, the horizon where that
    was not so: then `due` is what was to come. `silent`: the nodes whose kubelets are silent at the
    end, and their last sign of life; `last_signs`: between which instants that of each node came
    before it first fell silent, where that is known; `no_room`: why pods have no node then;
    `volume_on`: which node has a volume for which a pod that is bound waits; `not_made`: in
    whose place a StatefulSet makes no pod, and why. `budgets`: those whose status changed, as it
    went.
    """

    start_ns: int
    end_ns: int
    ended_ns: int
    cluster: Cache
    timeline: Timeline
    failures: list[Outcome]
    records: list[Record]
    levels: ServiceLevels
    silent: dict[str, int | None]
    last_signs: dict[str, tuple[int, int]]
    no_room: dict[Key, str]
    volume_on: dict[Key, str]
    not_made: list[tuple[Pod, str]]
    budgets: dict[Key, BudgetLedger]
    due: list[DueThing]
    waited_ns: int = 0
    """The longest that a request of kube-controller-manager's waited for its client's token."""

    @property
    def is_quiet(self) -> bool:
        """True if nothing was to happen any more."""
        return self.ended_ns < self.end_ns


def span_seconds(span_ns: int) -> float:
    """A span of time as seconds, to the ms."""
    return round(span_ns / SECOND_NS, 3)


def seconds(at_ns: int | None, start_ns: int) -> float | None:
    """An instant as seconds after the question, to the ms."""
    return None if at_ns is None else span_seconds(at_ns - start_ns)
