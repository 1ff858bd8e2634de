"""Holds what `daemonset` says of random DaemonSets against a naive count of their objects, and what
it says comes next against a play of the hour that follows.

The reader knows nothing of our code: it counts JSON documents as `updateDaemonSetStatus` and
`nodeShouldRunDaemonPod` describe it, and reads the records of a play. Planted lies must be caught.
"""

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import objects
from tests.claims.test_drain_plan import played
from tests.claims.test_what_if import run
from tests.daemonset.naive import DEFAULTS as TOLERATED
from tests.objects import UNREACHABLE, Document, taint
from tests.what_if.stand import at

MOMENT = ("--now", "2026-01-01T12:00:00Z", "--profile", "v1.37")
NOTHING = [{"at": "3599s", "uncordon": {"nodes": ["n0"]}}]
"""An hour in which nobody does anything that counts."""
STATES = ("ok", "ok", "ok", "ok", "cordoned", "custom", "evicting", "lost")
PODS = ("new", "new", "new", "new", "old", "old", "unready", "none", "ending", "failed")
DIFFERED = (5, 20, 63, 77, 83, 94, 98, 111, 252, 264, 291, 1226)
"""Seeds of which something else was said once: that a pod waits for its turn or is deleted by the
update, while pods that are made or deleted before decide that (5, 20, 63, 83, 98, 111); that an
update never ends for a pod on a lost node, which counts no more (77, 94, 252, 264, 291), or for one
that is deleted because an older one is on its node (1226)."""
COUNTS = {
    "desired": "desiredNumberScheduled",
    "current": "currentNumberScheduled",
    "ready": "numberReady",
    "updated": "updatedNumberScheduled",
    "available": "numberAvailable",
    "misscheduled": "numberMisscheduled",
}


class SetsCluster(NamedTuple):
    """A cluster with some DaemonSets. `states`: what each node is."""

    items: list[Document]
    states: dict[str, str]

    @property
    def sets(self) -> list[Document]:
        return [item for item in self.items if item["kind"] == "DaemonSet"]

    def pods_of(self, daemon_set: Document) -> dict[str, list[Document]]:
        """Its pods by node, the oldest first."""
        by_node: defaultdict[str, list[Document]] = defaultdict(list)
        for item in self.items:
            owners = [o["uid"] for o in item["metadata"].get("ownerReferences", ())]
            if item["kind"] == "Pod" and daemon_set["metadata"]["uid"] in owners:
                by_node[item["spec"]["nodeName"]].append(item)
        return by_node

    def node(self, name: str) -> Document | None:
        return next((i for i in self.items if at_node(i) == name), None)


def at_node(item: Document) -> str:
    return str(item["metadata"]["name"]) if item["kind"] == "Node" else ""


def sets_cluster(seed: int) -> SetsCluster:
    """The cluster of that seed."""
    rng = random.Random(f"daemon sets {seed}")
    states = {f"n{i}": rng.choice(STATES) for i in range(rng.randint(2, 6))}
    items: list[Document] = []
    for name, state in states.items():
        items += _node(rng, name, state)
    # One of no set: without any pod in the dump it would not be known that there is none.
    items.append(objects.pod("other", "n0"))
    for number in range(rng.randint(1, 3)):
        items += _set(rng, f"d{number}", items, [*states, *["gone"] * (rng.random() < 0.1)])
    return SetsCluster(items, states)


