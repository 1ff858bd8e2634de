"""Seeded events against a taint manager written down once more, as upstream's text reads."""

import random
from typing import Any

import pytest

from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import CancelEviction, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.kube.pod import Pod, PodSpec, Toleration
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS

Deed = tuple[int, str, str]
NODES, PODS, KEYS = ("n1", "n2"), ("p1", "p2", "p3"), ("a", "b", "c")


class Naive:
    """Nodes are lists of taint keys, pods (node, [(key, seconds)]); times are in ms."""

    def __init__(self, sticky: bool, infinite_cancels: bool) -> None:
        self.sticky, self.infinite_cancels = sticky, infinite_cancels
        self.nodes: dict[str, list[str]] = {}
        self.pods: dict[str, tuple[str, list[tuple[str, int | None]]]] = {}
        self.tainted: dict[str, list[str]] = {}
        self.workers: dict[str, tuple[int, int] | None] = {}
        self.deeds: list[Deed] = []

    def run_timers(self, until: int) -> None:
        while due := sorted((w[1], p) for p, w in self.workers.items() if w and w[1] <= until):
            at = due[0][0]
            for pod in [p for p, w in self.workers.items() if w and w[1] == at]:
                self.workers[pod] = None
                self.delete(pod, at)

    def delete(self, pod: str, now: int) -> None:
        self.deeds.append((now, "delete", pod))
        if not self.sticky:
            self.workers.pop(pod, None)

    def cancel(self, pod: str, now: int) -> None:
        if self.workers.pop(pod, None):
            self.deeds.append((now, "cancel", pod))

    def add_work(self, pod: str, created: int, fire: int, now: int) -> None:
        if pod in self.workers:
            return
        if fire <= created:
            self.workers[pod] = None
            self.delete(pod, now)
        else:
            self.workers[pod] = (created, now + fire - created)

    def process(self, pod: str, taints: list[str], now: int) -> None:
        used = [next((t for t in self.pods[pod][1] if t[0] in ("", k)), None) for k in taints]
        if None in used:
            self.cancel(pod, now)
            self.add_work(pod, now, now, now)
            return
        limits = [t[1] for t in used if t is not None and t[1] is not None]
        if not limits:
            if self.infinite_cancels:
                self.cancel(pod, now)
            return
        worker = self.workers.get(pod)
        if worker is None:
            self.add_work(pod, now, now + 1000 * max(0, min(limits)), now)
        else:
            assert worker[0] < now, "events never share an instant here"

    def put_node(self, name: str, taints: list[str], now: int) -> None:
        unchanged = self.nodes.get(name) == taints
        self.nodes[name] = taints
        if unchanged:
            return
        self.tainted.pop(name, None)
        if taints:
            self.tainted[name] = taints
        for pod in [p for p, (node, _) in self.pods.items() if node == name]:
            if taints:
                self.process(pod, taints, now)
            else:
                self.cancel(pod, now)

    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.tainted.pop(name, None)

    def put_pod(self, name: str, node: str, terms: list[tuple[str, int | None]], now: int) -> None:
        unchanged = self.pods.get(name) == (node, terms)
        self.pods[name] = (node, terms)
        if not unchanged and node in self.tainted:
            self.process(name, self.tainted[node], now)

    def drop_pod(self, name: str, now: int) -> None:
        if self.pods.pop(name, None):
            self.cancel(name, now)


class Real:
    """The controller on an engine, its deletions and cancellations written down in the same way."""

    def __init__(self, profile: str) -> None:
        self.controller = TaintEvictionController(make_settings(profile))
        self.engine = Engine([self.controller], Cache())
        self.deeds: list[Deed] = []
        self.step(0, [])

    def step(self, now_ns: int, events: list[Event]) -> None:
        for action in self.engine.step(now_ns, events):
            word = {DeletePod: "delete", CancelEviction: "cancel"}.get(type(action))
            if word:
                self.deeds.append((now_ns // MILLISECOND_NS, word, action.target[1][1]))

    def run_timers(self, until: int) -> None:
        while (due := self.engine.next_due()) is not None and due <= until * MILLISECOND_NS:
            self.step(due, [])


def random_event(chance: random.Random, naive: Naive, now: int) -> Event:
    dice: Any = chance.random()
    if dice < 0.45:
        name = chance.choice(NODES)
        taints = chance.sample(KEYS, chance.choice([0, 0, 1, 1, 2]))
        naive.put_node(name, taints, now)
        spec = NodeSpec(taints=tuple(Taint(key=k, effect="NoExecute") for k in taints))
        return Put("Node", Node(metadata=ObjectMeta(name=name), spec=spec))
    if dice < 0.5:
        name = chance.choice(NODES)
        naive.drop_node(name)
        return Gone("Node", ("", name))
    name = chance.choice(PODS)
    if dice < 0.6:
        naive.drop_pod(name, now)
        return Gone("Pod", ("d", name))
    node = naive.pods[name][0] if name in naive.pods else chance.choice([*NODES, ""])
    terms = [
        (chance.choice([*KEYS, ""]), chance.choice([None, -1, 0, 3, 8, 20]))
        for _ in range(chance.randint(0, 4))
    ]
    naive.put_pod(name, node, terms, now)
    tolerations = tuple(
        Toleration(key=key, operator="Exists", toleration_seconds=seconds) for key, seconds in terms
    )
    spec_ = PodSpec(node_name=node, tolerations=tolerations)
    return Put("Pod", Pod(metadata=ObjectMeta(name=name, namespace="d"), spec=spec_))


@pytest.mark.parametrize("profile", ["v1.16", "v1.32", "v1.36"])
@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_the_naive_taint_manager(seed: int, profile: str) -> None:
    chance = random.Random(seed)
    rules = make_settings(profile).profile
    naive = Naive(rules.has("sticky_timer_keys"), rules.has("infinite_cancels"))
    real = Real(profile)
    second = 0
    for i in range(120):
        second += chance.choice([0, 0, 2, 5])
        now = (
            second * 1000 + 8 * i + 1
        )  # never the instant of a timer: there, upstream it is chance
        naive.run_timers(now)
        real.run_timers(now)
        event = random_event(chance, naive, now)
        real.step(now * MILLISECOND_NS, [event])
        assert sorted(real.deeds) == sorted(naive.deeds)
        waiting = {p: w[1] for p, w in naive.workers.items() if w}
        works = [w for n in NODES for w in real.controller.workers.on(n)]
        assert {w.key[1]: w.due_ns // MILLISECOND_NS for w in works} == waiting
        assert sorted(real.controller.tainted_nodes) == sorted(naive.tainted)
    assert naive.deeds


def test_an_outcome_of_another_kind_changes_nothing() -> None:
    real = Real("v1.36")
    cancel = CancelEviction(
        controller="taint-eviction", because="", namespace="d", pod="p", due_ns=1
    )
    real.step(SECOND_NS, [Outcome(cancel, 500)])
    assert real.engine.next_due() is None
