"""What a run will be: the upgrade controller itself, played on a copy of the cluster as it is.

There is no second set of rules. The virtual cluster of every scenario begins with the objects that
were read, its controllers join, somebody types `upgrade start`, and the course is read off the
records. Assumed is only what nobody can know: how long the work takes and pods need to stop, that
all work succeeds, and that nothing else fails meanwhile.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.expected import expected_work_ns
from kubectl_nodelife.controllers.upgrade.policy import NodeWork, UpgradePolicy, WorkMode
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.sim.upgrade_reading import (
    CANARY_IMAGE,
    REBOOT,
    REPLACE,
    UpgradeEvent,
    WorkAssumptions,
)
from kubectl_nodelife.upgrade.simulated import decider_for

LONGEST_NS: Final = 366 * 24 * HOUR_NS
"""No run is played for longer."""
_PLACE: Final = FieldPath("the plan")


def forecast(snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings) -> Course:
    """The course of the policy's run on the cluster of the snapshot."""
    setting = _setting(snapshot, policy, settings)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    decider = decider_for(settings, snapshot.kinds_read, snapshot.release)
    course = run(setting, controllers, make_decider=decider, until_upgraded=True).course
    assert course is not None
    return course


def _setting(snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings) -> Setting:
    """The present, and somebody who types `upgrade start` at its first instant."""
    mode = REPLACE if policy.work.mode is WorkMode.REPLACE else REBOOT
    work = WorkAssumptions(mode=mode, duration_ns=expected_work_ns(policy))
    policy = policy if policy.canary_image else replace(policy, canary_image=CANARY_IMAGE)
    if policy.work.mode is WorkMode.JOB:  # what its pods do is not known: it is done after its time
        policy = replace(policy, work=NodeWork(WorkMode.RUN, "-"))
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