def _node(rng: random.Random, name: str, state: str) -> list[Document]:
    lost = [taint(UNREACHABLE, effect, added=at(-3000)) for effect in ("NoSchedule", "NoExecute")]
    taints = {
        "cordoned": [taint("node.kubernetes.io/unschedulable", "NoSchedule")],
        "custom": [taint("dedicated", "NoSchedule", "x")],
        "evicting": [taint("dedicated", "NoExecute", "x")],
        "lost": lost,
    }.get(state, [])
    is_lost = state == "lost"
    seen = -3100 if is_lost else -rng.randint(1, 200)
    labels = {"kubernetes.io/hostname": name, "disk": rng.choice(["ssd", "ssd", "hdd"])}
    made = objects.node(
        name,
        "Unknown" if is_lost else "True",
        "x",
        heartbeat=at(seen),
        since=at(-3000 if is_lost else -9000),
        labels=labels,
        taints=taints,
        allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"},
        **({"unschedulable": True} if state == "cordoned" else {}),
    )
    renewed = at(-3100 if is_lost else -rng.randint(0, 9))
    return [made, objects.lease(name, renewed, uid="")]


def _set(rng: random.Random, name: str, items: list[Document], nodes: list[str]) -> list[Document]:
    spec: Document = {"containers": [{"name": "c", "image": "new"}]}
    if rng.random() < 0.3:
        spec["nodeSelector"] = {"disk": "ssd"}
    if rng.random() < 0.5:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    labels = {"app": name}
    strategy = rng.choice(
        [
            {"type": "OnDelete"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        ]
    )
    template = {"metadata": {"labels": labels}, "spec": spec}
    daemon_set = objects.workload(
        "DaemonSet",
        name,
        pods=spec,
        metadata={"generation": 2, "creationTimestamp": at(-90_000)},
        updateStrategy=strategy,
        revisionHistoryLimit=10,
    )
    old = {**template, "spec": {**spec, "containers": [{"name": "c", "image": "old"}]}}
    made = [daemon_set, _revision(daemon_set, 1, "old", old)]
    made.append(_revision(daemon_set, 2, "new", template))
    by_name = {i["metadata"]["name"]: i for i in items if i["kind"] == "Node"}
    pods: list[Document] = []
    for node in nodes:
        there = by_name.get(node)
        wanted = there is not None and should_run(daemon_set, there)
        for _ in range(1 + (rng.random() < 0.05)):
            what = rng.choice(PODS)
            if what != "none" and (wanted or rng.random() < 0.15):
                pods.append(_pod(rng, daemon_set, node, what, len(pods), there))
    cluster = SetsCluster([*items, *made, *pods], {})
    counts = counted(cluster, daemon_set)
    status = {COUNTS[word]: number for word, number in counts.items()}
    status["observedGeneration"] = 2
    status["numberUnavailable"] = counts["desired"] - counts["available"]
    if rng.random() < 0.15:
        status[rng.choice(["numberReady", "currentNumberScheduled"])] += 1
    daemon_set["status"] = status
    return [*made, *pods]


def _revision(daemon_set: Document, number: int, hash_: str, template: Document) -> Document:
    name = daemon_set["metadata"]["name"]
    return objects.of_kind(
        "ControllerRevision",
        f"{name}-{hash_}",
        "default",
        labels={"app": name, "controller-revision-hash": hash_},
        owners=[objects.owner("DaemonSet", name, blockOwnerDeletion=True)],
        revision=number,
        data={"spec": {"template": {**template, "$patch": "replace"}}},
    )


def _pod(
    rng: random.Random,
    daemon_set: Document,
    node: str,
    what: str,
    number: int,
    there: Document | None,
) -> Document:
    of = daemon_set["metadata"]["name"]
    lost = there is None or there["status"]["conditions"][0]["status"] != "True"
    ready = what in ("new", "old", "ending") and not lost
    age = rng.randint(4000, 80_000)
    hash_ = "old" if what == "old" else "new"
    own = daemon_set["spec"]["template"]["spec"]
    added = [{"key": k, "operator": "Exists", "effect": effect} for k, effect in sorted(TOLERATED)]
    spec = {
        **own,
        "containers": [{"name": "c", "image": hash_}],
        "tolerations": [*own.get("tolerations", []), *added],
    }
    return objects.pod(
        f"{of}-{number}",
        node,
        phase="Failed" if what == "failed" else "Running",
        ready=ready,
        since=at(4 - age) if ready else at(-3000 if lost else -rng.choice([20, 300, 3000])),
        owner=objects.owner("DaemonSet", of, blockOwnerDeletion=True),
        deleted=at(20) if what == "ending" else None,
        labels={"app": of, "controller-revision-hash": hash_},
        created=at(-age),
        metadata={"deletionGracePeriodSeconds": 30} if what == "ending" else None,
        **spec,
    )


# --- a naive reader -----------------------------------------------------------------------------


def should_run(daemon_set: Document, node: Document, *effects: str) -> bool:
    """True if its pod may be on the node: `effects` are those of the taints that it must tolerate.

    nodeShouldRunDaemonPod: NoSchedule and NoExecute for a new pod, NoExecute for one that runs.
    """
    spec = daemon_set["spec"]["template"]["spec"]
    labels = node["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    tolerates = {toleration["key"] for toleration in spec.get("tolerations", [])}
    return all(
        taint["key"] in tolerates or (taint["key"], taint["effect"]) in TOLERATED
        for taint in node["spec"].get("taints", [])
        if taint["effect"] in (effects or ("NoSchedule", "NoExecute"))
    )


def counted(cluster: SetsCluster, daemon_set: Document) -> dict[str, int]:
    """The counts of its status, as updateDaemonSetStatus makes them."""
    counts = dict.fromkeys(COUNTS, 0)
    pods = cluster.pods_of(daemon_set)
    for node in (i for i in cluster.items if i["kind"] == "Node"):
        here = sorted(
            pods.get(node["metadata"]["name"], []),
            key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]),
        )
        if not should_run(daemon_set, node):
            counts["misscheduled"] += bool(here)
            continue
        counts["desired"] += 1
        if not here:
            continue
        counts["current"] += 1
        oldest = here[0]
        if is_ready(oldest):
            counts["ready"] += 1
            counts["available"] += 1
        if oldest["metadata"]["labels"]["controller-revision-hash"] == "new":
            counts["updated"] += 1
    return counts


