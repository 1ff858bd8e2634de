"""Holds the first lines of `explain pod` and `explain node` against plays of the same cluster.

Asked is about one pod, and about the node that it is on. Where the answer is about a loss, the node
falls silent in the play, now. What a sentence claims is taken out of the sentence itself. Whether
the late kubelets of other nodes report again nobody knows: a sentence must be so in a play in which
they do, or in one in which they do not.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from tests.claims.clusters import RandomCluster, random_cluster
from tests.claims.test_first_lines import Capture, asked, first_taint, play_of
from tests.claims.test_what_if import span_of

HORIZON_S = 780.0
CONTROLLERS = "node-lifecycle, taint-eviction"
LOST = ("ok", "late", "removed", "never")
"""States of nodes of which it is said what would be if they fell silent."""


class Explained(NamedTuple):
    """What is said of a pod and of its node, and the records of each play."""

    pod: str
    node: str
    of_pod: str
    of_node: str
    on_node: frozenset[str]
    plays: list[list[dict[str, Any]]]

    def lies(self) -> list[str]:
        """What is said and is so in none of the plays."""
        return min((lies_in(self, records) for records in self.plays), key=len)


def explained(folder: Path, capsys: Capture, cluster: RandomCluster, pod: str) -> Explained | None:
    """What is said of the pod and its node; None for a pod of a node that is not there."""
    pods = {o["metadata"]["name"]: o["spec"] for o in cluster.items if o["kind"] == "Pod"}
    node = pods[pod]["nodeName"]
    if node not in cluster.states:
        return None
    where = ("-f", cluster.write(folder), "--profile", cluster.profile)
    silent = (node,) if cluster.states[node] in LOST else ()
    late = tuple(n for n, state in cluster.states.items() if state == "late" and n != node)
    plays = [()] if not late else [(), late]
    return Explained(
        pod,
        node,
        asked(capsys, "explain", "pod", pod, *where).split("\n\n")[0],
        asked(capsys, "explain", "node", node, *where).split("\n\n")[0],
        frozenset(name for name, spec in pods.items() if spec["nodeName"] == node),
        [play_of(folder, capsys, cluster, silent, these, CONTROLLERS) for these in plays],
    )


def _latest(said: str) -> float:
    """The latest instant that is told so: from ten minutes on kubectl's duration has no seconds."""
    return span_of(said) + (60 if span_of(said) >= 600 else 1)


def _is_at(said: str, at: float) -> bool:
    return span_of(said) - 1 <= at <= _latest(said)


def _misses(what: str, said: re.Match[str] | None, at: float | None) -> list[str]:
    """Where a play has it at another time than `in LOW to HIGH`, `in LOW at the earliest`."""
    if said is None:
        return [f"{what}: never, and at {at}"] if at is not None else []
    low = span_of(said[1])
    high = HORIZON_S if said[3] else _latest(said[2] or said[1])
    if at is None:
        return [f"{what}: {said[0]}, and never"] if low < HORIZON_S - 5 and not said[3] else []
    return [] if low - 1 <= at <= high else [f"{what}: {said[0]}, and at {at}"]


_SPAN = r"([\d.hms]+)(?: to ([\d.hms]+))?( at the earliest)?"


def lies_in(told: Explained, records: list[dict[str, Any]]) -> list[str]:
    """What the first lines claim, and this play does not bear out."""
    deleted: dict[str, float] = {}
    for record in records:
        if record["action"] == "DeletePod" and record["object"]["name"] in told.on_node:
            deleted.setdefault(record["object"]["name"], record["at"])
    lies = lies_of_node(told, deleted, first_taint(records, told.node))
    if "; the terms are added up below" in told.of_pod:
        says_when = re.search(rf"\? In {_SPAN}[;,]", told.of_pod)
        lies += _misses(told.pod, says_when, deleted.get(told.pod))
    return lies


def lies_of_node(told: Explained, deleted: dict[str, float], tainted: float | None) -> list[str]:
    """Of what is said of the node: when it is tainted, and which pod goes first."""
    lies = []
    says_when = re.search(rf"tainted in {_SPAN}", told.of_node)
    if says_when or re.search(r"never be tainted|is not tainted while", told.of_node):
        lies += _misses(told.node, says_when, tainted)
    first = min(deleted, key=lambda name: (deleted[name], name), default=None)
    later = re.search(
        r"its first pod \(default/(\S+)\) deleted (?:([\d.hms]+) later|at once)", told.of_node
    )
    waits_s = span_of(later[2]) if later and later[2] else 0.0
    if later and tainted is not None and tainted + waits_s < HORIZON_S - 5:
        after_s = deleted.get(later[1], -1.0) - tainted
        if first is None or deleted[first] != deleted.get(later[1]):
            lies.append(f"{later[0]}, and first is {first}")
        elif abs(after_s - waits_s) > 1:
            lies.append(f"{later[0]}, and after {after_s}")
    waits = re.search(r"default/(\S+) is deleted in ([\d.hms]+)", told.of_node)
    if waits and not _is_at(waits[2], deleted.get(waits[1], -9.0)):
        lies.append(f"{waits[0]}, and at {deleted.get(waits[1])}")
    many = re.search(r"; (\d+) in all, the last one in ([\d.hms]+)", told.of_node)
    if many and (int(many[1]), True) != (
        len(deleted),
        _is_at(many[2], max(deleted.values(), default=0.0)),
    ):
        lies.append(f"{many[0]}, and {deleted}")
    return lies


def told_of(folder: Path, capsys: Capture, seed: int) -> Explained | None:
    """What is said of one of the pods of the cluster of that seed."""
    cluster = random_cluster(seed)
    pods = [o["metadata"]["name"] for o in cluster.items if o["kind"] == "Pod"]
    return explained(folder, capsys, cluster, pods[seed % len(pods)])


def test_what_is_said_of_a_pod_and_its_node_comes(
    tmp_path: Path, capsys: Capture, seeds: range
) -> None:
    for seed in range(4 * seeds.start, 4 * seeds.stop):
        told = told_of(tmp_path, capsys, seed)
        if told is not None:
            assert told.lies() == [], (seed, told.of_pod, told.of_node)


LIES = (
    (r"\? In ([\d.hms]+)", "? In 9h"),
    (r"\? In [^;]+;", "? Never, as things are;"),
    (r"\? Never, as things are;", "? In 20s to 25s;"),
    (r"tainted in [\d.hms]+( to [\d.hms]+)?", "tainted in 9m to 10m"),
    (r"never be tainted", "be tainted in 9m to 10m"),
    (r"deleted 5m later", "deleted 30s later"),
    (r"is deleted in [\d.hms]+", "is deleted in 7m"),
)


def test_lies_about_a_pod_and_its_node_are_caught(tmp_path: Path, capsys: Capture) -> None:
    caught = dict.fromkeys(LIES, 0)
    for seed in range(60):
        told = told_of(tmp_path, capsys, seed)
        for truth, lie in LIES if told is not None else ():
            assert told is not None
            false = told._replace(
                of_pod=re.sub(truth, lie, told.of_pod, count=1),
                of_node=re.sub(truth, lie, told.of_node, count=1),
            )
            if false != told:
                assert false.lies(), (seed, truth, false[2:4])
                caught[truth, lie] += 1
    assert all(caught.values()), caught
