"""The course of a run to come: the upgrade controller itself, played on a copy of the cluster.

There is no second set of rules. The virtual cluster of every scenario begins with the objects that
were read, its controllers join, somebody types `upgrade start`, and the course is read off the
records. Assumed is only what cannot be known: how long the work takes and pods need to stop, that
all work succeeds, and that nothing else fails meanwhile.

It is played once, with what is expected. How much less or more time the run may take is found by
the same run without its pods (`rehearsal.py`): as much shorter and longer as that is with the least
and the longest times, and at least as short as that itself: a quick cluster need not wait for what
was played.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes, expected_work_ns
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.run import Progress, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.sim.upgrade_reading import (
    CANARY_IMAGE,
    REBOOT,
    REPLACE,
    UpgradeEvent,
    WorkAssumptions,
)
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.plan_values import UpgradeEstimate
from kubectl_nodelife.upgrade.ports import make_ports
from kubectl_nodelife.upgrade.rehearsal import RehearsedRun, rehearse
from kubectl_nodelife.workloads.force_advice import Release

LONGEST_NS: Final = 366 * 24 * HOUR_NS
"""No run is played for longer."""

_PLACE: Final = FieldPath("the plan")

SLACK: Final = 1.05
"""The time that passes between the phases: the leader's looks, its requests, their answers."""


def forecast(
    snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings, progress: Progress
) -> Course:
    """The course of the policy's run on the cluster of the snapshot. `progress`: is called with the
    number of nodes that are done in it so far.
    """
    setting = _setting(snapshot, policy, settings)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    decider = decider_for(settings, snapshot.kinds_read, snapshot.release)
    course = run(setting, controllers, make_decider=decider, until_upgraded=progress).course
    assert course is not None
    return course


def _setting(snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings) -> Setting:
    """The present, and somebody who types `upgrade start` at its first instant."""
    mode = REPLACE if policy.work.mode is WorkMode.REPLACE else REBOOT
    work = WorkAssumptions(mode=mode, duration_ns=expected_work_ns(policy))
    policy = policy if policy.canary_image else replace(policy, canary_image=CANARY_IMAGE)
    scenario = Scenario(
        file="",
        name="upgrade plan",
        profile=settings.profile,
        join=True,
        time_ns=snapshot.now_ns,
        duration_ns=LONGEST_NS,
        events=(ScenarioEvent(0, UpgradeEvent(policy, work), _PLACE),),
    )
    # The Lease of a run under way is not taken over: what is planned is another one.
    objects = (
        obj
        for obj in snapshot.objects()
        if not (isinstance(obj, Lease) and obj.key == policy.lease_key)
    )
    read = snapshot.kinds_read
    kinds = frozenset(kind.name for kind in KINDS) if read is None else read
    given = Given(objects, kinds, snapshot.now_ns, settings.profile)
    return assemble(scenario, given).under(settings)


def estimate(
    run: Callable[[], RehearsedRun],
    played: Course,
    times: tuple[PhaseTimes, PhaseTimes, PhaseTimes],
    verdicts: Mapping[str, DrainVerdict],
    options: DrainOptions,
    cold_ns: int,
) -> UpgradeEstimate:
    """The ends of what was played. `times`: of a node's phases at least, as expected, at most.

    `run`: makes it, of the nodes that could be drained. `cold_ns`: what passes before it begins.
    """
    drains = {
        turn.name: turn.drained_ns - turn.claimed_ns
        for turn in played.turns.values()
        if turn.drained_ns is not None
    }
    shorter = {name: _shorter(ns, verdicts[name]) for name, ns in drains.items()}
    longer = {name: _longer(ns, verdicts[name], options) for name, ns in drains.items()}
    least_times, expected_times, most_times = times
    phases_of = (least_times, _as_played(played, expected_times), most_times)
    low, middle, high = (
        rehearse(run(), lengths, phases).end_ns
        for lengths, phases in zip((shorter, drains, longer), phases_of, strict=True)
    )
    cold, end = cold_ns / SECOND_NS, played.end_ns / SECOND_NS
    least, most = (end * share / middle if middle else end for share in (low, high))
    least = min(least, low / SECOND_NS)
    return UpgradeEstimate(cold + min(least, end), (cold + max(most, end)) * SLACK, cold)


class SimulatedImages:
    """Simulated nodes tell of no images, and have each that is asked for."""

    def image_for(self, cache: Cache, node: Node) -> str:
        """The image that a scenario's canaries have."""
        return CANARY_IMAGE


def decider_for(
    settings: Settings,
    kinds_read: Collection[str] | None = None,
    release: Release | None = None,
) -> MakeDecider:
    """Makes upgrade controllers. `kinds_read`: the kinds of which the virtual cluster has all that
    there is, None for every kind.
    """

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeController:
        ports = make_ports(policy, settings, SimulatedImages(), kinds_read, release)
        return UpgradeController(policy, ports, epoch, began_ns)

    return make


def _as_played(played: Course, expected: PhaseTimes) -> PhaseTimes:
    """The expected time of each phase, or what it took in the play where that was longer: daemon
    pods may come back later than a node with short Leases is found to be Ready.
    """
    turns = played.turns.values()
    settled = [t.settled_ns - t.worked_ns for t in turns if t.settled_ns and t.worked_ns]
    proven = [t.released_ns - t.settled_ns for t in turns if t.released_ns and t.settled_ns]
    return PhaseTimes(
        expected.work_ns,
        max(expected.settle_ns, min(settled, default=0)),
        max(expected.prove_ns, min(proven, default=0)),
    )


def _shorter(played_ns: int, verdict: DrainVerdict) -> int:
    """The least that a drain takes which took so long when it was played."""
    return min(played_ns, int((verdict.low_seconds + 1.0) * SECOND_NS))


def _longer(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The most that it takes, within the drain's time limit."""
    high_ns = max(int(1.1 * played_ns) + 10 * SECOND_NS, int(verdict.high_seconds * SECOND_NS))
    return min(high_ns, options.timeout_ns or high_ns)
