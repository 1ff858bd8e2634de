"""Vectors of the taint manager: events of pods and nodes in, deletions and events out.

The caches are given, the manager's memory too, and nothing has been started. A step changes the
cache, tells the controller, and works off what is due; a call that is to fail comes back as an
`Outcome` at once. The instant of a deletion is that of its first try.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Any

from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.controllers.tainteviction.evictions import cancelling_event, marking_event
from kubectl_nodelife.engine.actions import (
    Action,
    DeletePod,
    RecordEvent,
    Requeue,
    ScheduleEviction,
    SetPodCondition,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions, flat
from kubectl_nodelife.engine.events import Change, Outcome
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from tests.conformance.checks import only
from tests.conformance.world import EPOCH_NS, decode, instant_ns, seconds

Case = dict[str, Any]

_OPERATORS = "toleration_comparison_operators"
_TYPES: dict[str, type[Node] | type[Pod]] = {"Node": Node, "Pod": Pod}


def settings_of(case: Case) -> Settings:
    """Settings of a vector: its profile, and what it requires besides."""
    requires = case.get("requires") or {}
    flags: dict[str, object] = {}
    only(requires, {_OPERATORS, "taint_decision", "vanished_zone_cleanup"}, "switch")
    if _OPERATORS in requires:
        on = str(requires[_OPERATORS]).lower()
        flags["feature-gates"] = f"TaintTolerationComparisonOperators={on}"
    return make_settings("current" if case["profile"] == "any" else case["profile"], flags)


class World:
    """The caches, the clock and the controller of one vector."""

    def __init__(self, case: Case) -> None:
        given = case["given"]
        only(given, {"nodes", "pods", "tainted_nodes"}, "given")
        self.controller = TaintEvictionController(settings_of(case))
        self.cache = Cache()
        self.now_ns = EPOCH_NS
        for kind, raw in (("Node", given.get("nodes", ())), ("Pod", given.get("pods", ()))):
            for obj in raw:
                decoded = decode(obj, _TYPES[kind])
                self.cache.set(kind, decoded.key, decoded)
        for name, taints in given.get("tainted_nodes", {}).items():
            node = {"metadata": {"name": name}, "spec": {"taints": taints}}
            self.controller.tainted_nodes[name] = decode(node, Node).spec.taints
        self.failing_deletes = 0
        self.deletes: list[dict[str, Any]] = []
        self.status_patched: list[str] = []
        self.events: list[RecordEvent] = []
        self._due: list[tuple[int, int, Hashable]] = []
        self._count = itertools.count()

    def set_time(self, to: float) -> None:
        """Move the clock on; what comes due on the way happens at its time."""
        end_ns = instant_ns(to)
        while self._due and self._due[0][0] <= end_ns:
            self.now_ns, _, key = heapq.heappop(self._due)
            self.take(self.controller.reconcile(key, self.cache, self.now_ns))
        self.now_ns = end_ns

    def tell(self, kind: str, step: dict[str, Any]) -> None:
        """Change the cache, then deliver the event."""
        old, new = (
            decode(step[word], _TYPES[kind]) if step.get(word) is not None else None
            for word in ("old", "new")
        )
        obj = new or old
        assert obj is not None
        self.cache.set(kind, obj.key, new)
        self.take(self.controller.changed(Change(kind, old, new), self.cache, self.now_ns))

    def take(self, actions: Actions) -> None:
        """Do what was decided."""
        for action in flat(actions):
            if isinstance(action, Requeue):
                assert action.at_ns > self.now_ns
                heapq.heappush(self._due, (action.at_ns, next(self._count), action.key))
            else:
                self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, RecordEvent):
            self.events.append(action)
        elif isinstance(action, SetPodCondition):
            assert action.condition.type == "DisruptionTarget"
            self.status_patched.append(f"{action.namespace}/{action.pod}")
        elif isinstance(action, DeletePod):
            if self.failing_deletes:
                self.failing_deletes -= 1
                outcome = Outcome(action, 500, "as the vector asks")
                self.take(self.controller.outcome(outcome, self.cache, self.now_ns))
                return
            schedule = action.cause
            assert isinstance(schedule, ScheduleEviction)
            name = f"{action.namespace}/{action.pod}"
            self.deletes.append({"pod": name, "at": seconds(schedule.due_ns)})


def _fail_next(world: World, step: dict[str, Any]) -> None:
    assert step["call"] == "delete_pod", step
    world.failing_deletes = step.get("times", 1)


STEPS: dict[str, Callable[[World, dict[str, Any]], None]] = {
    "pod_event": lambda world, step: world.tell("Pod", step),
    "node_event": lambda world, step: world.tell("Node", step),
    "set_time": lambda world, step: world.set_time(step["t"]),
    "fail_next": _fail_next,
    "expect": lambda world, step: check(world, step["expect"]),
}


def _deleted(world: World, wanted: list[str]) -> None:
    assert {d["pod"] for d in world.deletes} == set(wanted)


def _not_deleted(world: World, wanted: list[str]) -> None:
    assert not {d["pod"] for d in world.deletes} & set(wanted)


def _deletes(world: World, wanted: list[dict[str, Any]]) -> None:
    assert world.deletes == wanted


def _status_patched(world: World, wanted: list[str]) -> None:
    assert set(world.status_patched) == set(wanted)


def _pending(world: World, wanted: list[str]) -> None:
    workers = world.controller.workers
    works = [work for node in workers.nodes() for work in workers.on(node)]
    assert sorted(f"{w.key[0]}/{w.key[1]}" for w in works) == sorted(wanted)


def _tainted_nodes(world: World, wanted: list[str]) -> None:
    assert sorted(world.controller.tainted_nodes) == sorted(wanted)


def _events(world: World, wanted: list[dict[str, Any]]) -> None:
    have = [{"type": e.type, "reason": e.reason, "message": e.message} for e in world.events]
    assert have == wanted


EXPECTATIONS: dict[str, Callable[[World, Any], None]] = {
    "deleted": _deleted,
    "not_deleted": _not_deleted,
    "deletes": _deletes,
    "status_patched": _status_patched,
    "pending": _pending,
    "tainted_nodes": _tainted_nodes,
    "events": _events,
}


def check(world: World, expect: dict[str, Any]) -> None:
    """Every key of an expectation."""
    only(expect, EXPECTATIONS, "key of an expectation")
    for key, wanted in expect.items():
        EXPECTATIONS[key](world, wanted)


def event_text(case: Case) -> None:
    """The words of one event, and the object it names."""
    given = case["given"]
    only(given, {"pod", "emit"}, "given")
    only(case["expect"], {"event"}, "key of an expectation")
    namespace, _, name = given["pod"].partition("/")
    cause = ScheduleEviction(
        controller="", because="", namespace=namespace, pod=name, due_ns=0, toleration_seconds=0
    )
    if given["emit"].startswith("cancel"):
        event = cancelling_event((namespace, name), "", cause)
    else:
        only([given["emit"]], {"deletion"}, "event")
        event = marking_event((namespace, name), "", cause)
    have: dict[str, Any] = {
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "involvedObject": {"kind": event.kind, "namespace": event.namespace, "name": event.name},
    }
    wanted = case["expect"]["event"]
    if settings_of(case).profile.minor >= 26:
        have["involvedObject"]["apiVersion"] = "v1"
    only(wanted, have, "word of an event")
    assert {key: have[key] for key in wanted} == wanted


def taint_manager(case: Case) -> None:
    """taint-manager."""
    if "emit" in case["given"]:
        event_text(case)
        return
    world = World(case)
    for step in case["steps"]:
        only([step["op"]], STEPS, "op")
        STEPS[step["op"]](world, step)
    check(world, case["expect"])
    check(world, case.get("expect_derived", {}))


TOPICS = {"taint-manager": taint_manager}
