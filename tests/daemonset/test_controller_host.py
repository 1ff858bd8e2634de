"""A dry run beside a controller of other habits: other names, other hashes, another order of nodes.

What our copy plans must all be confirmed by what the other one does; nothing may stay planned once
an update or a rollback is over.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.daemonset import history, rolling_update, sync
from kubectl_nodelife.engine.actions import ActionNumbers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Synced
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.engine.settlement import CONFIRMED
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.world import World

TRACES = Path(__file__).parents[1] / "traces"


class Habits:
    """Gives the other controller its own names, hashes and order while it is at work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.other = False
        name, first, make_hash = sync.pod_name, rolling_update._first, history.compute_hash

        def pod_name(context: sync.SyncContext, node: str, taken: set[str]) -> str:
            return name(context, node, taken) + ("x" if self.other else "")

        def last(count: int, names: set[str], without: frozenset[str] = frozenset()) -> list[str]:
            if not self.other or count <= 0:
                return first(count, names, without)
            return heapq.nlargest(count, names - without)

        def compute_hash(template: dict[str, object], count: int | None) -> str:
            return make_hash(template, count) + ("x" if self.other else "")

        monkeypatch.setattr(sync, "pod_name", pod_name)
        monkeypatch.setattr(rolling_update, "_first", last)
        monkeypatch.setattr(history, "compute_hash", compute_hash)


class Shadow:
    """Our copy: it sees all, decides, and writes nothing."""

    def __init__(self, settings: Settings, cache: Cache) -> None:
        controllers = make_controllers(settings, ["daemonset"])
        self.kinds = sorted({kind for c in controllers for kind in c.watches})
        self.decided: Counter[str] = Counter()
        self.overlay = Overlay(cache)
        apart = ActionNumbers(1_000_000)  # the causes of what it sees are the other engine's
        self.engine = Engine(controllers, cache, join=True, kinds=self.kinds, numbers=apart)

    def see(self, now_ns: int, events: Iterable[Event]) -> None:
        """Events of the cluster, and what follows in the projected view."""
        todo = [e for event in events for e in self.overlay.observe(event, now_ns)]
        while True:
            actions = list(self.engine.step(now_ns, todo))
            self.decided.update(type(action).__name__ for action in actions)
            todo = [e for action in actions for e in self.overlay.project(action, now_ns)]
            if not todo:
                return

    def wake(self, now_ns: int) -> None:
        """What is due by now."""
        while (due := self.engine.next_due()) is not None and due <= now_ns:
            self.see(due, ())


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    "trace",
    [
        "daemonset-follows-nodes",
        "daemonset-on-lost-node",
        "daemonset-rollback",
        "daemonset-rolling-update",
    ],
)
def test_all_that_is_planned_is_confirmed(
    trace: str, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (TRACES / trace / "scenario.yaml").read_bytes()
    setting = assemble(parse_scenario(content, trace))
    scenario = setting.scenario
    settings = make_settings(setting.profile, scenario.flags)
    timeline = Timeline(setting.start_ns)
    world = World(
        Api(timeline, setting.start_ns, setting.cluster.copy()),
        scenario.kubelet,
        end_ns=setting.start_ns + scenario.duration_ns,
        status_rules=setting.status_rules,
    )
    Script(world, scenario.events)
    controllers = make_controllers(settings, scenario.controllers)
    kinds = sorted({kind for c in controllers for kind in c.watches})
    engine = Engine(controllers, world.begin(kinds), kinds=kinds, numbers=world.api.numbers)

    shadow = Shadow(settings, setting.cluster.copy())
    habits = Habits(monkeypatch)

    start: list[Event] = [Synced(kind) for kind in shadow.kinds]
    while (tick := world.next(engine.next_due())) is not None:
        now_ns, events = tick[0], list(tick[1])
        habits.other = False
        shadow.wake(now_ns)
        batches = [[event] for event in events] if one_by_one else [events]
        for batch in [*batches, start]:
            shadow.see(now_ns, batch)
            if one_by_one:
                shadow.wake(now_ns + 5)
        start = []
        habits.other = True
        for action in engine.step(now_ns, events):
            timeline.write(now_ns, action)
            world.start(action, now_ns)
    shadow.wake(world.api.now_ns)

    assert list(shadow.overlay.pending()) == []
    unconfirmed = Counter(
        type(s.action).__name__ for s in shadow.overlay.settled if s.outcome != CONFIRMED
    )
    assert set(unconfirmed) <= {"UpdateDaemonSetStatus"}
    assert shadow.decided["CreatePod"] > 0
    assert shadow.decided["CreateControllerRevision"] > 0
