"""Monitor passes over nodes that come, go and come back.

What upstream's own tests say is in the vectors (tests/conformance).
"""

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.controller import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.health import Passes, update_node_health
from kubectl_nodelife.controllers.nodelifecycle.zones import Zones
from kubectl_nodelife.engine.actions import Action, AddTaints, MarkPodNotReady, RemoveTaints
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Gone, Heartbeats, Put
from kubectl_nodelife.engine.heartbeat import Heartbeat
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from tests.objects import node, pod, put, typed

LOST = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
AGE_NS = 40 * SECOND_NS


def posted(name: str, ready: str, *taints: Taint, heartbeat: int = 0) -> Node:
    at = heartbeat * SECOND_NS
    return typed(node(name, ready, heartbeat=at, since=at, taints=taints, uid=f"u-{name}"))


@pytest.mark.parametrize(
    ("stops_at", "deleted_at", "probe"),
    [
        pytest.param(12, None, 15, id="there all the time: the pass after the last renewal"),
        pytest.param(23, 17, 60, id="renewed while it was gone: the pass that sees it again"),
        pytest.param(12, 17, 15, id="silent before it was deleted: the pass that noticed"),
        pytest.param(12, 12, 60, id="deleted before the pass that would have noticed"),
    ],
)
def test_who_notices_the_last_renewal(stops_at: int, deleted_at: int | None, probe: int) -> None:
    """Passes look at nodes that are there: `tryUpdateNodeHealth` runs over the nodes listed."""
    passes = Passes()
    heartbeat = Heartbeat()
    heartbeat.follow(Heartbeats("n", SECOND_NS, 10 * SECOND_NS), 0)
    present = posted("n", "True")
    passes.begin(0)
    health, _ = update_node_health(present, None, heartbeat, passes, 0, AGE_NS, AGE_NS)
    passes.begin(5 * SECOND_NS)
    health, _ = update_node_health(
        present, health, heartbeat, passes, 5 * SECOND_NS, AGE_NS, AGE_NS
    )
    heartbeat.follow(
        Heartbeats("n", SECOND_NS, 10 * SECOND_NS, stop_ns=stops_at * SECOND_NS),
        stops_at * SECOND_NS,
    )
    for second in range(10, 61, 5):
        passes.begin(second * SECOND_NS)
    unseen = None if deleted_at is None else deleted_at * SECOND_NS
    seen = passes.that_saw_it(unseen, 60 * SECOND_NS)
    health, _ = update_node_health(present, health, heartbeat, seen, 60 * SECOND_NS, AGE_NS, AGE_NS)
    assert health.probe_ns == probe * SECOND_NS


def test_of_a_lease_that_goes_twice_a_pass_saw_the_first() -> None:
    """`tryUpdateNodeHealth` takes a renewal when it sees it, though the Lease went since."""
    passes, heartbeat, present = Passes(), Heartbeat(), posted("n", "True")
    heartbeat.follow(Heartbeats("n", SECOND_NS, 10 * SECOND_NS), 0)
    health = None
    for second in range(0, 26, 5):
        passes.begin(second * SECOND_NS)
    for second in (0, 5):
        now_ns = second * SECOND_NS
        health, _ = update_node_health(present, health, heartbeat, passes, now_ns, AGE_NS, AGE_NS)
    for gone_ns in (20 * SECOND_NS + 1, 22 * SECOND_NS):  # it is made again at 21 s
        heartbeat = heartbeat.deleted(gone_ns)
    now_ns = 25 * SECOND_NS
    health, _ = update_node_health(present, health, heartbeat, passes, now_ns, AGE_NS, AGE_NS)
    assert health.probe_ns == 15 * SECOND_NS


class Monitored:
    """The controller on an engine; its writes come back at once."""

    def __init__(self, *nodes: Node, **flags: str) -> None:
        told = {name.replace("_", "-"): value for name, value in flags.items()}
        self.controller = NodeLifecycleController(make_settings("v1.36", told))
        self.cache = Cache()
        self.engine = Engine([self.controller], self.cache)
        self.done: list[tuple[float, Action]] = []
        self._step(0, [Put("Node", n) for n in nodes])

    def at(self, seconds: float, *events: Event) -> None:
        now_ns = round(seconds * SECOND_NS)
        while (due_ns := self.engine.next_due()) is not None and due_ns < now_ns:
            self._step(due_ns, [])
        self._step(now_ns, list(events))

    def _step(self, now_ns: int, events: list[Event]) -> None:
        while True:
            written: dict[object, Event] = {}
            for action in self.engine.step(now_ns, events):
                self.done.append((now_ns / SECOND_NS, action))
                kind, key = action.target
                before = written.get(key)
                old = before.obj if isinstance(before, Put) else self.cache.get(kind, key)
                new = action.effect(old, now_ns) if action.writes and kind == "Node" else old
                if new is not None and new is not old:
                    written[key] = Put(kind, new)
            if not written:
                return
            events = list(written.values())

    def tainted(self) -> list[tuple[float, str]]:
        """When which node got its NoExecute taint."""
        return [
            (at, a.node)
            for at, a in self.done
            if isinstance(a, AddTaints) and any(t.matches(LOST) for t in a.taints)
        ]


