"""What is left of a run, as its leader foretells it, against the run's own end.

A run is played, and its leader is asked every few minutes, as for its report. What it foretells
then is held against when the run really ended.
"""

from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.document import (
    OVER,
    RunPhase,
    UpgradeRequest,
    Verb,
    document_of,
)
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.controllers.upgrade.report import TimeLeft, time_left
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS
from kubectl_nodelife.sim.upgrade_run import VirtualUpgrades
from kubectl_nodelife.upgrade.answers import decider_for
from tests.sim.documents import Json
from tests.upgrade.stand import Stand
from tests.upgrade.test_plan_and_run import POLICY, REPLACE, setting_of

SETTINGS = make_settings("newest")
LOOK_NS = 4 * MINUTE_NS
COLD_NS = SETTINGS.node_monitor_grace_period_ns
"""A leader that was joined claims at once; the run's own watched for so long first."""


class Played:
    """A run that is looked at while it is played. `found`: (when, what was left then)."""

    def __init__(self, policy: Json, *, pauses_at: int | None = None) -> None:
        setting = setting_of(policy)
        names = setting.scenario.controllers
        controllers = make_controllers(SETTINGS, names, pass_drift_ns=PASS_DRIFT_NS)
        branch = Branch.begin(setting, controllers)
        self.policy = policy_from({**policy, "selector": "pool=blue"})
        self.world = branch.world
        self.runs = VirtualUpgrades(
            branch.world, branch.timeline, decider_for(SETTINGS), branch.host
        )
        branch.script.upgrades = self.runs
        self.start_ns = look_ns = setting.start_ns
        self.found: list[tuple[int, TimeLeft]] = []
        self.end_ns = 0
        while not self.runs.over and (tick := self.world.next(self.runs.next_due())) is not None:
            deque(self.runs.step(*tick), maxlen=0)
            now_ns = tick[0]
            if pauses_at is not None and now_ns - self.start_ns >= pauses_at * MINUTE_NS:
                self.runs.request(UpgradeRequest(verb=Verb.PAUSE))
                pauses_at = None
            if now_ns >= look_ns:
                look_ns += LOOK_NS
                self._look(now_ns)
            if self.runs.stands_still:
                break
        self.end_ns = self.world.api.now_ns

    def _look(self, now_ns: int) -> None:
        last = self.runs.leaders[-1].controller.last if self.runs.leaders else None
        left = time_left(last) if last is not None and last.phase not in OVER else None
        if left is not None and last is not None and last.next.base_counts:
            self.found.append((now_ns, left))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"maxUnavailable": "10%"}, id="one-after-another"),
        pytest.param({"maxUnavailable": 3, "soak": "1m", "zones": 0}, id="three-at-once"),
        pytest.param({"maxUnavailable": "25%", "canary": 2}, id="two-canaries"),
        pytest.param({"maxUnavailable": 4, "zones": 0, **REPLACE}, id="newcomers"),
    ],
)
def test_what_is_left_ends_when_the_run_does(more: dict[str, Any]) -> None:
    played = Played({**POLICY, **more})
    assert len(played.found) >= 4
    for at_ns, left in played.found:
        really = (played.end_ns - at_ns) / SECOND_NS
        known = f"{(at_ns - played.start_ns) / SECOND_NS:.0f}s after the start: {left}"
        cold = COLD_NS / SECOND_NS if at_ns < played.start_ns + COLD_NS else 0.0
        # Drains are taken to be alike; budgets, room and how newcomers come are not foreseen.
        assert abs(left.expected + cold - really) <= max(60.0, 0.1 * really), (known, really)
        assert left.low <= left.expected < left.high


def test_a_run_that_is_paused_goes_on_when_it_is_resumed() -> None:
    policy = {**POLICY, "maxUnavailable": 3, "zones": 0}
    whole, paused = Played(policy), Played(policy, pauses_at=10)
    assert paused.world.api.store.get("Lease", paused.policy.lease_key) is not None
    at_ns, left = paused.found[-1]
    document = document_of(paused.runs._lease())
    assert document is not None and document.phase is RunPhase.PAUSED
    then = next(rest for when, rest in whole.found if when >= at_ns)
    assert left.nodes > 0 and abs(left.expected - then.expected) < 10 * 60


def test_nodes_that_the_run_is_not_about_are_not_left_to_be_done() -> None:
    s = Stand(selector="upgrade=yes")
    s.add_nodes("a0", "a1", "a2")
    chosen = s.node("a0")
    labels = {**(chosen.metadata.labels or {}), "upgrade": "yes"}
    s.put(replace(chosen, metadata=replace(chosen.metadata, labels=labels)))
    s.settle()
    assert s.controller.last is not None
    left = time_left(s.controller.last)
    assert left is not None and left.nodes == 1
