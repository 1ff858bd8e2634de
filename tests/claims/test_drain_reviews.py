"""Holds what `replay --drain` says of a drain that is over against the play that the dump is of.

A time in an Event or a condition has whole seconds, so each may be early by up to one.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.claims.drained import END_S, DrainedCluster, DrainedPod, drained_cluster, seconds_of
from tests.claims.test_what_if import run, span_of
from tests.what_if.stand import at

Document = dict[str, Any]
SECOND = 1.0


def reviewed(cluster: DrainedCluster, node: str, folder: Path) -> Document:
    """The review of the drain of that node."""
    where = ("-f", cluster.write(folder), "--now", at(END_S))
    code, out = run("replay", "--drain", node, "-o", "json", *where)
    assert code == 0, out
    review: Document = json.loads(out)
    return review


class Held(NamedTuple):
    """A review, held against what was so. `begin`: seconds after the first drain's begin."""

    review: Document
    cluster: DrainedCluster
    node: str

    @property
    def begin(self) -> float:
        return self.cluster.cordoned[self.node]

    @property
    def left(self) -> list[DrainedPod]:
        """The pods that left the node since its drain."""
        return [
            pod
            for pod in self.cluster.pods
            if pod.node == self.node and pod.left is not None and pod.left >= self.begin
        ]

    def made_since(self, pod: DrainedPod) -> list[DrainedPod]:
        """The pods of its owner that were made when it had left, or a moment before."""
        assert pod.left is not None
        since = pod.left - SECOND
        return [p for p in self.cluster.pods if p.owner == pod.owner and p.made >= since]

    def end_of(self, owner: tuple[str, str]) -> float:
        """When the last of the pods that are named in place of its own was Ready."""
        names = {pod.name for pod in self.left if pod.owner == owner}
        told = [pod["ready"] for pod in self.review["pods"] if pod["name"] in names]
        return max((seconds_of(time) for time in told if time is not None), default=self.begin)


def lies_of_review(review: Document, cluster: DrainedCluster, node: str) -> list[str]:
    held = Held(review, cluster, node)
    return [
        *_lies_of_span(held),
        *_lies_of_pods(held),
        *_lies_of_workloads(held),
        *_lies_of_budgets(held),
    ]


def _lies_of_span(held: Held) -> list[str]:
    lies, cordoned = [], held.review["cordoned"]
    if cordoned is None or not _same(cordoned["time"], held.begin):
        lies.append(f"cordoned {cordoned}, and {held.begin}")
    if held.left and not _same(held.review["begin"], held.begin):
        lies.append(f"begins at {held.review['begin']}")
    return lies


def _lies_of_pods(held: Held) -> list[str]:
    told, lies = held.review["pods"], []
    if sorted(pod["name"] for pod in told) != sorted(pod.name for pod in held.left):
        return [f"{[pod['name'] for pod in told]} left, and {[p.name for p in held.left]} did"]
    for pod in told:
        (true,) = [one for one in held.left if one.name == pod["name"]]
        made = held.made_since(true)
        named = [one for one in made if one.name == pod["replacement"]]
        if not _same(pod["left"], true.left):
            lies.append(f"{pod['name']} left at {pod['left']}, and {true.left}")
        if named:
            lies += _lies_of_replacement(pod, named[0])
        elif pod["replacement"] is not None:
            lies.append(f"{pod['name']} is replaced by {pod['replacement']}, which is not so")
        elif len(made) >= sum(other.owner == true.owner for other in held.left):
            lies.append(f"{pod['name']} is not replaced, and {true.owner[1]} made pods")
    named_ones = Counter(pod["replacement"] for pod in told if pod["replacement"] is not None)
    lies += [f"{name} is in place of {n} pods" for name, n in named_ones.items() if n > 1]
    return lies


def _lies_of_replacement(pod: Document, made: DrainedPod) -> list[str]:
    """Of one that has gone as well it is not known when it was Ready, and perhaps not where."""
    if made.left is not None and pod["ready"] is None and pod["node"] in (None, made.node):
        return []
    if pod["node"] == (made.node or None) and _same(pod["ready"], made.ready):
        return []
    return [f"{pod}, and {vars(made)}"]


def _lies_of_workloads(held: Held) -> list[str]:
    lies, owners = [], Counter(pod.owner for pod in held.left)
    told = {workload["owner"]: workload for workload in held.review["workloads"]}
    if told.keys() != {name for _, name in owners}:
        lies.append(f"workloads {sorted(told)}")
    for owner, moved in owners.items():
        workload = told[owner[1]]
        if workload["moved"] != moved:
            lies.append(f"{workload}, and {moved} moved")
        if workload["shortSeconds"] is not None:
            before = held.cluster.serving(owner, held.begin)
            lies += _lies_of_time(held, owner, workload["shortSeconds"], before)
            lies += _lies_of_time(held, owner, workload["zeroSeconds"], 1)
    return lies


