"""Holds `status`'s first line on the worst node against what then happens to it in plays.

How many nodes are in trouble, and that a node is unreachable or not ready, is counted in the
objects. What comes next to the worst one, and when, must be so in a play in which the late kubelets
of other nodes report again or in one in which they do not: nobody knows that; what becomes of a
zone "if none reports" must be so in the latter. What is overdue is judged in test_first_lines.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from tests.claims.clusters import RandomCluster, ago, random_cluster
from tests.claims.test_first_lines import Capture, asked, late_nodes, nodes_of, play_of, ready_of
from tests.claims.test_what_if import span_of
from tests.objects import lease

Records = list[dict[str, Any]]
CONTROLLERS = "node-lifecycle, taint-eviction"
END_S = 780.0
MOMENT = lease("kube-controller-manager", ago(0), namespace="kube-system")
"""What makes every reader of the dump take the same moment for that of the dump."""


class Worst(NamedTuple):
    """The first line, and the records of each play; in the first of them no late kubelet reports
    again."""

    cluster: RandomCluster
    said: str
    plays: list[Records]

    def lies(self) -> list[str]:
        """What it claims, and the objects or the plays do not bear out."""
        found = re.search(r"; the worst is (\w+): ([\w-]+)(?:, (.*?))?[.;](?: |$)", self.said)
        lies = [*lies_of_counts(self.cluster, self.said, found), *self._lies_of_zones()]
        if found is None:
            return lies
        coming = [lies_of_next(self.cluster, found[1], found[3] or "", p) for p in self.plays]
        return [*lies, *min(coming, key=len)]

    def _lies_of_zones(self) -> list[str]:
        """Zones that do not become what is said of them, or become it at another time."""
        lies = []
        silent = re.findall(r" Zone (\S+): \d+ of \d+ silent: (.*?) if none reports\.", self.said)
        for zone, coming in silent:
            came = [
                (record["at"], record["detail"]["to"])
                for record in self.plays[0]
                if record["action"] == "SetZoneState"
                and record["detail"]["zone"].replace(":\0:", "/").strip("/")
                == zone.replace("<none>", "")
            ]
            said = re.findall(r"(\w+) \([\d.]+/s\) (in \S+|now)", coming)
            if [state for state, _ in said] != [state for _, state in came]:
                lies.append(f"{zone}: {said}, and {came}")
                continue
            for (state, when), (at, _) in zip(said, came, strict=True):
                lies += lies_of_time(f"{zone} {state}", when, at)
        return lies


def lies_of_counts(cluster: RandomCluster, said: str, worst: re.Match[str] | None) -> list[str]:
    """What is said of now."""
    nodes = nodes_of(cluster)
    late = late_nodes(cluster)
    trouble = {name for name, node in nodes.items() if ready_of(node) != "True"} | late
    counted = re.match(r"(None|\d+) of (\d+) nodes? ", said)
    assert counted is not None, said
    if (counted[1], counted[2]) != (str(len(trouble) or None), str(len(nodes))):
        return [f"{counted[0]}, and {sorted(trouble)} of {len(nodes)}"]
    if worst is None:
        return [f"{said}, and {trouble}"] if trouble else []
    name, state = worst[1], worst[2]
    word = {"Unknown": "unreachable", "False": "not-ready", "": "never-posted"}
    right = {word.get(ready_of(nodes[name]), "silent")}
    if any(ready_of(node) == "Unknown" for node in nodes.values()):
        right &= {"unreachable"}
    return [] if {state} == right else [f"{name}: {state}, and {right}"]


def lies_of_next(cluster: RandomCluster, name: str, coming: str, records: Records) -> list[str]:
    """What is said to come next to the node, and does not come so in the play. That a kubelet which
    renews, and whose node shows no Ready, posts it is no controller's write, and is not foretold.
    """
    pods = {
        o["metadata"]["name"]
        for o in cluster.items
        if o["kind"] == "Pod" and o["spec"]["nodeName"] == name
    }
    comes = [what for record in records if (what := happens(record, name, pods))]
    if " overdue since " in coming:
        return []
    if not coming:
        first_post = not ready_of(nodes_of(cluster)[name]) and comes[:1]
        posts = bool(first_post) and comes[0][1] == "Ready=True"
        return [f"{name}: nothing, and {comes[:2]}"] if comes and not posts else []
    if re.search(r": its zone stops \(\w+\) before its turn is sure$", coming):
        return []
    what = re.match(r"(.*?)(?:: its zone is stopped| (in \S+|now))$", coming)
    assert what is not None, coming
    at = next((at for at, done in comes if done == what[1]), None)
    if what[2] is None:
        return [f"{name}: {coming}, and at {at}"] if at is not None else []
    lies = lies_of_time(f"{name} {what[1]}", what[2], at)
    before = [each for each in comes if at is not None and each[0] < at]
    return [*lies, *[f"{name}: {coming}, and before that {before}"] * bool(before)]


def happens(record: dict[str, Any], name: str, pods: set[str]) -> tuple[float, str] | None:
    """(when, what) of what the play does to the node or to its pods; None for something else."""
    about, detail, at = record["object"]["name"], record["detail"], record["at"]
    match record["action"]:
        case "SetNodeCondition" if about == name and detail["type"] == "Ready":
            return at, f"Ready={detail['status']}"
        case "AddTaint" | "RemoveTaint" as act if about == name:
            key = detail["key"].removeprefix("node.kubernetes.io/")
            words = "taint" if act == "AddTaint" else "removal of taint"
            executes = detail["effect"] == "NoExecute"
            return (at, f"{words} {key}:{detail['effect']}") if executes else None
        case "DeletePod" if about in pods:
            return at, f"deletion of {record['object']['namespace']}/{about}"
    return None


def lies_of_time(what: str, when: str, at: float | None) -> list[str]:
    """Where it does not come then: `in 5s-10s`, `in 5s`, each rounded up, or `now`."""
    low, _, high = when.removeprefix("in ").partition("-")
    low_s, high_s = span_of(low), span_of(high or low)
    if at is None:
        return [f"{what} {when}, and never"] if low_s < END_S - 5 else []
    return [] if low_s - 1.1 <= at <= high_s + 1.1 else [f"{what} {when}, and at {at}"]


def worst_of(folder: Path, capsys: Capture, seed: int) -> Worst:
    """What is said of the cluster of that seed, and how it goes on."""
    cluster = random_cluster(seed)
    cluster.items.append(MOMENT)
    words = ("-f", cluster.write(folder), "--profile", cluster.profile)
    said = asked(capsys, "status", *words).splitlines()[0]
    late = tuple(name for name, state in cluster.states.items() if state == "late")
    worst = re.search(r"worst is (\w+)", said)
    others = tuple(name for name in late if worst is None or name != worst[1])
    plays = [()] if not others else [(), others]
    return Worst(
        cluster,
        said,
        [play_of(folder, capsys, cluster, (), these, CONTROLLERS) for these in plays],
    )


def test_what_is_said_of_the_worst_node_comes(
    tmp_path: Path, capsys: Capture, seeds: range
) -> None:
    for seed in range(4 * seeds.start, 4 * seeds.stop):
        worst = worst_of(tmp_path, capsys, seed)
        assert worst.lies() == [], (seed, worst.said)


LIES = (
    (r"^\d+ of", "None of"),
    (r"of (\d+) nodes", r"of 1\1 nodes"),
    (r"worst is (\w+): \w+", r"worst is \1: silent"),
    (r"worst is (\w+): silent", r"worst is \1: unreachable"),
    (r"(taint|deletion|Ready=)(\S+) (?:of \S+ )?in [^;.]+", r"\1\2 in 9m"),
    (r"(Ready=Unknown) [^;.]+", r"\1: its zone is stopped"),
    (r"deletion of \S+ in [^;.]+", "deletion of default/p9 in 9m"),
    (r"taint unreachable:NoExecute in", "taint not-ready:NoExecute in"),
    (r": its zone is stopped", " in 5s-15s"),
    (r"(worst is \w+: [\w-]+), (?:taint|deletion) [^;.]+ in [^;.]+", r"\1"),
    (r"silent: \w+Disruption", "silent: Normal"),
    (r"Disruption \(0/s\) in [^ ,]+", "Disruption (0/s) in 9m"),
)


def test_lies_about_the_worst_node_are_caught(tmp_path: Path, capsys: Capture) -> None:
    planted = dict.fromkeys(LIES, 0)
    for seed in range(60):
        worst = worst_of(tmp_path, capsys, seed)
        for truth, lie in LIES:
            false = re.sub(truth, lie, worst.said, count=1)
            if false != worst.said:
                assert worst._replace(said=false).lies(), (seed, worst.said, false)
                planted[truth, lie] += 1
    assert all(planted.values()), planted
