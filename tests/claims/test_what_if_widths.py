"""Holds the instants that `what-if` tells of nodes over coins: whatever the phase of the monitor
pass and of pod-gc and the order of a zone's queue, each lies in the range that was told of it, and
one without a range is where it was told.

A coin is another play of the same question. Its next monitor pass begins at a drawn instant; its
nodes have each other's names, since the names decide who is first in a queue; and a Node that is
deleted is so up to a period of pod-gc later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import NodeFuture
from kubectl_nodelife.outlook.what_if.question import Question, play
from tests.what_if.stand import ALL_KINDS, NOW_NS, Document, cluster_of, node, workload

COINS = 4
SLACK_S = 0.25
"""Rounds of the eviction loop, requests, and the drift of passes."""
FIELDS = ("unknownSeconds", "taintedSeconds", "firstDeletionSeconds", "lastDeletionSeconds")
_UNTIL_S = 900
_GC_S = 20.0


class Case(NamedTuple):
    """A cluster, and acts with `{}` where a Node is deleted so many seconds later."""

    nodes: tuple[str, ...]
    pods: tuple[tuple[str, tuple[str, ...], int], ...]
    words: str

    def renamed(self, names: dict[str, str]) -> Case:
        """The same, with other names of nodes."""
        pods = tuple((w, tuple(names[n] for n in on), tolerates) for w, on, tolerates in self.pods)
        words = " ".join(names.get(word, word) for word in self.words.split())
        return Case(tuple(names[n] for n in self.nodes), pods, words)


def case_of(seed: int) -> Case:
    """Some nodes of one zone are lost, for good or for a while, or one of them is deleted."""
    rng = random.Random(f"widths {seed}")
    nodes = tuple(f"{zone}{number}" for zone in "ab" for number in range(1, 7))
    pods = tuple(
        (f"w{n}", tuple(rng.choices(nodes, k=rng.randint(1, 4))), rng.choice((0, 30, 120)))
        for n in range(rng.randint(1, 4))
    )
    lost = rng.sample(nodes[:6], rng.choice((1, 1, 2, 3)))
    acts = [f"lose node {' '.join(lost)} --for 10m", f"lose node {' '.join(lost)}"]
    acts += [f"delete node {lost[0]} --at {{}}s"] * 2
    acts += [f"lose node {lost[0]} --for 5m --and delete node {nodes[6]} --at {{}}s"]
    return Case(nodes, pods, rng.choice(acts))


def futures(
    case: Case, later_s: float = 0.0, next_pass_s: float | None = None
) -> dict[str, NodeFuture]:
    """What is told of the nodes, in a play with this phase of the monitor pass."""
    objects: list[Document] = []
    for name, on, tolerates in case.pods:
        objects += workload(name, list(on), "ReplicaSet", tolerates=tolerates)
    cluster = cluster_of(objects, case.nodes)
    settings = make_settings("newest", {"kube-api-qps": "-1"})
    words = case.words.replace("{}", f"{later_s:g}").split()
    acts = read_acts(words, cluster, beta_zone_labels_only=False)
    next_ns = None if next_pass_s is None else NOW_NS + round(next_pass_s * SECOND_NS)
    asked = Question(cluster, settings, NOW_NS, ALL_KINDS, acts, _UNTIL_S * SECOND_NS)
    plays = play(asked._replace(next_pass_ns=next_ns))
    answer = make_answer(plays, acts, settings, source={}, moment={}, warnings=())
    return {node.name: node for node in answer.nodes}


def instants(node: NodeFuture) -> dict[str, float | None]:
    """By the names of the document's fields."""
    return {
        "unknownSeconds": node.unknown_seconds,
        "taintedSeconds": node.tainted_seconds,
        "firstDeletionSeconds": node.first_deletion_seconds,
        "lastDeletionSeconds": node.last_deletion_seconds,
    }


def misses(told: NodeFuture, real: NodeFuture, later_s: float) -> list[str]:
    """The instants of `real`, which happens so much later, that were told otherwise."""
    found = []
    fewest, most = told.evicted_range.fewest, told.evicted_range.most
    if not fewest <= real.evicted <= most:
        found.append(f"{told.name} evicted: {fewest} to {most}, and {real.evicted}")
    for field, at in instants(real).items():
        ranged, exact = told.ranges.get(field), instants(told)[field]
        low = ranged.earliest_seconds if ranged is not None else exact
        high = ranged.latest_seconds if ranged is not None else exact
        if ranged is not None and high is None:
            if at is not None and at - later_s < ranged.earliest_seconds - SLACK_S:
                found.append(f"{told.name} {field}: from {low}, and {at - later_s}")
        elif at is None or low is None or high is None:
            if (at is None) != (exact is None):
                found.append(f"{told.name} {field}: {exact}, and {at}")
        elif not low - SLACK_S <= at - later_s <= high + SLACK_S:
            found.append(f"{told.name} {field}: {low} to {high}, and {at - later_s}")
    return found


