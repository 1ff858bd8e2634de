"""What is refused because something cannot be read, and what goes on; bugs of controllers too."""

from collections.abc import Hashable, Iterable, Iterator

import pytest

from kubectl_nodelife.engine.actions import (
    Action,
    CreatePod,
    DeletePod,
    RecordEvent,
    Requeue,
    SetNodeLabels,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import TurnPart
from kubectl_nodelife.engine.engine import QUARANTINED, Engine
from kubectl_nodelife.engine.events import Change, Gone, Outcome, Put, Unreadable
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec
from kubectl_nodelife.kube.times import SECOND_NS
from tests.planned import create_pod

SET = OwnerReference(kind="DaemonSet", name="s", uid="u", controller=True)
NODE = ("Node", ("", "n"))


def a_pod(name: str, node: str = "n", *owners: OwnerReference) -> Put:
    meta = ObjectMeta(name=name, namespace="ns", owner_references=owners)
    return Put("Pod", Pod(metadata=meta, spec=PodSpec(node_name=node)))


def a_node(name: str) -> Put:
    return Put("Node", Node(metadata=ObjectMeta(name=name)))


def filled(*events: Put | Unreadable) -> Cache:
    cache = Cache()
    for event in events:
        cache.apply(event, 0)
    return cache


class Decides:
    """Decides the same whenever it is told of a node; may raise instead."""

    name = "c"
    reads_conditions_of: frozenset[str] = frozenset()
    reads_success = False

    def __init__(self, *actions: Action, watches: Iterable[str] = ("Node",)) -> None:
        self.watches = frozenset(watches)
        self.actions = actions
        self.outcomes: list[Outcome] = []
        self.raises: set[Hashable] = set()
        self.turns: list[Hashable] = []

    def start(self, cache: Cache, now_ns: int) -> Iterable[Action | Requeue]:
        self._perhaps_raise("start")
        return ()

    join = start

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Iterable[Action | Requeue]:
        assert change.new is not None
        self._perhaps_raise(change.new.name)
        return self.actions

    def rests(self, key: Hashable) -> bool:
        return False

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Iterable[Action | Requeue]:
        self.turns.append(key)
        self._perhaps_raise(key)
        return ()

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Iterable[Action | Requeue]:
        self.outcomes.append(outcome)
        return ()

    def _perhaps_raise(self, about: Hashable) -> None:
        if about in self.raises:
            raise KeyError(about)


def delete(name: str, controller: str = "c") -> DeletePod:
    return DeletePod(controller=controller, because="", namespace="ns", pod=name)


def create(node: str, owner: str) -> CreatePod:
    return create_pod("new", node, owner, controller="c", namespace="ns")


def label(node: str, controller: str = "c") -> SetNodeLabels:
    return SetNodeLabels(controller=controller, because="", node=node, labels={"a": "b"})


THERE = (a_node("n"), a_node("other"), a_pod("p"), a_pod("q", "other"), a_pod("d", "n", SET))
NODE_UNREAD = Unreadable(*NODE, why="w")
POD_UNREAD = Unreadable("Pod", ("ns", "x"), "w", related=(NODE, ("DaemonSet", ("ns", "s"))))
SET_UNREAD = Unreadable("DaemonSet", ("ns", "s"), "w")
LEASE_UNREAD = Unreadable("Lease", ("kube-node-lease", "n"), "w", related=(NODE,))
REVISION_UNREAD = Unreadable(
    "ControllerRevision", ("ns", "r"), "w", related=(("DaemonSet", ("ns", "s")),)
)


@pytest.mark.parametrize(
    ("unread", "action", "refused"),
    [
        pytest.param(NODE_UNREAD, label("n"), True, id="the-node-itself"),
        pytest.param(NODE_UNREAD, label("other"), False, id="another-node"),
        pytest.param(NODE_UNREAD, delete("p"), True, id="a-pod-of-the-node"),
        pytest.param(NODE_UNREAD, delete("q"), False, id="a-pod-of-another-node"),
        pytest.param(NODE_UNREAD, create("n", "t"), True, id="a-pod-for-the-node"),
        pytest.param(POD_UNREAD, delete("x"), True, id="the-pod-itself"),
        pytest.param(POD_UNREAD, label("n"), False, id="the-node-of-the-pod"),
        pytest.param(POD_UNREAD, delete("p"), False, id="another-pod-of-its-node"),
        pytest.param(POD_UNREAD, create("other", "s"), True, id="another-pod-of-its-set"),
        pytest.param(POD_UNREAD, create("n", "t"), True, id="another-sets-pod-for-its-node"),
        pytest.param(LEASE_UNREAD, label("n"), True, id="the-node-of-the-lease"),
        pytest.param(LEASE_UNREAD, delete("p"), False, id="a-pod-of-the-leases-node"),
        pytest.param(SET_UNREAD, delete("d"), True, id="a-pod-of-the-set"),
        pytest.param(SET_UNREAD, create("other", "s"), True, id="a-new-pod-of-the-set"),
        pytest.param(SET_UNREAD, create("other", "t"), False, id="a-new-pod-of-another-set"),
        pytest.param(REVISION_UNREAD, create("other", "s"), True, id="a-set-with-such-a-revision"),
        pytest.param(REVISION_UNREAD, delete("d"), True, id="its-pods-by-who-follows-sets"),
    ],
)
def test_what_is_refused(unread: Unreadable, action: Action, refused: bool) -> None:
    controller = Decides(action, watches=("Node", "DaemonSet"))
    engine = Engine([controller], filled(*THERE, unread))
    list(engine.step(1, []))
    assert list(engine.step(2, [a_node("anything")])) == ([] if refused else [action])
    assert engine.next_due() == (2 + SECOND_NS if refused else None)
    list(engine.step(2 + SECOND_NS, []))
    assert [(o.action, o.code) for o in controller.outcomes] == [(action, QUARANTINED)] * refused


def test_a_pod_hangs_on_its_nodes_lease_where_readiness_is_decided() -> None:
    """The node lifecycle controller marks pods not ready because it hears nothing of the node."""
    marks = Decides(delete("p"), delete("q"), watches=("Node", "Heartbeat"))
    engine = Engine([marks], filled(*THERE, LEASE_UNREAD))
    list(engine.step(1, []))
    assert list(engine.step(2, [a_node("anything")])) == [delete("q")]


def test_an_eviction_does_not_hang_on_a_sets_revision() -> None:
    """Who deletes the pod for its node's taint does not read revisions."""
    evicts = Decides(delete("d"))
    engine = Engine([evicts], filled(*THERE, REVISION_UNREAD))
    list(engine.step(1, []))
    assert list(engine.step(2, [a_node("n")])) == [delete("d")]


def test_events_about_it_are_dropped_and_nobody_waits_for_an_answer() -> None:
    engine = Engine(
        [Decides(RecordEvent(controller="c", because="", kind="Node", name="n", reason="R"))],
        filled(NODE_UNREAD),
    )
    list(engine.step(1, []))
    assert list(engine.step(2, [a_node("other")])) == []
    assert engine.next_due() is None


@pytest.mark.parametrize("event", [a_node("n"), Gone(*NODE)], ids=["readable", "gone"])
def test_it_ends_when_the_object_can_be_read_or_is_gone(event: Put | Gone) -> None:
    cache = filled(*THERE, NODE_UNREAD)
    assert cache.is_quarantined("Pod", ("ns", "p"))
    cache.apply(event, 1)
    assert not cache.quarantine
    assert not cache.is_quarantined("Pod", ("ns", "p"))


def test_a_new_list_says_what_is_still_unreadable() -> None:
    cache = filled(NODE_UNREAD, POD_UNREAD)
    cache.quarantine.relisted("Pod", [], 5)
    assert not cache.is_quarantined("Pod", ("ns", "x"))
    assert not cache.is_quarantined("DaemonSet", ("ns", "s"))
    assert cache.is_quarantined(*NODE)


def test_what_was_readable_stays_as_it_was() -> None:
    cache = filled(*THERE, NODE_UNREAD)
    assert cache.node("n") is not None
    assert list(cache.quarantine.lines()) == [
        "Node n cannot be read (w): decisions about it and what depends on it are off"
    ]


def test_a_copy_has_a_quarantine_of_its_own() -> None:
    cache = filled(NODE_UNREAD)
    cache.copy().apply(a_node("n"), 1)
    assert cache.is_quarantined(*NODE)


# --- bugs -----------------------------------------------------------------------------------------


def test_without_somebody_to_tell_a_bug_is_raised() -> None:
    broken = Decides()
    broken.raises = {"n"}
    engine = Engine([broken], Cache())
    list(engine.step(1, []))
    with pytest.raises(KeyError):
        list(engine.step(2, [a_node("n")]))


def test_a_bug_is_contained_by_controller_and_object() -> None:
    told: list[Bug] = []
    of_other = label("n", "other")
    broken, other = Decides(label("n")), Decides(of_other)
    other.name = "other"
    engine = Engine([broken, other], Cache(), on_bug=told.append)
    list(engine.step(1, []))
    broken.raises = {"n"}
    assert list(engine.step(2, [a_node("n")])) == [of_other]
    assert [(bug.controller, bug.about) for bug in told] == [("c", NODE)]
    broken.actions = (label("n"), label("m"))
    decided = list(engine.step(3, [a_node("m")]))
    assert decided == [label("m"), of_other], "its own on n are refused, all others go on"
    broken.raises = set()
    list(engine.step(4, [a_node("n")]))
    assert not engine.cache.quarantine, "it has taken in a later version"


def test_a_turn_that_fails_comes_again_later_each_time() -> None:
    broken = Decides(Requeue("c", "k", 10))
    engine = Engine([broken], Cache(), on_bug=lambda bug: None)
    list(engine.step(1, []))
    list(engine.step(2, [a_node("n")]))
    broken.raises = {"k"}
    for _ in range(3):
        due = engine.next_due()
        assert due is not None
        list(engine.step(due, []))
    assert due == 10 + SECOND_NS + 2 * SECOND_NS
    (line,) = engine.cache.quarantine.lines()
    assert line.startswith("bug in controller c at k (KeyError at _perhaps_raise:")
    broken.raises = set()
    due = engine.next_due()
    assert due is not None
    list(engine.step(due, []))
    assert not engine.cache.quarantine


def test_a_part_of_a_turn_that_fails_leaves_the_rest() -> None:
    def fails() -> Iterator[Action]:
        yield label("n")
        raise KeyError("n")

    works = TurnPart("c", ("Node", ("", "m")), [label("m")])
    turn = Decides(*[TurnPart("c", NODE, fails()), works])  # type: ignore[arg-type]
    engine = Engine([turn], Cache(), on_bug=lambda bug: None)
    list(engine.step(1, []))
    assert list(engine.step(2, [a_node("x")])) == [label("n"), label("m")]
    assert list(engine.cache.quarantine.bugs) == [("c", NODE)]
    turn.actions = (TurnPart("c", NODE, []), works)  # type: ignore[assignment]
    assert list(engine.step(3, [a_node("x")])) == [label("m")]
    assert not engine.cache.quarantine


def test_a_controller_that_cannot_begin_does_not_take_part() -> None:
    broken = Decides(label("n"))
    broken.raises = {"start"}
    engine = Engine([broken], Cache(), on_bug=lambda bug: None)
    list(engine.step(1, []))
    assert engine.controllers == []
    assert list(engine.step(2, [a_node("n")])) == []