def is_ready(pod: Document) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


def is_as_it_should_be(cluster: SetsCluster, daemon_set: Document) -> bool:
    """True if each node that should run the pod has one new pod at work, no other has any, and the
    status says so."""
    counts, pods = counted(cluster, daemon_set), cluster.pods_of(daemon_set)
    if any(daemon_set["status"][COUNTS[word]] != number for word, number in counts.items()):
        return False
    every = [pod for here in pods.values() for pod in here]
    return (
        counts["desired"] == counts["current"] == counts["ready"] == counts["updated"]
        and counts["misscheduled"] == 0
        and len(every) == counts["current"]
        and not any("deletionTimestamp" in pod["metadata"] for pod in every)
    )


# --- what is said of the objects ----------------------------------------------------------------


def asked(folder: Path, cluster: SetsCluster, *words: str) -> str:
    dump = objects.write_list(folder / "sets.json", cluster.items)
    code, text = run("daemonset", *words, "-f", dump, *MOMENT)
    assert code == 0, text
    return text


def lies_of_list(cluster: SetsCluster, said: str) -> list[str]:
    """What the first line claims of all sets."""
    odd = [s for s in cluster.sets if not is_as_it_should_be(cluster, s)]
    many, first = len(cluster.sets), said.partition("\n")[0]
    plural = "DaemonSet" if many == 1 else "DaemonSets"
    told = re.match(
        rf"(\d+) of {many} {plural} (?:is|are) not as it should be; the first is", first
    )
    if told is None:
        none = f"Nothing is odd about {many} {plural}: "
        return [] if first.startswith(none) and not odd else [f"{first}, and {len(odd)} are"]
    lies = [] if int(told[1]) == len(odd) else [f"{told[1]} are odd, and {len(odd)} are"]
    names = [f"{s['metadata']['namespace']}/{s['metadata']['name']}" for s in odd]
    if names and f"the first is {names[0]}: " not in first:
        lies.append(f"{first}, and the first is {names[0]}")
    return lies


