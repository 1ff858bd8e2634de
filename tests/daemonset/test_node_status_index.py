"""What the controller keeps up change by change must be what a full look at everything says."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.controllers.daemonset.node_status_index import OrderedNames
from kubectl_nodelife.controllers.daemonset.rolling_update import plan_update
from kubectl_nodelife.controllers.daemonset.sync import decisions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector, ObjectMeta, OwnerReference, Time
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import (
    DaemonSet,
    DaemonSetSpec,
    DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
)
from tests.daemonset.naive import HASH, Cluster, Walk

START = 1_000_000 * SECOND_NS
LABELS = {"app": "agent"}
OWNER = OwnerReference("DaemonSet", "agent", "uid-agent", "apps/v1", True, True)
TAINTS = (
    Taint(key="dedicated", effect="NoSchedule"),
    Taint(key="evict", effect="NoExecute"),
    Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),
    Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule"),
    Taint(key="soft", effect="PreferNoSchedule"),
)
TEMPLATES: tuple[dict[str, Any], ...] = (
    {"metadata": {"labels": LABELS}, "spec": {"containers": []}},
    {"metadata": {"labels": LABELS}, "spec": {"nodeSelector": {"pool": "blue"}}},
    {
        "metadata": {"labels": LABELS},
        "spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
    },
)


class Weather:
    """A cluster that changes at random, and the controller that is told of each change."""

    def __init__(self, seed: int, profile: str) -> None:
        self.random = random.Random(seed)
        self.now = START
        self.cache = Cache()
        self.controller = DaemonSetController(make_settings(profile, {}))
        self.classic = profile == "v1.16"
        self.number = 0
        pick = self.random.choice
        budget = RollingUpdateDaemonSet(
            max_unavailable=pick([0, 1, 2, "30%"]), max_surge=pick([0, 0, 1, "40%"])
        )
        if self.classic:
            budget = RollingUpdateDaemonSet(max_unavailable=pick([1, 2, "30%"]))
        spec = DaemonSetSpec(
            selector=LabelSelector(match_labels=LABELS),
            template=pick(TEMPLATES),
            update_strategy=DaemonSetUpdateStrategy("RollingUpdate", budget),
            min_ready_seconds=pick([0, 0, 5]),
        )
        meta = ObjectMeta(name="agent", namespace="default", uid="uid-agent", generation=1)
        self.cache.apply(Put("DaemonSet", DaemonSet(metadata=meta, spec=spec)), self.now)
        for i in range(8):
            self.cache.apply(Put("Node", self.node(f"n{i}")), self.now)
        list(self.controller.start(self.cache, self.now))

    def node(self, name: str) -> Node:
        """A node with random labels and taints."""
        pool = self.random.choice(["blue", "green"])
        taints = tuple(t for t in TAINTS if self.random.random() < 0.12)
        labels = {"pool": pool}
        return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints))

    def pod(self) -> Pod:
        """A new pod of the set, somewhere, in some state."""
        self.number += 1
        pick = self.random.choice
        labels = {**LABELS, HASH: pick(["new", "old"])}
        created = Time(self.now - self.random.randrange(3) * SECOND_NS)
        meta = ObjectMeta(
            name=f"p{self.number}",
            namespace="default",
            uid=f"uid-{self.number}",
            labels=labels,
            owner_references=pick([(OWNER,)] * 9 + [()]),
            creation_timestamp=created,
        )
        node = f"n{self.random.randrange(10)}"  # two of them need not exist
        return Pod(metadata=meta, spec=PodSpec(node_name=node), status=self.status())

    def status(self) -> PodStatus:
        """Some status; pods do not fail here (their backoff is a matter of its own)."""
        pick = self.random.choice
        condition = PodCondition(
            type="Ready",
            status=pick(["True", "True", "False"]),
            last_transition_time=Time(self.now - self.random.randrange(8) * SECOND_NS),
        )
        return PodStatus(phase=pick(["Running"] * 8 + ["Succeeded"]), conditions=(condition,))

    def see(self, event: Put | Gone) -> None:
        """One change."""
        change = self.cache.apply(event, self.now)
        if change is not None:
            self.controller.note(change, self.cache, self.now)

    def put(self, obj: KubeObject) -> None:
        """An object comes or changes."""
        self.see(Put(type(obj).__name__, obj))

    def change(self) -> None:
        """Something happens."""
        what = self.random.random()
        pods = list(self.cache.pods.values())
        if what < 0.35 or not pods:
            self.put(self.pod())
        elif what < 0.5:
            pod = self.random.choice(pods)
            self.put(replace(pod, status=self.status()))
        elif what < 0.6:
            pod = self.random.choice(pods)
            meta = replace(pod.metadata, deletion_timestamp=Time(self.now))
            self.put(replace(pod, metadata=meta))
        elif what < 0.75:
            self.see(Gone("Pod", self.random.choice(pods).key))
        elif what < 0.85:
            self.put(self.node(f"n{self.random.randrange(8)}"))
        elif what < 0.9:
            self.see(Gone("Node", ("", f"n{self.random.randrange(8)}")))
        elif what < 0.95:
            old = self.daemon_set
            spec = replace(old.spec, template=self.random.choice(TEMPLATES))
            self.put(replace(old, spec=spec))
        else:
            self.now += self.random.randrange(1, 6) * SECOND_NS

    @property
    def daemon_set(self) -> DaemonSet:
        """The set."""
        found = self.cache.get("DaemonSet", ("default", "agent"))
        assert isinstance(found, DaemonSet)
        return found

    def judge(self) -> Walk | None:
        """The full walk; None where upstream's would end in an error (surge, missing node)."""
        cluster = Cluster(
            self.daemon_set,
            self.cache.nodes.values(),
            self.cache.pods.values(),
            "new",
            self.now,
            self.classic,
        )
        try:
            return cluster.walk()
        except KeyError:
            return None

    def check(self) -> None:
        """The controller's view against the judge's."""
        walk = self.judge()
        tracked = self.controller.index.by_key["default", "agent"]
        node_index = tracked.refresh(self.now, "new")
        if walk is None:
            return
        tally = node_index.tally
        assert tally._asdict() == walk.status
        context = self.controller.context(tracked, self.cache, self.now)
        decided = dict(decisions(context, node_index, "new"))
        created = {node for node, decision in decided.items() if decision.create_because}
        deleted = {d.pod.name for decision in decided.values() for d in decision.delete}
        assert (created, deleted) == (walk.create, walk.delete)
        step = plan_update(tracked, node_index, "new", self.now)
        chosen = {node for node, _ in step.create} | {d.pod.name for d in step.delete}
        fixed = walk.update_create | walk.update_delete
        assert chosen >= fixed
        assert chosen - fixed <= walk.candidates
        assert len(chosen - fixed) == walk.free_choice
        for doomed in step.delete:
            assert doomed.because


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
@pytest.mark.parametrize("seed", range(40))
def test_the_census_is_what_a_full_walk_says(seed: int, profile: str) -> None:
    weather = Weather(seed, profile)
    for _ in range(60):
        weather.change()
        if weather.random.random() < 0.6:
            weather.check()
    weather.check()


@pytest.mark.parametrize("seed", range(30))
def test_ordered_names_are_those_of_a_sorted_set(seed: int) -> None:
    dice = random.Random(seed)
    names, plain = OrderedNames(), set[str]()
    for _ in range(200):
        name = f"n{dice.randrange(20):02}"
        if dice.random() < 0.5:
            names.add(name)
            plain.add(name)
        else:
            names.discard(name)
            plain.discard(name)
        if dice.random() < 0.3:
            without = {f"n{dice.randrange(20):02}" for _ in range(3)}
            count = dice.randrange(5)
            assert names.first(count, without) == sorted(plain - without)[:count]
