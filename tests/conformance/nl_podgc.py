"""Vectors of the pod garbage collector: runs at given times over caches, and an API beside them.

Where a write asks first whether a node is gone (`if_node_gone`), the API of the vector answers, as
a live GET would.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kubectl_nodelife.controllers.podgc import PodGCController
from kubectl_nodelife.engine.actions import (
    AfterWrites,
    DeletePod,
    PodAction,
    Requeue,
    SetPodCondition,
    SetPodPhase,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions, flat
from kubectl_nodelife.engine.events import Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from tests.conformance.checks import only
from tests.conformance.world import EPOCH_NS, decode

Case = dict[str, Any]
Step = dict[str, Any]


class World:
    """The caches, the API's nodes and the controller of one vector."""

    def __init__(self, case: Case) -> None:
        only(case.get("requires") or {}, (), "switch")
        profile = "current" if case["profile"] == "any" else case["profile"]
        given = case["given"]
        only(given, {"only_rule", "nodes", "node_cache", "api_nodes", "pods"}, "given")
        self.controller = PodGCController(make_settings(profile))
        self.cache = Cache()
        self.now_ns = EPOCH_NS
        self.api_nodes = set(given.get("api_nodes", ()))
        self.deleted: set[str] = set()
        self.patched: set[str] = set()
        nodes = [decode(raw, Node) for raw in given.get("nodes", ())]
        nodes += [Node(metadata=ObjectMeta(name=name)) for name in given.get("node_cache", ())]
        self._tell([Put("Node", node) for node in nodes])
        self._tell([Put("Pod", decode(raw, Pod)) for raw in given["pods"]])

    def gc_run(self, step: Step) -> None:
        """One run."""
        self.take(self.controller.reconcile("run", self.cache, self.now_ns))

    def advance(self, step: Step) -> None:
        """Move the clock; runs are steps of their own."""
        self.now_ns += round(step["seconds"] * SECOND_NS)

    def change_nodes(self, step: Step) -> None:
        """Nodes come and go, in the cache and on the API."""
        self.api_nodes |= set(step.get("api_add", ()))
        self.api_nodes -= set(step.get("api_delete", ()))
        added = [Node(metadata=ObjectMeta(name=n)) for n in step.get("node_cache_add", ())]
        self._tell([Put("Node", node) for node in added])
        self._tell([Gone("Node", ("", name)) for name in step.get("node_cache_delete", ())])

    def take(self, actions: Actions) -> None:
        """Do what was decided; the pods that are gone leave the cache after the run."""
        events, done = [], []
        for action in flat(actions):
            if isinstance(action, Requeue):
                continue
            if isinstance(action, AfterWrites):
                done.append(action.key)
                continue
            assert isinstance(action, PodAction)
            if action.if_node_gone in self.api_nodes:
                outcome = Outcome(action, 409, "the node exists")
                assert not list(self.controller.outcome(outcome, self.cache, self.now_ns))
            elif isinstance(action, DeletePod):
                assert action.force
                assert action.grace_period_seconds == 0
                self.deleted.add(action.pod)
                events.append(Gone("Pod", (action.namespace, action.pod)))
            else:
                assert isinstance(action, (SetPodCondition, SetPodPhase))
                assert action.phase == "Failed"
                self.patched.add(action.pod)
        self._tell(events)
        for key in done:
            self.take(self.controller.reconcile(key, self.cache, self.now_ns))

    def check(self, expect: dict[str, Any]) -> None:
        """Hold the world against an expectation."""
        only(expect, {"deleted", "patched", "due_nodes"}, "key of an expectation")
        if "deleted" in expect:
            assert self.deleted == set(expect["deleted"])
        if "patched" in expect:
            assert self.patched == set(expect["patched"])
        if "due_nodes" in expect:
            assert len(self.controller.due_nodes(self.now_ns)) == expect["due_nodes"]

    def _tell(self, events: Iterable[Put | Gone]) -> None:
        for event in events:
            change = self.cache.apply(event, self.now_ns)
            if change is not None:
                assert not list(self.controller.changed(change, self.cache, self.now_ns))


STEPS: dict[str, tuple[Callable[[World, Step], None], set[str]]] = {
    "gc_run": (World.gc_run, set()),
    "advance": (World.advance, {"seconds"}),
    "change_nodes": (
        World.change_nodes,
        {"node_cache_add", "node_cache_delete", "api_add", "api_delete"},
    ),
    "expect": (lambda world, step: world.check(step["expect"]), {"expect"}),
}

RULES = {
    "out-of-service": PodGCController.gc_terminating,
    "unscheduled": PodGCController.gc_unscheduled_terminating,
}


def podgc(case: Case) -> None:
    """podgc."""
    world = World(case)
    rule = case["given"].get("only_rule")
    if rule is not None:
        only([rule], RULES, "rule")
        found = RULES[rule](world.controller, world.cache, world.now_ns)
        world.take(action for _, actions in found for action in actions)
    for step in case.get("steps", ()):
        only([step["op"]], STEPS, "op")
        play, words = STEPS[step["op"]]
        only(step, {"op", "note", *words}, f"word of step {step['op']}")
        play(world, step)
    world.check(case["expect"])
    world.check(case.get("expect_derived", {}))


TOPICS = {"podgc": podgc}
