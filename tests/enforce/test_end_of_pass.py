"""Zones are counted with a pass's decisions, and again when its writes have ended.

Upstream counts once, when its eight workers are done, without the nodes that they gave up
(`monitorNodeHealth` of pkg/controller/nodelifecycle). With writes that take their time the loop of
100 ms would meanwhile taint nodes at a rate that is over; so ours counts before as well.
"""

from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce.host import RESTART, EnforcingHost
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.events import Outcome, Put
from kubectl_nodelife.engine.guard import is_harm
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeStatus
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS

NOW = 1_000 * SECOND_NS
LOST = NOW + 55 * SECOND_NS
"""The first pass after a grace period of 50 s."""


class Cluster:
    """Four nodes of one zone, and a server that answers when the test says so."""

    sending = ()

    def __init__(self) -> None:
        self.open: list[actions.Action] = []
        self.states: list[str] = []
        self.tainted: list[str] = []
        self.marks: list[actions.MarkPodNotReady] = []
        self.watch_is_first = False
        self.host = EnforcingHost(RESTART, lambda names: None, actions.ActionNumbers())
        self.host.executor = cast(Any, self)
        for number in range(4):
            self.post(f"n{number}", NOW)
        self.host.join(make_settings("v1.36"), ["node-lifecycle"])
        self.step(NOW)

    def post(self, name: str, at_ns: int) -> None:
        ready = NodeCondition("Ready", "True", "", "", Time(at_ns), Time(NOW))
        meta = ObjectMeta(name=name, uid=f"u-{name}", creation_timestamp=Time(0))
        node = Node(meta, status=NodeStatus(conditions=(ready,)))
        self.host.cache.apply(Put("Node", node), at_ns)

    def is_in_pass(self, controller: str) -> bool:
        return bool(self.open)

    def start(self, action: actions.Action, now_ns: int) -> None:
        if isinstance(action, actions.SetNodeConditions):
            self.open.append(action)
            if self.watch_is_first:
                shown = action.effect(self.host.cache.get(*action.target), now_ns)
                self.host.cache.apply(Put("Node", cast(Node, shown)), now_ns)
        elif isinstance(action, actions.MarkPodNotReady):
            self.marks.append(action)
        elif isinstance(action, actions.SetZoneState):
            self.states.append(action.to)
        elif isinstance(action, actions.AddTaints) and is_harm(action):
            self.tainted.append(action.node)

    def step(self, at_ns: int, *events: Any) -> None:
        """Take a step, and all that is due until right after it."""
        self._until(at_ns)
        for _ in self.host.step(at_ns, events):
            pass
        self._until(at_ns + 2)

    def _until(self, at_ns: int) -> None:
        while (due := self.host.next_due()) is not None and due < at_ns:
            for _ in self.host.step(due, ()):
                pass

    def answer(self, at_ns: int, *codes: int) -> None:
        """The writes that are on their way are answered so, in their order."""
        self._until(at_ns)
        answered, self.open = self.open, []
        outcomes = [Outcome(a, code, "") for a, code in zip(answered, codes, strict=True)]
        self.step(at_ns, *outcomes)


def test_no_node_is_tainted_at_the_old_rate_while_a_pass_writes() -> None:
    cluster = Cluster()
    assert cluster.states == ["Normal"]
    cluster.post("n0", LOST)
    cluster.step(LOST)
    assert len(cluster.open) == 3 and cluster.states == ["Normal", "PartialDisruption"]
    cluster.answer(LOST + 3 * SECOND_NS, 200, 200, 200)
    assert cluster.states == ["Normal", "PartialDisruption"]


def test_a_node_is_tried_again_before_its_zone_is_counted_without_it() -> None:
    cluster = Cluster()
    cluster.post("n0", LOST)
    cluster.step(LOST)
    cluster.answer(LOST + SECOND_NS, 200, 200, 503)
    for attempt in range(1, 7):  # PollImmediate(20ms, 100ms) tries seven times
        at_ns = LOST + SECOND_NS + attempt * 30 * MILLISECOND_NS
        cluster.step(at_ns)
        assert len(cluster.open) == 1 and cluster.states[-1] == "PartialDisruption"
        cluster.answer(at_ns, 503)
    assert not cluster.open and cluster.states[-1] == "Normal", "two of three: no disruption"
    assert cluster.host.lifecycle is not None
    assert cluster.host.lifecycle.memory.zones.counts() == {"": (1, 2)}


def test_no_node_is_tainted_before_its_zone_is_counted() -> None:
    cluster = Cluster()
    cluster.watch_is_first = True
    cluster.post("n0", LOST)
    cluster.step(LOST)
    cluster.step(LOST + 2 * SECOND_NS)
    assert cluster.tainted == [], "the answers are on their way"
    cluster.answer(LOST + 3 * SECOND_NS, 200, 200, 200)
    cluster.step(LOST + 4 * SECOND_NS)
    assert cluster.states == ["Normal", "PartialDisruption"]
    assert cluster.tainted == [], "no node of a small zone that is disrupted is tainted"


@pytest.mark.parametrize("back", [False, True], ids=["lost", "its-kubelet-posted-meanwhile"])
def test_a_token_is_spent_on_a_node_whose_status_is_on_its_way(back: bool) -> None:
    """The watch shows our own write some hundredth of a second after the loop of 100 ms has run."""
    cluster = Cluster()
    for name in ("n1", "n2", "n3"):
        cluster.post(name, LOST)
    cluster.step(LOST)
    assert [action.target[1][1] for action in cluster.open] == ["n0"]
    if back:
        cluster.post("n0", LOST)
    cluster.step(LOST + 200 * MILLISECOND_NS)
    assert cluster.tainted == ([] if back else ["n0"])


def a_pod(name: str) -> Pod:
    meta = ObjectMeta(name=name, namespace="d", uid=f"u-{name}")
    status = PodStatus(phase="Running", conditions=(PodCondition("Ready", "True"),))
    return Pod(meta, PodSpec(node_name="n0"), status)


def test_a_pass_marks_what_it_could_not_in_the_next_one_and_a_pod_worker_by_itself() -> None:
    cluster = Cluster()
    cluster.host.cache.apply(Put("Pod", a_pod("old")), NOW)
    for name in ("n1", "n2", "n3"):
        cluster.post(name, LOST)
    cluster.step(LOST)
    cluster.answer(LOST + SECOND_NS, 200)
    (of_pass,) = cluster.marks
    cluster.step(LOST + 2 * SECOND_NS, Outcome(of_pass, 503, ""), Put("Pod", a_pod("new")))
    of_queue = cluster.marks[1]
    assert (of_pass.pod, of_pass.by_pod_worker) == ("old", False)
    assert (of_queue.pod, of_queue.by_pod_worker) == ("new", True)
    cluster.step(LOST + 3 * SECOND_NS, Outcome(of_queue, 503, ""))
    cluster.step(LOST + 4 * SECOND_NS)
    assert [mark.pod for mark in cluster.marks[2:]] == ["new"], "some ms later"
    cluster.step(LOST + 10 * SECOND_NS)
    assert "old" in [mark.pod for mark in cluster.marks[3:]], "in the next pass"
