"""Holds drain-plan's first line, verdict and exit code against a play of the same drain."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.claims.test_what_if import Document, drains_of, random_question, run, span_of
from tests.objects import write_list

ALL = (
    "PodDisruptionBudget,Service,EndpointSlice,Job,Namespace,ReplicaSet,StatefulSet,DaemonSet,"
    "Deployment,ReplicationController,ValidatingWebhookConfiguration,ControllerRevision,"
    "MutatingWebhookConfiguration,ValidatingAdmissionPolicy,ValidatingAdmissionPolicyBinding,"
    "PersistentVolumeClaim,PersistentVolume,StorageClass,HorizontalPodAutoscaler,PriorityClass"
)
NOW = ("--now", "2026-01-01T12:00:00Z")
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
    dump = write_list(folder / "dump.json", items)
    where = ("-f", dump, *NOW)
    asked = ("drain-plan", *names, "--ignore-daemonsets", "--read", ALL, *where)
    code, text = run(*asked, "--exit-code")
    plan = json.loads(run(*asked, "-o", "json")[1])
    acts = ("what-if", "drain", *names, "--ignore-daemonsets", "--until", "1h", "-o", "timeline")
    records = json.loads(run(*acts, *where)[1])["records"]
    last = [r["at"] for r in records if r["detail"].get("reason") in ("Drained", "DrainFailed")]
    return Planned(text.splitlines()[0], code, plan, drains_of(records), max(last, default=0.0))


def lies_of_plan(told: Planned) -> list[str]:
    lies = []
    may_fail = any(node["mayFail"] for node in told.plan["nodes"])
    doubtful = may_fail and told.plan["verdict"] == "slow"
    if told.text.startswith("This drain may not finish") != doubtful:
        lies.append(f"{told.text!r}, and the nodes say otherwise")
    if doubtful:  # one play says nothing of it: tests/drain/test_luck.py, test_drain_timeouts.py
        return lies
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
            assert lies_of_plan(told._replace(text=f"This drain may not finish{told.text}"))
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
    acts, dump = folder / "acts.yaml", write_list(folder / "played.json", items)
    head = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Acts"}
    acts.write_text(json.dumps({**head, "spec": {"events": events}}))
    where = ("-f", str(acts), "-f", dump, *NOW)
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
