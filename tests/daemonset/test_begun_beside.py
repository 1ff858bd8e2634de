"""A DaemonSet controller that begins beside one that runs on the same pods finds the same as one
that looks at all of them, in bad weather; and the hash that all pods of a set carry is theirs.
"""

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset import DaemonSetController, hash_of_all
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.sim import present as sim_branch
from kubectl_nodelife.sim.present import hold_up_to_date
from kubectl_nodelife.workloads.pod_classes import PodSummary
from tests.daemonset.test_churn import HASH, KEY, agent, play
from tests.objects import NOW_NS, pod


class Running(Engine):
    """An engine beside whose controller another one begins, every few ticks."""

    settings: Settings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cache.keep(PodSummary((), ()))
        self.chance = random.Random(1)
        self.begun = self.of_one_hash = 0

    def turns(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        yield from super().turns(now_ns, events)
        controller = self.controllers[0]
        assert isinstance(controller, DaemonSetController)
        daemon_set = self.cache.get("DaemonSet", KEY)
        if isinstance(daemon_set, DaemonSet) and self.chance.random() < 0.3:
            self._begin_beside(controller, daemon_set, now_ns)

    def _begin_beside(
        self, controller: DaemonSetController, daemon_set: DaemonSet, now_ns: int
    ) -> None:
        beside, alone = self.cache.fork(), self.cache.fork()
        beside.known_to = (controller,)
        known = hash_of_all(beside, daemon_set)
        if known is not None:
            labels = (pod.metadata.labels or {} for pod in alone.pods_of(daemon_set.uid))
            assert {of_pod.get(HASH) for of_pod in labels} == {known}
            self.of_one_hash += 1
        if alone.nodes and self.chance.random() < 0.3:  # another one is shown than is planned
            node = self.chance.choice(list(alone.nodes.values()))
            taints = self.chance.choice(((), (Taint("planned", effect="NoExecute"),)))
            tainted = replace(node, spec=replace(node.spec, taints=taints))
            other = self.chance.choice((tainted, None))
            for cache in (beside, alone):
                cache.set("Node", node.key, other)
        if self.chance.random() < 0.3:  # as where no revisions were read
            for cache in (beside, alone):
                for revision in list(cache.all("ControllerRevision")):
                    cache.set("ControllerRevision", revision.key, None)
                hold_up_to_date(cache, now_ns)
        last = controller.index.by_key[KEY].node_index._yardstick
        asked = last.revision_hash if last is not None else ""
        assert self._found(beside, asked, now_ns) == self._found(alone, asked, now_ns)
        self.begun += 1

    def _found(self, cache: Cache, revision_hash: str, now_ns: int) -> tuple[object, ...]:
        """What nodes and pods are to the set, and what is decided, when one begins over a cache."""
        controller = DaemonSetController(self.settings)
        engine = Engine([controller], cache, join=True)
        decided = [repr(a) for at_ns in (now_ns, now_ns + 1) for a in engine.step(at_ns, ())]
        tracked = controller.index.by_key[KEY]
        index = tracked.refresh(now_ns + 1, revision_hash)
        names = {*cache.nodes, *tracked.pods.by_node}
        facts = {name: index.facts(name) for name in names}
        return (
            decided,
            {name: (f.verdict, f.counted, f.listed) for name, f in facts.items() if f is not None},
            (index.tally, [set(names) for names in index._lists]),
            {name: tracked.pods.on_node(name) for name in names},
            {label: count for label, count in tracked.pods.hashes.items() if count},
            engine.next_due(),
        )


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_same(seed: int, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Running] = []

    def engine(*args: Any, **kwargs: Any) -> Running:
        made.append(Running(*args, **kwargs))
        made[-1].settings = make_settings(profile)
        return made[-1]

    monkeypatch.setattr(sim_branch, "Engine", engine)
    play(seed, profile, monkeypatch)
    assert made[0].begun > 20
    assert made[0].of_one_hash > 0


def test_pods_that_are_to_be_adopted_are_looked_at_anew() -> None:
    """Which are adopted first goes by the order in which they are found."""
    documents = [agent(1, {"type": "OnDelete"}, 0), pod("stray", labels={"app": "agent"})]
    cache, settings = Cache(), make_settings("newest")
    cache.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    cache.keep(PodSummary((), ()))
    running = DaemonSetController(settings)
    deque(Engine([running], cache, join=True).step(NOW_NS, ()), maxlen=0)
    tracked = running.index.by_key[KEY]
    assert tracked.pods.to_adopt
    assert tracked.over(cache.fork()) is None