def lies_of_counts(cluster: SetsCluster, daemon_set: Document, said: str) -> list[str]:
    """What the page of one set claims of its numbers."""
    counts = counted(cluster, daemon_set)
    should, do, ready = counts["desired"], counts["current"], counts["ready"]
    sentence = f"By the objects {should} should, {do} do, {ready} are ready."
    return [] if sentence in said else [f"not said: {sentence}"]


def test_what_daemonset_says_of_the_objects_is_so(tmp_path: Path, seeds: range) -> None:
    for seed in range(4 * seeds.start, 4 * seeds.stop):
        cluster = sets_cluster(seed)
        assert lies_of_list(cluster, asked(tmp_path, cluster, "-A")) == [], seed
        for daemon_set in cluster.sets:
            said = asked(tmp_path, cluster, daemon_set["metadata"]["name"])
            assert lies_of_counts(cluster, daemon_set, said) == [], (seed, said)


# --- what is said of what comes -----------------------------------------------------------------


class Acts(NamedTuple):
    """What the DaemonSet controller does to one set in a play: nodes of which it makes a pod, and
    pods that it deletes, with the seconds at which it does so."""

    made: dict[str, float]
    deleted: dict[str, float]


def acts_of(records: list[Document], daemon_set: Document, until: float) -> Acts:
    made: dict[str, float] = {}
    deleted: dict[str, float] = {}
    name = daemon_set["metadata"]["name"]
    for record in records:
        if record["controller"] != "daemonset" or record["at"] > until:
            continue
        if record["action"] == "CreatePod" and record["object"]["name"].startswith(f"{name}-"):
            made.setdefault(record["detail"]["node"], record["at"])
        elif record["action"] == "DeletePod" and record["object"]["name"].startswith(f"{name}-"):
            deleted.setdefault(record["object"]["name"], record["at"])
    return Acts(made, deleted)


def lies_of_next(rows: list[Document], acts: Acts) -> list[str]:
    """What `--nodes` claims to come next on each node, beside what comes at once in the play. Where
    a pod is deleted another may be made as soon as it is gone, which is not what comes next."""
    lies = []
    for row in rows:
        told = set(re.findall(r"delete (\S+): ", row["next"]))
        done = {pod["name"] for pod in row["has"]} & acts.deleted.keys()
        if told != done:
            lies.append(f"{row['node']}: {row['next']!r}, and deleted: {done}")
        makes = "create a pod" in row["next"]
        if makes != (row["node"] in acts.made) and not told:
            lies.append(f"{row['node']}: {row['next']!r}, and made: {acts.made}")
    return lies


def lies_of_rollout(
    cluster: SetsCluster, daemon_set: Document, told: Document, records: list[Document]
) -> list[str]:
    """What `daemonset status` claims of the update, beside an hour of it."""
    lies, verdict = [], told["verdict"]
    at_once, every = acts_of(records, daemon_set, 0.9), acts_of(records, daemon_set, 3600)
    is_through = rolled_out(daemon_set, records)
    if verdict == "never" and is_through:
        lies.append(f"never: {told['because']}, and it ends")
    if verdict in ("goes on", "done") and not (is_through or unready(cluster, daemon_set)):
        lies.append(f"{verdict}, and it does not end")
    for line in told["next"]:
        words = re.match(r"(?:delete (\S+)|create a pod on (\S+)): ", line)
        assert words is not None, line
        if words[1] not in at_once.deleted and words[2] not in at_once.made:
            lies.append(f"{line}, and not at once")
    is_open = verdict == "never" or unready(cluster, daemon_set)
    for line in () if is_open else told["takenForGood"]:
        words = re.match(r"the update deletes (\S+) on (\S+), and none is made", line)
        assert words is not None, line
        if words[1] not in every.deleted or words[2] in every.made:
            lies.append(f"{line}, and it is not so")
    return lies


