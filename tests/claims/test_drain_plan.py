"""Holds drain-plan's first line, verdict and exit code against a play of the same drain.

Its advice is followed: what is to unblock a pod is done in a play, and the pod must go then.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.claims.test_what_if import Document, drains_of, random_question, run, span_of

ALL = (
    "PodDisruptionBudget,Service,EndpointSlice,Job,Namespace,ReplicaSet,StatefulSet,DaemonSet,"
    "Deployment,ReplicationController,ValidatingWebhookConfiguration,ControllerRevision,"
    "MutatingWebhookConfiguration,ValidatingAdmissionPolicy,ValidatingAdmissionPolicyBinding,"
    "PersistentVolumeClaim,PersistentVolume,StorageClass,HorizontalPodAutoscaler,PriorityClass"
)
NOW = ("--now", "2026-01-01T12:00:00Z")
ADVISED = (8, 34, 175, 290, 642, 1344, 1720)
"""Seeds of which a plan gives advice that is a command: pods more where a silent node has room
(175), of a node that kubectl never comes to (290), where other nodes of the command are cordoned
(642), and where a pod more must find them cordoned (1344, 1720).
"""

TOGETHER = (21, 64, 79)
"""Seeds of which a plan names no set of nodes that go together, all of them, and some."""


class Planned(NamedTuple):
    """What drain-plan says of a drain, and how a play of it ends, and when."""

    text: str
    code: int
    plan: Document
    ends: dict[str, str]
    ended: float

    @property
    def is_drained(self) -> bool:
        return all(end == "Drained" for end in self.ends.values())


def nodes_of(seed: int) -> tuple[list[str], list[Document]] | None:
    """The nodes of a question that drains some, and the cluster."""
    question = random_question(seed)
    if not question.act.startswith("drain"):
        return None
    words = question.act.split()[1:]
    return [word for word in words if not word.startswith("-")], question.items


def planned(folder: Path, names: list[str], items: list[Document]) -> Planned:
    dump = folder / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    where = ("-f", str(dump), *NOW)
    asked = ("drain-plan", *names, "--ignore-daemonsets", "--read", ALL, *where)
    code, text = run(*asked, "--exit-code")
    plan = json.loads(run(*asked, "-o", "json")[1])
    acts = ("what-if", "drain", *names, "--ignore-daemonsets", "--until", "1h", "-o", "timeline")
    records = json.loads(run(*acts, *where)[1])["records"]
    last = [r["at"] for r in records if r["detail"].get("reason") in ("Drained", "DrainFailed")]
    return Planned(text.splitlines()[0], code, plan, drains_of(records), max(last, default=0.0))


def lies_of_plan(told: Planned) -> list[str]:
    lies = []
    finishes = told.plan["verdict"] in ("ready", "slow", "unknown")
    if finishes != told.is_drained:
        lies.append(f"{told.plan['verdict']}, and {told.ends}")
    if (told.code == 4) == told.is_drained:
        lies.append(f"exit code {told.code}, and {told.ends}")
    if told.text.startswith("Not read: "):  # a node without any pod: nothing is said of time
        return lies
    if told.text.startswith("This drain finishes") != told.is_drained:
        lies.append(f"{told.text!r}, and {told.ends}")
    said = re.search(r" in (\S+) to ([\dhms.]+)", told.text)
    if said and not span_of(said[1]) - 1.5 <= told.ended <= span_of(said[2]) + 1.5:
        lies.append(f"{said[0]}, and {told.ended}")
    return lies


def test_the_first_line_of_drain_plan_is_so(tmp_path: Path, seeds: range) -> None:
    asked = 0
    for seed in range(4 * seeds.start, 4 * seeds.stop):
        if found := nodes_of(seed):
            asked += 1
            told = planned(tmp_path, *found)
            assert lies_of_plan(told) == [], (seed, told.text)
    assert asked


def test_a_lie_of_drain_plan_is_caught(tmp_path: Path) -> None:
    verdicts = set()
    for seed in range(30):
        if found := nodes_of(seed):
            told = planned(tmp_path, *found)
            verdicts.add(told.is_drained)
            other = "This drain does not finish" if told.is_drained else "This drain finishes"
            assert lies_of_plan(told._replace(text=other))
            assert lies_of_plan(told._replace(code=4 - told.code))
            if told.is_drained:
                assert lies_of_plan(told._replace(text="This drain finishes in 9m to 10m"))
    assert verdicts == {True, False}


def ends_together(folder: Path, names: list[str], items: list[Document]) -> dict[str, str]:
    """How the drains of these nodes end, each by a kubectl of its own, all begun at once."""
    drains = [{"at": "0s", "drain": {"nodes": [name], "ignoreDaemonSets": True}} for name in names]
    return drains_of(played(folder, drains, items))


def played(folder: Path, events: list[Document], items: list[Document]) -> list[Document]:
    """The records of an hour in which these acts happen."""
    acts, dump = folder / "acts.yaml", folder / "played.json"
    head = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Acts"}
    acts.write_text(json.dumps({**head, "spec": {"events": events}}))
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    where = ("-f", str(acts), "-f", str(dump), *NOW)
    code, out = run("what-if", "--until", "1h", "-o", "timeline", *where)
    assert code == 0, out
    records: list[Document] = json.loads(out)["records"]
    return records


def test_nodes_that_can_go_together_do(tmp_path: Path, seeds: range) -> None:
    """Not of clusters with a pod that has no node: it may land in the instant before the cordon."""
    together = 0
    for seed in (*TOGETHER, *range(4 * seeds.start, 4 * seeds.stop)):
        if not (found := nodes_of(seed)) or len(found[0]) < 2:
            continue
        if any(o["kind"] == "Pod" and "nodeName" not in o["spec"] for o in found[1]):
            continue
        told = planned(tmp_path, *found).plan["together"]
        if told is None:
            continue
        for names in [told] if told else [[name] for name in found[0]]:
            ends = ends_together(tmp_path, names, found[1])
            is_drained = all(end == "Drained" for end in ends.values())
            assert is_drained == bool(told), (seed, told, ends)
            together += is_drained
    assert together


# --- advice -----------------------------------------------------------------------------------


class Followed(NamedTuple):
    """The cluster and the events of a scenario in which an advice is followed, and when the drain
    of the nodes begins, but of those that were drained `before`.
    """

    items: list[Document]
    events: list[Document]
    at: str = "10s"
    before: tuple[str, ...] = ()


def followed(change: str, items: list[Document]) -> Followed | None:
    """What the command of an advice does; None for advice that is no command."""
    words = shlex.split(change.partition(", ")[0])
    if words[:2] == ["kubectl", "cordon"]:
        names, words = words[2 : words.index("&&")], words[words.index("&&") + 1 :]
        items = copy.deepcopy(items)
        for item in items:
            if item["kind"] == "Node" and item["metadata"]["name"] in names:
                item["spec"]["unschedulable"] = True
    if words[-2:] == ["once", "drained"]:
        before = {"nodes": words[2:-2]}
        drain = {"at": "0s", "drain": {**before, "ignoreDaemonSets": True}}
        events = [drain, {"at": "15m", "uncordon": before}]
        return Followed(items, events, "16m", tuple(words[2:-2]))
    if words[:2] == ["kubectl", "uncordon"]:
        return Followed(items, [{"at": "0s", "uncordon": {"nodes": [words[2]]}}])
    if words[:2] == ["kubectl", "scale"]:
        return Followed(_scaled(items, words[3], int(words[-1].partition("=")[2])), [])
    if words[:3] == ["kubectl", "patch", "pdb"]:
        meta = {"namespace": words[words.index("-n") + 1], "name": words[3]}
        spec = json.loads(words[words.index("-p") + 1])["spec"]
        obj = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
        return Followed(items, [{"at": "0s", "apply": {**obj, "spec": spec}}])
    return None


def _scaled(items: list[Document], name: str, replicas: int) -> list[Document]:
    """With the pods that the owner makes then, which have no node yet."""
    scaled = copy.deepcopy(items)
    for item in scaled:
        if item["kind"] in ("ReplicaSet", "StatefulSet") and item["metadata"]["name"] == name:
            item["spec"]["replicas"] = replicas
    pods = [
        o for o in scaled if o["kind"] == "Pod" and o["metadata"]["name"].startswith(f"{name}-")
    ]
    for number in range(len(pods), replicas):
        pod = copy.deepcopy(pods[0])
        pod["metadata"] |= {"name": f"{name}-{number}", "uid": f"more-{name}-{number}"}
        pod["spec"].pop("nodeName", None)
        pod["status"] = {"phase": "Pending"}
        scaled.append(pod)
    return scaled


def goes(folder: Path, names: list[str], pod: Document, done: Followed) -> bool | None:
    """True if the pod is gone from its node in a play of the drain that comes then; None: it is
    not, and a node is lost in the quarter of an hour in which nodes are drained `before`.

    What is said of a pod's node "by itself" is about a drain of that node, the others cordoned.
    """
    by_itself = "; by itself " in pod["reason"]
    nodes = [pod["node"]] if by_itself else [name for name in names if name not in done.before]
    drain = {"at": done.at, "drain": {"nodes": nodes, "ignoreDaemonSets": True}}
    cordon = {"at": done.at, "cordon": {"nodes": names}}
    records = played(folder, [*done.events, cordon, drain], done.items)
    gone = any(
        record["action"] == "DeletePod"
        and record["object"]["name"] == pod["name"]
        and record["detail"].get("gracePeriodSeconds") == 0
        for record in records
    )
    lost = bool(done.before) and any(
        record["action"] == "SetNodeCondition" and record["detail"].get("status") == "Unknown"
        for record in records
    )
    return None if lost and not gone else gone


def test_advice_that_is_followed_unblocks_the_pod(tmp_path: Path, seeds: range) -> None:
    advised = 0
    for seed in (*ADVISED, *range(4 * seeds.start, 4 * seeds.stop)):
        if not (found := nodes_of(seed)):
            continue
        told = planned(tmp_path, *found)
        for pod in (pod for wave in told.plan["waves"] for pod in wave["pods"]):
            advice = pod["unblock"]["change"] if pod.get("unblock") else ""
            if done := followed(advice, found[1]):
                assert not goes(tmp_path, found[0], pod, Followed(found[1], []))
                unblocked = goes(tmp_path, found[0], pod, done)
                assert unblocked is not False, (seed, pod["name"], advice)
                advised += unblocked is True
    assert advised
