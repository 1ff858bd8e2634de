"""What was sent stays laid over its object until the cache shows it; what failed is taken back."""

import pytest

from kubectl_nodelife.controllers.upgrade.memory import PendingWrites
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import NO_ANSWER, Outcome
from kubectl_nodelife.kube.node import Node, Taint
from tests.objects import node, pod, put

TAINT = Taint(key="nodelife.dev/upgrade", effect="NoSchedule")
KEY = ("", "n1")


class Sending:
    """A cluster with n1, and the writes of one leader."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.pending = PendingWrites()
        self.see(5)

    def see(self, version: int, *taints: Taint, uid: str = "uid-n1") -> None:
        obj = put(node(version=str(version), taints=taints, uid=uid)).obj
        self.cache.set("Node", KEY, obj)
        self.pending.settle(self.cache)

    def send(self, action: actions.Action) -> actions.Action:
        self.pending.sent(action)
        return action

    def is_pending(self, kind: str = "Node", key: tuple[str, str] = KEY) -> bool:
        return self.pending.holds(kind, key)

    def is_tainted(self) -> bool:
        view = self.pending.laid_over("Node", KEY, self.cache.get("Node", KEY), 1)
        return isinstance(view, Node) and view.has_taint(TAINT.key, TAINT.effect)


def taint() -> actions.NodeMarkPatch:
    return actions.NodeMarkPatch(
        controller="upgrade", because="b", node="n1", node_uid="uid-n1", add_taints=(TAINT,)
    )


def done(action: actions.Action, version: int) -> Outcome:
    return Outcome(action, 200, "", put(node(version=str(version), taints=(TAINT,))).obj)


def test_what_is_done_stays_laid_over_while_the_watch_is_behind() -> None:
    one = Sending()
    action = one.send(taint())
    assert one.is_tainted() and one.is_pending() and one.pending.names_of("Node") == {"n1"}
    assert one.pending.ended(done(action, 9)) and not one.pending.unanswered
    one.see(7)  # from before our write
    assert one.is_tainted() and one.is_pending()
    one.see(9, TAINT)
    assert one.is_tainted() and not one.is_pending()


@pytest.mark.parametrize("version", [9, 12])
def test_what_was_done_and_is_not_there_does_not_stay(version: int) -> None:
    """Another undid it since, or the API server stored it without."""
    one = Sending()
    one.pending.ended(done(one.send(taint()), 9))
    one.see(version)
    assert not one.is_tainted() and not one.is_pending()


def test_what_the_watch_shows_before_the_answer_still_has_no_outcome() -> None:
    one = Sending()
    action = one.send(taint())
    one.see(9, TAINT)
    assert not one.is_pending() and one.pending.unanswered
    assert one.pending.ended(done(action, 9)) and not one.pending.unanswered
    assert not one.is_pending()


@pytest.mark.parametrize("code", [409, 403, NO_ANSWER])
def test_what_failed_is_taken_back(code: int) -> None:
    one = Sending()
    action = one.send(taint())
    assert one.pending.ended(Outcome(action, code)) and not one.pending.unanswered
    assert not one.is_tainted() and not one.is_pending()


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    one = Sending()
    before = one.send(taint())
    one.pending = PendingWrites()  # a new epoch
    one.send(taint())  # equal to the one before, and another write
    assert not one.pending.ended(Outcome(before, 409))
    assert one.is_tainted() and one.is_pending()


def test_an_answer_to_an_earlier_write_does_not_end_the_later_one() -> None:
    one = Sending()
    earlier = one.send(taint())
    one.send(taint())
    assert one.pending.ended(Outcome(earlier, 409)) and one.is_pending()


def test_an_object_of_that_name_with_another_uid_ends_it() -> None:
    one = Sending()
    one.send(taint())
    one.see(8, uid="uid-another")
    assert not one.is_pending()


def test_a_creation_waits_for_its_object_and_a_deletion_for_its_end() -> None:
    one, key = Sending(), ("d", "canary")
    what = {"kind": "Pod", "namespace": "d", "name": "canary", "node": "n1"}
    canary = actions.CreateForNode(controller="upgrade", because="b", manifest={}, **what)
    one.send(canary)
    one.pending.settle(one.cache)
    assert one.is_pending("Pod", key)
    one.cache.set("Pod", key, put(pod("canary", namespace="d")).obj)
    one.pending.settle(one.cache)
    assert not one.is_pending("Pod", key)
    one.send(actions.DeleteForNode(controller="upgrade", because="b", **what))
    one.pending.settle(one.cache)
    assert one.is_pending("Pod", key)
    one.cache.set("Pod", key, None)
    one.pending.settle(one.cache)
    assert not one.is_pending("Pod", key)


def test_what_is_no_call_is_not_followed() -> None:
    one = Sending()
    one.send(actions.StartWork(controller="upgrade", because="b", node="n1", try_=1, mode="run"))
    assert not one.is_pending() and not one.pending.unanswered