def _lies_of_budgets(held: Held) -> list[str]:
    lies, owners = [], {pod.owner[1]: pod.owner for pod in held.left}
    for budget in held.review["budgets"]:
        if budget["name"] not in owners:
            lies.append(f"{budget}, and none of its pods left")
        else:
            owner, least = owners[budget["name"]], budget["desired"] + 1
            lies += _lies_of_time(held, owner, budget["zeroSeconds"], least)
    return lies


def _lies_of_time(held: Held, owner: tuple[str, str], told: float, least: int) -> list[str]:
    true = held.cluster.seconds_below(owner, least, held.begin, held.end_of(owner))
    changes = sum(pod.owner == owner and pod.left is not None for pod in held.cluster.pods)
    if abs(told - true) <= 2 * SECOND * changes:
        return []
    return [f"fewer than {least} of {owner[1]} for {told} s, and {true}"]


def _same(told: str | None, true_s: float | None) -> bool:
    """The time is that of so many seconds after the beginning, or None of what was never."""
    if told is None or true_s is None:
        return told is None and true_s is None
    return true_s - SECOND < seconds_of(told) <= true_s


def test_what_a_review_says_of_a_drain_is_so(tmp_path: Path, seeds: range) -> None:
    left = 0
    for seed in seeds:
        cluster = drained_cluster(seed, tmp_path)
        for node in cluster.names:
            review = reviewed(cluster, node, tmp_path)
            assert lies_of_review(review, cluster, node) == [], seed
            left += len(review["pods"])
    assert left


def later(review: Document) -> None:
    review["pods"][0]["left"] = at(100)


def another(review: Document) -> None:
    review["pods"][0]["replacement"] = "nobody"


def elsewhere(review: Document) -> None:
    review["pods"][0]["node"] = "c9"


def forgotten(review: Document) -> None:
    review["pods"].pop()


def longer(review: Document) -> None:
    review["workloads"][0]["shortSeconds"] = 1000.0


def at_zero(review: Document) -> None:
    review["workloads"][0]["zeroSeconds"] = 1000.0


def spent(review: Document) -> None:
    review["budgets"][0]["zeroSeconds"] = 1000.0


def cordoned_later(review: Document) -> None:
    review["cordoned"]["time"] = at(60)


LIES = (later, another, elsewhere, forgotten, longer, at_zero, spent, cordoned_later)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_in_a_review_is_caught(lie: Callable[[Document], None], tmp_path: Path) -> None:
    cluster = drained_cluster(20, tmp_path)
    (node,) = cluster.names
    review = copy.deepcopy(reviewed(cluster, node, tmp_path))
    assert lies_of_review(review, cluster, node) == []
    lie(review)
    assert lies_of_review(review, cluster, node)


# --- the line of a drain among all that happened --------------------------------------------------


def drain_lines(cluster: DrainedCluster, folder: Path) -> dict[str, str]:
    """What `replay` says of each drain, by node."""
    code, out = run("replay", "-f", cluster.write(folder), "--now", at(END_S), "-o", "json")
    assert code == 0, out
    items = json.loads(out)["items"]
    return {i["object"]["name"]: i["detail"] for i in items if i["action"] == "Drain"}


def lies_of_drain_lines(told: dict[str, str], cluster: DrainedCluster) -> list[str]:
    lies = [f"{node} was not drained" for node in told if node not in cluster.names]
    for node in cluster.names:
        held = Held({}, cluster, node)
        times = [pod.left for pod in held.left if pod.left is not None]
        words = re.fullmatch(r"(\d+) pods? left(?: in (\S+))?", told.get(node, "0 pods left"))
        if words is None or int(words[1]) != len(times):
            lies.append(f"{node}: {told.get(node)}, and {len(times)} left")
        elif abs(span_of(words[2] or "0s") - (max(times, default=0) - min(times, default=0))) > 1:
            lies.append(f"{node}: {told[node]}, and {times}")
    return lies


def test_the_line_of_a_drain_counts_all_its_pods(tmp_path: Path, seeds: range) -> None:
    """Those too that left in the second of the cordon, as most do."""
    for seed in seeds:
        cluster = drained_cluster(seed, tmp_path)
        assert lies_of_drain_lines(drain_lines(cluster, tmp_path), cluster) == [], seed


def test_a_lie_in_the_line_of_a_drain_is_caught(tmp_path: Path) -> None:
    cluster = drained_cluster(17, tmp_path)
    told, (node,) = drain_lines(cluster, tmp_path), cluster.names
    assert told[node].startswith("6 pods left in ")
    for lie in ({}, {node: "5 pods left in 71s"}, {node: "6 pods left in 5s"}, {**told, "c9": "1"}):
        assert lies_of_drain_lines(lie, cluster)