def coin_misses(seed: int) -> list[str]:
    """What the coins of a seed show otherwise than it was told."""
    case = case_of(seed)
    told = futures(case)
    found = []
    for coin in range(COINS):
        rng = random.Random(f"coin {seed}/{coin}")
        zone_a, zone_b = list(case.nodes[:6]), list(case.nodes[6:])
        shuffled = [*rng.sample(zone_a, 6), *rng.sample(zone_b, 6)]
        names = dict(zip(case.nodes, shuffled, strict=True))
        later_s = round(rng.uniform(0, _GC_S), 3) if "{}" in case.words else 0.0
        other = futures(case.renamed(names), later_s, rng.uniform(0.001, 5.0))
        for name, future in told.items():
            if names[name] in other:
                is_deleted = f"delete node {name} " in case.words
                found += misses(future, other[names[name]], later_s * is_deleted)
    return found


def test_each_instant_of_a_node_lies_in_the_range_that_was_told(seeds: range) -> None:
    for seed in seeds:
        assert coin_misses(seed) == [], (seed, case_of(seed).words)


def test_an_instant_that_is_told_too_narrowly_is_caught() -> None:
    """Without their ranges, or with narrower ones, the coins of some seeds lie outside."""
    told = futures(Case(("a1", "a2", "b1"), (("web", ("a1",), 30),), "lose node a1"))["a1"]
    other = futures(Case(("a1", "a2", "b1"), (("web", ("a1",), 30),), "lose node a1"), 0.0, 2.0)
    bare = NodeFuture(**{**{f: getattr(told, f) for f in told.__struct_fields__}, "ranges": {}})
    assert not misses(told, other["a1"], 0.0)
    assert len(misses(bare, other["a1"], 0.0)) == len(FIELDS)


def test_a_tie_of_the_scheduler_is_told_as_a_range() -> None:
    """A drained pod lands on a1 or a2, which are alike; a1 is lost later, and it goes once more."""
    evicted = set()
    for names in (("a1", "a2", "b1"), ("a2", "a1", "b1")):
        objects = workload("web", ["b1"], "ReplicaSet", tolerates=4)
        cluster = cluster_of(objects, names)
        settings = make_settings("newest", {"kube-api-qps": "-1"})
        words = ["drain", "node", "b1", "--force", "--and", "lose", "node", "a1", "--at", "60s"]
        acts = read_acts(words, cluster, beta_zone_labels_only=False)
        asked = Question(cluster, settings, NOW_NS, ALL_KINDS, acts, _UNTIL_S * SECOND_NS)
        answer = make_answer(play(asked), acts, settings, source={}, moment={}, warnings=())
        (web,) = answer.workloads
        assert (web.evicted_range.fewest, web.evicted_range.most) == (1, 2)
        evicted.add(web.evicted)
    assert evicted == {1, 2}


def staggered(
    ages: dict[str, float], lost: Sequence[str], pods: int, **more: Any
) -> dict[str, NodeFuture]:
    """What is told of nodes whose Leases have these ages, at twenty requests a second."""
    objects: list[Document] = []
    for number in range(pods):
        objects += workload(f"w{number}", [*ages], tolerates=4)
    objects += [each for name, age in ages.items() for each in node(name, lease_age=age)]
    flags = {"kube-api-qps": "20", "kube-api-burst": "30", "node-eviction-rate": "0.5"}
    settings = make_settings("newest", flags)
    cluster = cluster_of(objects, ())
    acts = read_acts(["lose", "node", *lost], cluster, beta_zone_labels_only=False)
    asked = Question(cluster, settings, NOW_NS, ALL_KINDS, acts, _UNTIL_S * SECOND_NS)
    answer = make_answer(
        play(asked._replace(**more)), acts, settings, source={}, moment={}, warnings=()
    )
    return {node.name: node for node in answer.nodes}


def test_nodes_that_a_slow_pass_misses_are_in_their_ranges(seeds: range) -> None:
    """Which of the nodes a pass finds that takes seconds is chance, and the others wait for it.
    When its token comes depends besides on the zone's state at the end of each pass.
    """
    for seed in seeds:
        rng = random.Random(f"staggered {seed}")
        nodes = [f"a{n}" for n in range(1, 4)] + [f"b{n}" for n in range(1, 6)]
        ages = {name: round(4 + rng.uniform(0, rng.choice((0.1, 5.9))), 3) for name in nodes}
        lost, pods = rng.choice((nodes, nodes[3:], rng.sample(nodes, 4))), rng.choice((5, 15))
        told = staggered(ages, lost, pods)
        for _ in range(2):
            order = [*rng.sample(nodes[:3], 3), *rng.sample(nodes[3:], 5)]
            names = dict(zip(nodes, order, strict=True))
            next_ns = NOW_NS + round(rng.uniform(0.001, 5) * SECOND_NS)
            renamed = {names[name]: age for name, age in ages.items()}
            real = staggered(renamed, [names[n] for n in lost], pods, next_pass_ns=next_ns)
            wrong = [miss for name in lost for miss in misses(told[name], real[names[name]], 0.0)]
            assert not [miss for miss in wrong if "unknownSeconds" in miss], (seed, lost)
