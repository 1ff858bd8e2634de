"""The controller's ways out: calls that fail, calls that are never seen, sets that go away."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.controllers.daemonset.memory import EXPECTATIONS_TIMEOUT_NS
from kubectl_nodelife.engine.actions import (
    Action,
    AdoptObject,
    CreateControllerRevision,
    CreatePod,
    DeletePod,
    RecordEvent,
    ReleaseObject,
    Requeue,
    UpdateDaemonSetStatus,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from tests import objects
from tests.objects import node, owner, put, taint, typed, workload

START = 1_800_000_000 * SECOND_NS
KEY = ("default", "agent")


def agent(uid: str = "uid-1", **spec: Any) -> DaemonSet:
    """The set."""
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    meta = {"generation": 1}
    return typed(
        workload("DaemonSet", "agent", uid=uid, metadata=meta, updateStrategy=rolling, **spec)
    )


class ControllerRun:
    """A cache and a controller; the test plays the API server, call by call."""

    def __init__(self, *objects: KubeObject, profile: str = "v1.36", nodes: int = 3) -> None:
        self.now = START
        self.cache = Cache()
        for i in range(nodes):
            self.cache.apply(Put("Node", Node(metadata=ObjectMeta(name=f"n{i}"))), self.now)
        for obj in objects:
            self.cache.apply(Put(type(obj).__name__, obj), self.now)
        self.controller = DaemonSetController(make_settings(profile, {}))
        self.requeues: dict[Any, int] = {}
        self.open: list[Action] = []
        self.done: list[Action] = []
        self.take(self.controller.start(self.cache, self.now))

    def take(self, actions: Iterable[Action | Requeue]) -> None:
        """Calls wait for an answer; wishes to be woken are kept."""
        for action in actions:
            if isinstance(action, Requeue):
                assert action.at_ns >= self.now
                self.requeues[action.key] = action.at_ns
            else:
                assert action.because
                self.open.append(action)

    def wake(self, key: Any = "queue") -> None:
        """The time that the controller asked for has come."""
        self.now = max(self.now, self.requeues.pop(key))
        self.take(self.controller.reconcile(key, self.cache, self.now))

    def answer(self, *kinds: type[Action], code: int = 200, message: str = "") -> list[Action]:
        """Answer the open calls of these kinds, all if none is named; returns them."""
        calls = [a for a in self.open if not kinds or isinstance(a, kinds)]
        self.open = [a for a in self.open if a not in calls]
        for action in calls:
            self.done.append(action)
            if isinstance(action, RecordEvent):
                continue
            if code != 200:
                outcome = Outcome(action, code, message)
                self.take(self.controller.outcome(outcome, self.cache, self.now))
            else:
                self.carry_out(action)
        return calls

    def carry_out(self, action: Action) -> None:
        """Apply one call and show what it did."""
        kind, key = action.target
        old = self.cache.get(kind, key)
        new = action.effect(old, self.now)
        if isinstance(action, CreatePod) and isinstance(new, Pod):
            new = replace(new, spec=replace(new.spec, node_name=action.node))  # scheduled at once
        if new is not old:
            self.see(Gone(kind, key) if new is None else Put(kind, new))

    def see(self, event: Put | Gone) -> None:
        """Something changed."""
        change = self.cache.apply(event, self.now)
        if change is not None:
            self.take(self.controller.changed(change, self.cache, self.now))

    def settle(self) -> None:
        """Answer everything until nothing is left to do now."""
        for _ in range(100):
            if self.open:
                self.answer()
            elif self.requeues.get("queue", self.now + SECOND_NS) <= self.now + 1:
                self.wake()
            else:
                return
        raise AssertionError("it never settles")

    def kinds(self) -> list[str]:
        """The open calls by kind."""
        return [type(a).__name__ for a in self.open]

    def reasons(self) -> list[str]:
        """The events so far, by reason."""
        events = [*self.done, *self.open]
        return [a.reason for a in events if isinstance(a, RecordEvent)]


def test_creates_come_in_growing_batches() -> None:
    context = ControllerRun(agent(), nodes=10)
    context.wake()
    assert context.kinds() == ["CreateControllerRevision"]
    sizes = []
    context.answer()
    while any(isinstance(a, CreatePod) for a in context.open):
        sizes.append(len(context.answer(CreatePod)))
    assert sizes == [1, 2, 4, 3]


def test_a_failed_batch_ends_the_creates_but_the_status_is_written() -> None:
    context = ControllerRun(agent(), nodes=10)
    context.wake()
    context.answer()
    context.answer(CreatePod)
    assert context.kinds().count("CreatePod") == 2
    context.answer(CreatePod, code=403, message="exceeded quota")
    assert context.kinds().count("CreatePod") == 0
    (status,) = [a for a in context.open if isinstance(a, UpdateDaemonSetStatus)]
    assert (status.status.desired_number_scheduled, status.status.current_number_scheduled) == (
        10,
        1,
    )
    context.answer()
    assert context.reasons().count("FailedCreate") == 2
    assert context.reasons().count("SuccessfulCreate") == 1
    assert "exceeded quota" in context.controller.errors[KEY]
    assert context.controller.expectations.satisfied(KEY, context.now)
    assert KEY in context.controller.queue.rate_limited


def test_before_1_25_the_status_is_not_written_after_an_error() -> None:
    context = ControllerRun(agent(), profile="v1.24")
    context.wake()
    context.answer()
    context.answer(CreatePod, code=500, message="no")
    assert "UpdateDaemonSetStatus" not in context.kinds()


def test_a_terminating_namespace_is_no_error() -> None:
    context = ControllerRun(agent())
    context.wake()
    context.answer()
    message = (
        "forbidden: unable to create new content in namespace x because it is being terminated"
    )
    for _ in range(2):
        context.answer(CreatePod, code=403, message=message)
    context.answer()
    assert KEY not in context.controller.errors
    assert "FailedCreate" not in context.reasons()


def test_what_is_never_seen_is_given_up_after_five_minutes() -> None:
    context = ControllerRun(agent())
    context.wake()
    (create,) = context.open
    assert isinstance(create, CreateControllerRevision)
    context.open.clear()  # the call was made, and nothing came of it
    overdue = ("overdue", *KEY)
    assert context.requeues[overdue] == context.now + EXPECTATIONS_TIMEOUT_NS
    context.wake(overdue)
    assert "not seen" in context.controller.errors[KEY]
    context.wake()
    assert context.kinds() == ["CreateControllerRevision"]
    context.settle()
    assert len(context.cache.pods) == 3


def test_a_set_that_goes_takes_its_sync_with_it() -> None:
    context = ControllerRun(agent())
    context.wake()
    (create,) = context.open
    context.open.clear()
    context.see(Gone("DaemonSet", KEY))
    context.carry_out(create)
    assert context.open == []
    context.settle()
    assert not context.cache.pods


def test_a_set_made_anew_under_its_name_starts_afresh() -> None:
    context = ControllerRun(agent())
    context.settle()
    assert len(context.cache.pods) == 3
    context.see(Put("DaemonSet", agent("uid-2")))
    context.settle()
    owners = {p.metadata.owner_references[0].uid for p in context.cache.pods.values()}
    assert owners == {"uid-1", "uid-2"}  # the old set's pods are the garbage collector's
    assert len(context.cache.pods) == 6


def test_a_template_that_cannot_be_read_harms_nobody_else() -> None:
    broken = agent(template={"spec": {"tolerations": "none"}})
    other = replace(agent("uid-2"), metadata=replace(agent("uid-2").metadata, name="other"))
    context = ControllerRun(broken, other)
    context.settle()
    assert KEY in context.controller.index.invalid
    assert len(context.cache.pods) == 3
    context.see(Put("DaemonSet", agent()))
    context.settle()
    assert KEY not in context.controller.index.invalid
    assert len(context.cache.pods) == 6


def test_a_template_with_nulls_makes_pods() -> None:
    spec = {"containers": [], "nodeSelector": None, "tolerations": None, "affinity": None}
    template = {"metadata": {"labels": {"app": "agent"}, "creationTimestamp": None}, "spec": spec}
    context = ControllerRun(agent(template=template))
    context.settle()
    assert len(context.cache.pods) == 3


def test_the_status_is_tried_once_more() -> None:
    context = ControllerRun(agent(), nodes=0)
    context.wake()
    context.answer()
    (first,) = context.answer(UpdateDaemonSetStatus, code=409, message="conflict")
    (second,) = context.answer(UpdateDaemonSetStatus, code=409, message="conflict")
    assert isinstance(first, UpdateDaemonSetStatus) and isinstance(second, UpdateDaemonSetStatus)
    assert (first.reread, second.reread) == (False, True)
    assert context.kinds() == []
    assert "error storing status" in context.controller.errors[KEY]


def test_a_pod_that_is_gone_already_is_no_error() -> None:
    context = ControllerRun(agent())
    context.settle()
    context.see(put(node("n1", None, taints=[taint("x")])))
    context.wake()
    (delete,) = context.answer(DeletePod, code=404, message="not found")
    assert "is not tolerated" in delete.because
    context.settle()
    assert KEY not in context.controller.errors
    assert "FailedDelete" not in context.reasons()


def test_orphans_are_adopted_and_strangers_released() -> None:
    ours = owner("DaemonSet", "agent", "uid-1")
    orphan = typed(objects.pod("orphan", "n0", labels={"app": "agent"}))
    strayed = typed(objects.pod("strayed", "n0", labels={"app": "web"}, owner=ours))
    context = ControllerRun(agent(), orphan, strayed)
    context.settle()
    claims = [type(a) for a in context.done if isinstance(a, AdoptObject | ReleaseObject)]
    assert sorted(c.__name__ for c in claims) == ["AdoptObject", "ReleaseObject"]
    adopted = context.cache.pods["default", "orphan"]
    assert adopted.metadata.owner_references[0].uid == "uid-1"
    assert context.cache.pods["default", "strayed"].metadata.owner_references == ()
    assert len([p for p in context.cache.pods.values() if p.metadata.owner_references]) == 3


def test_a_failed_pod_comes_back_later_each_time() -> None:
    context = ControllerRun(agent(), nodes=1)
    context.settle()
    waits = []
    for _ in range(4):
        (pod,) = context.cache.pods.values()
        failed = replace(pod, status=replace(pod.status, phase="Failed"))
        context.see(Put("Pod", failed))
        before = context.now
        while context.cache.pods.get(pod.key) is not None:
            context.settle()
            if "queue" in context.requeues and context.cache.pods.get(pod.key) is not None:
                context.wake()
        waits.append(round((context.now - before) / SECOND_NS))
        context.settle()
    assert waits == [0, 1, 2, 4]
    assert context.reasons().count("FailedDaemonPod") == 4


def test_minimum_ready_seconds_wake_the_set_when_they_end() -> None:
    context = ControllerRun(agent(minReadySeconds=10), nodes=1)
    context.settle()
    (pod,) = context.cache.pods.values()
    status = typed(objects.pod(ready=True, since=context.now)).status
    context.see(Put("Pod", replace(pod, status=status)))
    context.settle()
    daemon_set = context.cache.get("DaemonSet", KEY)
    assert isinstance(daemon_set, DaemonSet)
    counts = (daemon_set.status.number_ready, daemon_set.status.number_available)
    assert counts == (1, 0)
    context.wake()
    context.settle()
    daemon_set = context.cache.get("DaemonSet", KEY)
    assert isinstance(daemon_set, DaemonSet)
    assert daemon_set.status.number_available == 1
    assert context.now - START < 12 * SECOND_NS


@pytest.mark.parametrize("profile", ["v1.11", "v1.16", "v1.21", "v1.30", "v1.36"])
def test_every_release_brings_its_pods_up(profile: str) -> None:
    context = ControllerRun(agent(), profile=profile)
    node = {"allocatable": {"pods": "10", "cpu": "1"}}
    for name in list(context.cache.nodes):
        context.see(Put("Node", decode("Node", {"metadata": {"name": name}, "status": node})))
    context.settle()
    nodes = set()
    for action in context.done:
        if isinstance(action, CreatePod):
            nodes.add(action.node)
            bound = bool(action.manifest["spec"].get("nodeName"))
            assert bound == (profile == "v1.11")
    assert nodes == {"n0", "n1", "n2"}


def test_sets_of_two_namespaces_with_one_uid_have_pods_of_their_own() -> None:
    """No API server gives a uid twice. From one that does, neither set sees the other's pods, and
    both see what becomes of their own."""
    context = ControllerRun(agent())
    context.wake()
    context.settle()
    twin = agent()
    context.see(
        Put("DaemonSet", replace(twin, metadata=replace(twin.metadata, namespace="elsewhere")))
    )
    context.settle()
    lost = next(pod for pod in context.cache.pods.values() if pod.namespace == "default")
    context.see(Gone("Pod", lost.key))
    context.settle()
    assert Counter(pod.namespace for pod in context.cache.pods.values()) == {
        "default": 3,
        "elsewhere": 3,
    }
    assert not any(isinstance(action, DeletePod) for action in context.done)
