"""Follows what drain-plan advises: the change is made on the input, and the pod must go then.

A command is read as a shell and kubectl read it, and done to the JSON of the dump or as an act of a
play; no remedy of the planner is asked. What no random cluster has is planted: two budgets on a
pod, a finalizer, a webhook that is not there, a policy that denies, a namespace that goes, pods
that are not Ready under a budget.
"""

import copy
import json
import random
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.claims.test_drain_plan import lies_of_plan, nodes_of, planned, played
from tests.claims.test_what_if import Document, drains_of
from tests.objects import admission_rule, manifest
from tests.what_if.stand import at, budget, node, service, workload

ADVISED = (8, 34, 175, 290, 642, 1344, 1720, 2163, 2287, 2685, 5786, 6337, 7292, 7613)
"""Seeds of which a plan gives advice that is a command: pods more where a silent node has room
(175), of a node that kubectl never comes to (290), where other nodes of the command are cordoned
(642), where a pod more must find them cordoned (1344, 1720), or a
silent node, too (2287, 2685), and where a node takes pods again before the next is drained (2163);
where pods that wait for a node land on one of the plan before the drain begins, with a budget that
holds it up (5786, 6337, 7292), or take the room of the pod more (7613).
"""


ADMISSION = "admissionregistration.k8s.io/v1"


class Followed(NamedTuple):
    """The cluster and the events of a scenario in which an advice is followed, and when the drain
    of the nodes begins, but of those that were drained `before`.
    """

    items: list[Document]
    events: list[Document]
    at: str = "10s"
    before: tuple[str, ...] = ()


_KINDS = {
    "pdb": ("policy/v1", "PodDisruptionBudget"),
    "pod": ("v1", "Pod"),
    "validatingwebhookconfiguration": (ADMISSION, "ValidatingWebhookConfiguration"),
    "validatingadmissionpolicybinding": (ADMISSION, "ValidatingAdmissionPolicyBinding"),
}


def followed(change: str, items: list[Document]) -> Followed | None:
    """What an advice does; None for advice that nobody can follow without asking further."""
    cordoned = re.match(r"kubectl cordon ([^,&]+?)(?:, then| &&) ", change)
    if cordoned is not None:
        names, change = shlex.split(cordoned[1]), change[cordoned.end() :]
        items = copy.deepcopy(items)
        for item in items:
            if item["kind"] == "Node" and item["metadata"]["name"] in names:
                item["spec"]["unschedulable"] = True
    repaired = re.findall(r"([\w-]+) \([^)]*\)", change) if change.startswith("repair ") else []
    if repaired:
        return Followed(_ready(items, repaired), [])
    words = shlex.split(change.rpartition("; else ")[2].partition(", ")[0])
    if words[-2:] == ["once", "drained"]:
        before = {"nodes": words[2:-2]}
        drain = {"at": "0s", "drain": {**before, "ignoreDaemonSets": True}}
        events = [drain, {"at": "15m", "uncordon": before}]
        return Followed(items, events, "16m", tuple(words[2:-2]))
    if words[:2] == ["kubectl", "uncordon"]:
        return Followed(items, [{"at": "0s", "uncordon": {"nodes": [words[2]]}}])
    if words[:2] == ["kubectl", "scale"]:
        return Followed(_scaled(items, words[3], int(words[-1].partition("=")[2])), [])
    if words[:2] == ["kubectl", "delete"]:
        kind, names = _KINDS[words[2]][1], words[3 : words.index("-n")]
        gone = [{"kind": kind, "namespace": words[words.index("-n") + 1], "name": n} for n in names]
        return Followed(items, [{"at": "0s", "delete": each} for each in gone])
    if words[:2] == ["kubectl", "patch"]:
        return Followed(items, [{"at": "0s", "apply": _patched(words, items)}])
    return None


def _patched(words: list[str], items: list[Document]) -> Document:
    """What `kubectl patch KIND NAME --type merge|json -p PATCH` changes, as a merge patch."""
    (version, kind), patch = _KINDS[words[2]], json.loads(words[words.index("-p") + 1])
    (there,) = (o for o in items if o["kind"] == kind and o["metadata"]["name"] == words[3])
    if words[words.index("--type") + 1] == "json":
        webhooks = copy.deepcopy(there["webhooks"])
        for step in patch:
            _, _, place, field = step["path"].split("/")
            webhooks[int(place)][field] = step["value"]
        patch = {"webhooks": webhooks}
    meta = {"name": words[3], **patch.pop("metadata", {})}
    if "-n" in words:
        meta["namespace"] = words[words.index("-n") + 1]
    return {"apiVersion": version, "kind": kind, "metadata": meta, **patch}