def rolled_out(daemon_set: Document, records: list[Document]) -> bool:
    """True if the last status in the play is that of an update that is through."""
    status = dict(daemon_set["status"])
    for record in records:
        about = record["object"]["name"] == daemon_set["metadata"]["name"]
        if record["action"] == "UpdateDaemonSetStatus" and about:
            status |= record["detail"]
    desired = status["desiredNumberScheduled"]
    return bool(status["updatedNumberScheduled"] == desired == status["numberAvailable"])


def unready(cluster: SetsCluster, daemon_set: Document) -> bool:
    """True if a pod has not been Ready for less than a minute: nobody knows whether it will be."""
    return any(
        not is_ready(pod)
        and pod["status"]["phase"] == "Running"
        and pod["status"]["conditions"][0]["lastTransitionTime"] > at(-60)
        for pods in cluster.pods_of(daemon_set).values()
        for pod in pods
    )


def lies_of_what_comes(folder: Path, seed: int) -> list[str]:
    """What is claimed to come of each set of that seed's cluster and does not."""
    lies, cluster = [], sets_cluster(seed)
    records = played(folder, NOTHING, cluster.items)
    for daemon_set in cluster.sets:
        name = daemon_set["metadata"]["name"]
        rows = json.loads(asked(folder, cluster, name, "--nodes", "-o", "json"))["nodes"]
        lies += lies_of_next(rows, acts_of(records, daemon_set, until=0.9))
        if daemon_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            told = json.loads(asked(folder, cluster, "status", name, "-o", "json"))
            lies += lies_of_rollout(cluster, daemon_set, told, records)
    return lies


def test_what_daemonset_says_comes_next_comes(tmp_path: Path, seeds: range) -> None:
    for seed in range(2 * seeds.start, 2 * seeds.stop):
        assert lies_of_what_comes(tmp_path, seed) == [], seed


@pytest.mark.parametrize("seed", DIFFERED)
def test_what_did_not_come_once_is_not_said(tmp_path: Path, seed: int) -> None:
    assert lies_of_what_comes(tmp_path, seed) == []


def test_a_lie_about_a_daemonset_is_caught(tmp_path: Path) -> None:
    caught = set()
    for seed in range(12):
        cluster = sets_cluster(seed)
        said = asked(tmp_path, cluster, "-A")
        assert lies_of_list(cluster, re.sub(r"\d of|Nothing", "9 of", said, count=1))
        records = played(tmp_path, NOTHING, cluster.items)
        for daemon_set in cluster.sets:
            name = daemon_set["metadata"]["name"]
            page = asked(tmp_path, cluster, name)
            assert lies_of_counts(cluster, daemon_set, page.replace(" are ready", "7 are ready"))
            acts = acts_of(records, daemon_set, until=0.9)
            rows = json.loads(asked(tmp_path, cluster, name, "--nodes", "-o", "json"))["nodes"]
            for row in rows:
                assert bool(row["next"]) or not lies_of_next([row], acts)
                if lies_of_next([{**row, "next": "create a pod"}], acts):
                    caught.add("made")
                if row["next"] and lies_of_next([{**row, "next": ""}], acts):
                    caught.add("not told")
            if daemon_set["spec"]["updateStrategy"]["type"] != "RollingUpdate":
                continue
            told = json.loads(asked(tmp_path, cluster, "status", name, "-o", "json"))
            for lie in ("never", "goes on"):
                if lies_of_rollout(cluster, daemon_set, {**told, "verdict": lie}, records):
                    caught.add(lie)
            later = {**told, "next": ["delete nobody: because"]}
            assert lies_of_rollout(cluster, daemon_set, later, records)
    assert caught == {"made", "not told", "never", "goes on"}
