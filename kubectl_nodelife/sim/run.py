"""A run of a scenario: the cluster, the engine and its controllers on one virtual clock, until the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.events import Event, Outcome
from kubectl_nodelife.engine.loop import TickSource, drive
from kubectl_nodelife.sim.agenda import without_collector
from kubectl_nodelife.sim.branch import Branch
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS as PASS_DRIFT_NS  # of a run's controllers
from kubectl_nodelife.sim.scenario import Setting
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.sim.upgrade_run import MakeDecider, VirtualUpgrades
from kubectl_nodelife.sim.world import Faults

Progress = Callable[[int], None]
"""Is called with the ns of virtual time that have passed, or with the number of nodes done."""


class Run(msgspec.Struct, frozen=True):
    """The result of a run: what was set, what happened, and the cluster at the end.

    `upgrade`: the contract's `final.upgrade`, and `course` who was claimed when; None where there
    was no upgrade.
    """

    setting: Setting
    end_ns: int
    timeline: Timeline
    cluster: Cache
    failures: list[Outcome]
    upgrade: dict[str, Any] | None = None
    course: Course | None = None


def run(
    setting: Setting,
    controllers: Sequence[Controller],
    *,
    until_ns: int | None = None,
    faults: Faults | None = None,
    progress: Progress | None = None,
    make_decider: MakeDecider | None = None,
    until_upgraded: Progress | None = None,
) -> Run:
    """Play a scenario with these controllers, fresh ones. `until_ns`: end so long after t=0, if
    sooner. `make_decider`: of the scenario's upgrade, if any; `until_upgraded`: end with it; it
    is called with the number of nodes that are done so far.
    """
    duration_ns = setting.scenario.duration_ns
    if until_ns is not None:
        duration_ns = min(duration_ns, until_ns)
    with without_collector(stay=True):  # `World.end` undoes the circles
        branch = Branch.begin(setting, controllers, duration_ns=duration_ns, faults=faults)
        world, timeline = branch.world, branch.timeline
        source: TickSource = world if progress is None else _Told(world, setting.start_ns, progress)
        upgrades = None
        if make_decider is not None:
            upgrades = VirtualUpgrades(world, timeline, make_decider, branch.host)
            branch.script.upgrades = upgrades
            if until_upgraded is not None:
                source = _UntilUpgraded(source, upgrades, until_upgraded)
        drive(source, upgrades or branch.host)
        upgrade = upgrades.summary(timeline) if upgrades is not None else None
        course = upgrades.course(timeline) if upgrades is not None else None
        world.end()
    end_ns = setting.start_ns + duration_ns
    return Run(setting, end_ns, timeline, world.api.store, world.failures, upgrade, course)


class _UntilUpgraded:
    """A source that ends when the upgrade has, or stands still for good."""

    def __init__(self, source: TickSource, upgrades: VirtualUpgrades, progress: Progress) -> None:
        self._source = source
        self._upgrades = upgrades
        self._progress = progress

    def next(self, due_ns: int | None) -> tuple[int, Iterable[Event]] | None:
        self._progress(self._upgrades.done)
        over = self._upgrades.over or self._upgrades.stands_still
        return None if over else self._source.next(due_ns)


class _Told:
    """A source that tells how far it is."""

    def __init__(self, source: TickSource, start_ns: int, progress: Progress) -> None:
        self._source = source
        self._start_ns = start_ns
        self._progress = progress

    def next(self, due_ns: int | None) -> tuple[int, Iterable[Event]] | None:
        tick = self._source.next(due_ns)
        if tick is not None:
            self._progress(tick[0] - self._start_ns)
        return tick