def _ready(items: list[Document], names: list[str]) -> list[Document]:
    """With these pods Ready."""
    mended = copy.deepcopy(items)
    for pod in mended:
        if pod["kind"] == "Pod" and pod["metadata"]["name"] in names:
            pod["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
    return mended


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
    cordoned = [name for name in names if name not in done.before]
    cordon = {"at": done.at, "cordon": {"nodes": cordoned}}
    records = played(folder, [*done.events, cordon, drain], done.items)
    gone = any(
        record["action"] == "DeletePod"
        and record["object"]["name"] == pod["name"]
        and record["detail"].get("gracePeriodSeconds") == 0
        for record in records
    )
    gone = gone or drains_of(records).get(pod["node"]) == "Drained"  # it was gone before
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


# --- what no random cluster has -------------------------------------------------------------------

_EVICTIONS = admission_rule("pods/eviction")
HOLDS = ("two-pdbs", "finalizer", "webhook", "policy", "namespace-terminating", "unready")


def held(hold: str, seed: int) -> list[Document]:
    """A cluster in which something holds the first pod of w0, which is on a1."""
    rng = random.Random(f"held {hold} {seed}")
    names = ["a1", "a2", "b1", "b2"]
    items = [each for name in names for each in node(name)]
    for number in range(rng.randint(1, 3)):
        on = ["a1", *rng.choices(names, k=rng.randint(0, 3))]
        items += workload(f"w{number}", on, rng.choice(("ReplicaSet", "StatefulSet")))
    items += _hold(hold, rng, [o for o in items if o["metadata"]["name"].startswith("w0-")])
    return items


def _hold(hold: str, rng: random.Random, pods: list[Document]) -> list[Document]:
    """What holds the first of the pods, besides what is changed of them."""
    meta, going = pods[0]["metadata"], {"deletionTimestamp": at(-1800)}
    if hold == "two-pdbs":
        first, second = (budget("w0", 0, len(pods))[0] for _ in range(2))
        second["metadata"] = {**second["metadata"], "name": "w0-too", "uid": "too"}
        return [first, second]
    if hold == "finalizer":
        meta |= {**going, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/x"]}
    if hold == "webhook":
        gone = {"service": {"namespace": "guard", "name": "guard"}}
        hook = {"name": "guard.example.com", "rules": [_EVICTIONS], "clientConfig": gone}
        hooks = [{**hook, "failurePolicy": each} for each in ("Ignore", "Fail", "Fail")]
        some = hooks[: rng.randint(2, 3)]
        asked = manifest("ValidatingWebhookConfiguration", "guard", webhooks=some)
        return [asked, service("other")[0]]  # its own is not there
    if hold == "policy":
        rules = {"matchConstraints": {"resourceRules": [_EVICTIONS]}}
        rules["validations"] = [{"expression": "false", "message": "not today"}]
        binds = {"policyName": "guard", "validationActions": ["Deny"]}
        policy = manifest("ValidatingAdmissionPolicy", "guard", spec=rules)
        return [policy, manifest("ValidatingAdmissionPolicyBinding", "guard", spec=binds)]
    if hold == "namespace-terminating":
        phase = {"phase": "Terminating"}
        return [manifest("Namespace", "default", metadata=going, status=phase)]
    if hold == "unready":
        pods[-1]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        waiting = {"name": "c", "ready": False, "state": state}
        pods[-1]["status"]["containerStatuses"] = [waiting]
        guard = budget("w0", len(pods), len(pods))
        guard[0]["status"] |= {"currentHealthy": len(pods) - 1, "disruptionsAllowed": 0}
        return guard
    return []


@pytest.mark.parametrize("hold", HOLDS)
def test_what_holds_a_pod_goes_by_what_is_advised(tmp_path: Path, seeds: range, hold: str) -> None:
    advised = 0
    for seed in seeds:
        items = held(hold, seed)
        told = planned(tmp_path, ["a1"], items)
        assert lies_of_plan(told) == [], (seed, told.text)
        for pod in (pod for wave in told.plan["waves"] for pod in wave["pods"]):
            advice = pod["unblock"]["change"] if pod.get("unblock") else ""
            if done := followed(advice, items):
                assert not goes(tmp_path, ["a1"], pod, Followed(items, [])), (seed, pod["name"])
                assert goes(tmp_path, ["a1"], pod, done), (seed, pod["name"], advice)
                advised += 1
    assert advised


def test_advice_that_changes_something_else_is_caught(tmp_path: Path) -> None:
    """The other webhook is told to be ignored, the other finalizer's pod patched."""
    items = held("webhook", 0)
    (pod, *_) = planned(tmp_path, ["a1"], items).plan["waves"][0]["pods"]
    advice = pod["unblock"]["change"]
    assert goes(tmp_path, ["a1"], pod, followed(advice, items) or Followed(items, []))
    for other in (advice.replace("/webhooks/1", "/webhooks/0"), advice.replace("Ignore", "Fail")):
        assert other != advice
        assert not goes(tmp_path, ["a1"], pod, followed(other, items) or Followed(items, []))
