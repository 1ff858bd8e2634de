"""What was sent stays in the view until the watch shows it; what failed is taken back."""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, AddTaints, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import NO_ANSWER, Event, Gone, Outcome, Put
from kubectl_nodelife.engine.overlay import APPLIED, HELD, PLANNED, SENT, Overlay
from kubectl_nodelife.kube.node import Taint
from tests.objects import node, pod, put

TAINT = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
KEY = ("Node", ("", "n1"))


def of_version(version: int, *taints: Taint) -> Put:
    return put(node(version=str(version), taints=taints))


class Overlaid:
    """A cluster with n1 and its pod, and the overlay on it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.overlay = Overlay(self.cache)
        self.see(of_version(5))
        self.see(put(pod("p1", namespace="d")))

    def see(self, event: Event) -> None:
        self.take(self.overlay.observe(event, 1))

    def take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, (Put, Gone)):
                self.cache.apply(event, 1)
        self.overlay.applied()

    def send(self, action: Action) -> Action:
        self.take(self.overlay.project(action, 1))
        self.overlay.mark(action, SENT)
        return action

    def outcome(self, *what: object) -> None:
        self.take(self.overlay.outcome(Outcome(*what), 2))  # type: ignore[arg-type]

    def state(self, action: Action) -> str:
        entry = self.overlay.entry(action.id)
        return entry.state if entry is not None else self.overlay.settled[-1].outcome

    def tainted(self) -> bool:
        return self.cache.nodes["n1"].has_taint(TAINT.key, TAINT.effect)


def taint() -> AddTaints:
    return AddTaints(controller="c", because="b", node="n1", node_uid="uid-n1", taints=(TAINT,))


def test_a_plan_may_be_held_and_go_on() -> None:
    one = Overlaid()
    action = taint()
    one.take(one.overlay.project(action, 1))
    assert one.state(action) == PLANNED
    one.overlay.mark(action, HELD, "the cap of nodes a minute is reached")
    entry = one.overlay.entry(action.id)
    assert entry is not None and (entry.state, entry.why[:7]) == (HELD, "the cap")


def test_what_is_done_stays_in_the_view_while_the_watch_is_behind() -> None:
    one = Overlaid()
    action = one.send(taint())
    one.outcome(action, 200, "", of_version(9, TAINT).obj)
    assert (one.state(action), one.tainted()) == (APPLIED, True)
    one.see(of_version(7))  # from before our write
    assert (one.state(action), one.tainted()) == (APPLIED, True)
    one.see(of_version(9, TAINT))
    assert (one.state(action), one.tainted()) == ("confirmed", True)


def test_what_was_done_and_undone_again_does_not_stay() -> None:
    one = Overlaid()
    action = one.send(taint())
    one.outcome(action, 200, "", of_version(9, TAINT).obj)
    one.see(of_version(12))
    assert (one.state(action), one.tainted()) == ("superseded", False)


def test_an_answer_that_the_watch_has_overtaken_ends_it_at_once() -> None:
    one = Overlaid()
    action = one.send(taint())
    one.see(of_version(12))
    one.outcome(action, 200, "", of_version(9, TAINT).obj)
    assert (one.state(action), one.tainted()) == ("superseded", False)


def test_what_failed_is_taken_back_with_what_it_led_to() -> None:
    one = Overlaid()
    action = one.send(taint())
    led_to = DeletePod(controller="c", because="b", cause=action, namespace="d", pod="p1")
    one.take(one.overlay.project(led_to, 1))
    one.outcome(action, 409, "the object has been modified")
    assert not one.tainted()
    ends = [(type(s.action), s.outcome, s.why) for s in one.overlay.settled]
    assert ends[0] == (AddTaints, "failed", "409 the object has been modified")
    assert ends[1][:2] == (DeletePod, "superseded")


def test_without_an_answer_it_stays_as_sent() -> None:
    one = Overlaid()
    action = one.send(taint())
    one.outcome(action, NO_ANSWER)
    assert (one.state(action), one.tainted()) == (SENT, True)


def test_a_pod_that_is_gone_by_its_deletion_is_confirmed() -> None:
    one = Overlaid()
    action = DeletePod(controller="c", because="b", namespace="d", pod="p1", pod_uid="uid-p1")
    one.send(replace(action, force=True, grace_period_seconds=0))
    one.see(Gone("Pod", ("d", "p1")))
    assert one.overlay.settled[-1].outcome == "confirmed"