def test_a_new_node_has_its_taint_exchanged_and_written_again_at_a_token() -> None:
    """A pass looks at nodes as they were listed, before it registers the new ones
    (`monitorNodeHealth`): `processTaintBaseEviction` sees the taint that is off by then.
    """
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    world = Monitored(
        posted("a", "Unknown", not_ready), posted("ok", "True"), node_monitor_grace_period="1h"
    )
    world.at(20)
    assert world.tainted() == [(0, "a"), (5.1, "a")]
    assert [at for at, a in world.done if isinstance(a, RemoveTaints)] == [0]


@pytest.mark.parametrize(
    "lost, event, tainted",
    [
        ("ab", Gone("Node", ("", "a")), [(0.1, "a"), (20.1, "b")]),
        ("abc", Gone("Node", ("", "b")), [(0.1, "a"), (40.1, "c")]),
        ("abc", Put("Node", posted("c", "Unknown", LOST)), [(0.1, "a"), (20.1, "c"), (40.1, "b")]),
    ],
    ids=["deleted-after-its-taint", "deleted-before", "tainted-by-somebody"],
)
def test_a_node_keeps_its_place_in_the_queue_and_costs_a_token(
    lost: str, event: Event, tainted: list[tuple[float, str]]
) -> None:
    """`markNodeForTainting` removes and adds again only nodes that are there."""
    world = Monitored(
        *(posted(name, "Unknown") for name in lost),
        posted("ok", "True"),
        node_eviction_rate="0.05",
        node_monitor_grace_period="1h",
        unhealthy_zone_threshold="1",
    )
    world.at(7, event)
    world.at(70)
    assert world.tainted() == tainted


def test_a_pod_that_comes_while_its_node_is_gone_is_tried_until_the_node_is_back() -> None:
    """`processPod` finds the old health and no node, and puts the pod back with a delay that
    doubles from 5 ms on: 13 of them are 40.955 s. The next pass only is to see the new node.
    """
    world = Monitored(posted("a", "Unknown"), posted("ok", "True"), node_monitor_grace_period="1h")
    world.at(7, Gone("Node", ("", "a")))
    world.at(9.06, put(pod("late", "a", ready="True")))
    world.at(50.01, Put("Node", posted("a", "True", heartbeat=50)))
    world.at(54)
    assert [at for at, a in world.done if isinstance(a, MarkPodNotReady)] == [50.015]


def excluded(name: str, ready: str) -> Node:
    lone = posted(name, ready)
    labels = {"topology.kubernetes.io/zone": "z", "node.kubernetes.io/exclude-disruption": ""}
    return replace(lone, metadata=replace(lone.metadata, labels=labels))


def test_a_zone_that_nobody_counts_is_forgotten_by_chance() -> None:
    """`handleDisruption` ends its walk over the old states at the first zone that is well: only
    where it meets the other before, that gets a new queue, and its lost node another taint.
    """
    world = Monitored(posted("a", "True"), excluded("b", "Unknown"), node_monitor_grace_period="1h")
    world.at(601)
    tainted = [at for at, name in world.tainted()]
    assert tainted[0] == 0.1
    assert 4 <= len(tainted) <= 40, "of 120 passes one in eight"


def test_the_first_pass_takes_a_taint_off_once() -> None:
    """Upstream asks for it when it registers the node, and again when it finds it Ready: the second
    time the API server shows no taint any more, and no patch is sent.
    """
    world = Monitored(posted("a", "True", LOST), posted("ok", "True"))
    world.at(1)
    assert len([a for _, a in world.done if isinstance(a, RemoveTaints)]) == 1


def test_a_zone_keeps_its_state_while_a_node_counts_there_that_has_moved() -> None:
    """`handleDisruption` counts what the pass saw; a label may change before the pass ends."""
    zones = Zones(make_settings("newest"))
    here, there = posted("a", "True"), excluded("a", "True")
    zones.ensure(zones.count(here, here.ready()))
    zones.ensure(zones.place(there))
    zones.forget_uncounted(zones.counts().keys())
    assert set(zones.counts()) == {""} and "" in zones.states


def test_a_pass_that_has_written_twice_decides_on_the_node_as_it_read_it_anew() -> None:
    """A node made anew carries the not-ready taint, and is remembered as silent: the pass that
    registers it takes the taint off, so that its status update meets a conflict and is tried again
    with the node as it is by then. No taint is left to exchange: it waits for the rate limiter.
    """
    not_ready = replace(LOST, key="node.kubernetes.io/not-ready")
    world = Monitored(
        posted("a", "True"),
        posted("ok", "True"),
        node_monitor_grace_period="20s",
        node_startup_grace_period="20s",
        unhealthy_zone_threshold="1",
    )
    world.at(1, Heartbeats("ok", SECOND_NS, 10 * SECOND_NS))
    world.at(7, Gone("Node", ("", "a")))
    world.at(41, Put("Node", posted("a", "False", not_ready)))
    world.at(46)
    assert [at for at, name in world.tainted() if name == "a"] == [45.1]
