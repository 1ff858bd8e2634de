"""`explain pod|zone|daemonset|budget`: one question, and all that the other verbs know about it."""

from typing import Any

import pytest

from kubectl_nodelife.outlook.taint_turns import TaintQueuePosition
from tests.drain.build import Json, budget, node, owned, pod, workload
from tests.objects import manifest
from tests.outlook.asking import Ask, lost

BUDGET = budget("web", "web", healthy=2, desired=2, expected=2, minAvailable=2)


def questions(ask: Ask, cluster: list[object], *words: str) -> dict[str, str]:
    """The sentences of an explanation, one string a question."""
    said = ask(cluster, "explain", *words, "-o", "json")
    assert said.code == 0, said.err
    return {a["question"]: " ".join(a["sentences"]) for a in said.document["answers"]}


def web(*on: str) -> list[Json]:
    """A ReplicaSet of a Deployment with a pod on each of these nodes."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "site",
        "uid": "uid-site",
        "controller": True,
    }
    made = workload("ReplicaSet", "web", len(on))
    made["metadata"]["ownerReferences"] = [owner]
    return [made, *(owned("ReplicaSet", "web", name, i) for i, name in enumerate(on))]


def test_a_pod_with_its_owners_its_budget_and_a_drain(ask: Ask) -> None:
    cluster: list[Any] = [node("a1"), node("a2"), *web("a1", "a2"), BUDGET]
    says = [{"name": "c", "ready": True, "state": {"running": {}}}]
    cluster[-2]["status"]["containerStatuses"] = says  # the second pod's
    told = questions(ask, cluster, "pod", "web-1")
    assert "No: its readiness fits its containers" in told["Does the audit find something?"]
    assert told["Who replaces it, and when?"].startswith(
        "ReplicaSet/web (of Deployment/site) makes another as soon as this one is being deleted."
    )
    drained = told["What would a drain of its node do to it?"]
    assert drained.startswith("It never goes: budget web (minAvailable 2)")
    assert "To unblock: " in drained and "Budgets that its eviction asks: web." in drained


def test_a_pod_of_a_statefulset_is_there_at_most_once(ask: Ask) -> None:
    cluster = [node("a1"), workload("StatefulSet", "db", 1), owned("StatefulSet", "db", "a1", 0)]
    told = questions(ask, cluster, "pod", "db-0")["Who replaces it, and when?"]
    assert "only when this object is gone, so that there is at most one db-0" in told


def test_kubectl_refuses_a_bare_pod_and_says_which_flag_lifts_that(ask: Ask) -> None:
    told = questions(ask, [node("a1"), pod("lone", "a1")], "pod", "lone")
    assert told["Who replaces it, and when?"] == "Nothing: no controller owns it."
    assert "--force lifts that" in told["What would a drain of its node do to it?"]


def test_a_finding_of_the_audit_is_told_with_what_to_do(ask: Ask) -> None:
    """Ready on a node that says itself that it is not: Services still send traffic there."""
    says = {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}
    cluster = [node("a1", status=says), pod("web", "a1")]
    told = questions(ask, cluster, "pod", "web")["Does the audit find something?"]
    assert told.startswith("stale-ready: Ready is True, and node a1 is Ready=False.")
    assert "Do: have the node fenced or repaired" in told and "kubernetes#125618" in told


def test_a_pending_pod_gives_the_schedulers_message(ask: Ask) -> None:
    says = "0/1 nodes are available: 1 Insufficient cpu."
    status = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": says,
            }
        ],
    }
    told = questions(ask, [node("a1"), pod("big", "", status=status)], "pod", "big")
    assert f"The scheduler says: {says}" in told["Why is it Pending?"]
    assert "it waits (Unschedulable)" in told["Does the audit find something?"]


def test_finalizers_and_waiting_containers_are_named(ask: Ask) -> None:
    status = {
        "containerStatuses": [
            {
                "name": "c",
                "ready": False,
                "restartCount": 7,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ]
    }
    made = pod("p", "a1", metadata={"finalizers": ["example.com/hold"]}, status=status)
    told = questions(ask, [node("a1"), made], "pod", "p")["Where is it, and how is it?"]
    assert "Container c waits (CrashLoopBackOff), restarted 7 times." in told
    assert "Finalizers keep its object when it is deleted: example.com/hold." in told


def test_a_zone_with_its_brake_its_queue_and_its_timers(ask: Ask) -> None:
    waiting = lost("a2")
    waiting[0]["spec"]["taints"].pop()
    cluster = [node("a1"), waiting, node("b1", zone="b")]
    told = questions(ask, cluster, "zone", "a")
    assert "1 healthy, 1 unreachable" in told["What state is it in, and why?"]
    assert "a2: its turn comes in" in told["Which nodes wait for their taint, and how long?"]
    said = ask(cluster, "explain", "zone", "c")
    assert said.code == 1 and "not found" in said.err and "there is a, b" in said.err


def test_no_node_has_a_slot_of_its_own_in_its_zones_queue(ask: Ask) -> None:
    """Each pass of upstream queues all that wait anew, in the order of a map."""
    cluster: list[Any] = [node(f"b{number}") for number in range(9)]
    for name in ("a1", "a2", "a3"):
        waiting = lost(name)
        waiting[0]["spec"]["taints"].pop()
        cluster.append(waiting)
    told = questions(ask, cluster, "zone", "a")["Which nodes wait for their taint, and how long?"]
    assert "a1, a2, a3: their turns come in 0s-31s" in told
    assert "in an order that is chance" in told
    of_three, third = TaintQueuePosition(0, 2, None), TaintQueuePosition(2, 2, None)
    assert of_three.in_words() == "one of 3 in its zone's queue, whose order is chance,"
    assert third.in_words() == "number 3 in its zone's queue"


def test_a_budget(ask: Ask) -> None:
    cluster = [node("a1"), node("a2"), *web("a1", "a2"), BUDGET]
    told = ask(cluster, "explain", "budget", "web").out
    assert "Of 2 pods 2 must be healthy and 2 are: 0 may go" in told
    assert "Which nodes does it hold?\n  a1, a2 cannot be drained now" in told
    assert "it spares none, ever" in told.partition("Is something wrong with it?")[2]


def test_a_daemonset(ask: Ask) -> None:
    """A pod on a node that is gone is misscheduled, and the node is said not to exist."""
    made = workload("DaemonSet", "agent", 0, template={"metadata": {"labels": {"app": "agent"}}})
    gone = owned("DaemonSet", "agent", "c2", 1)
    cluster = [node("a1"), made, owned("DaemonSet", "agent", "a1", 0), gone]
    told = ask(cluster, "explain", "daemonset", "agent").out
    assert "By the objects 1 should, 1 do, 1 are ready." in told
    assert "\n  Misscheduled on c2 (no such node)." in told.partition("What is odd about it?")[2]


@pytest.mark.parametrize(
    "words", [("pod", "x"), ("budget", "x"), ("daemonset", "x"), ("zone", "x"), ("node", "x")]
)
def test_what_is_not_there_is_not_found(ask: Ask, words: tuple[str, str]) -> None:
    said = ask([node("a1")], "explain", *words)
    assert (said.code, said.out) == (1, "") and "not found" in said.err


def test_a_kind_that_is_not_explained(ask: Ask) -> None:
    said = ask([node("a1")], "explain", "service", "x")
    assert said.code == 2 and "zone/NAME" in said.err


def test_a_pod_of_a_dead_node_is_terminating_for_ever(ask: Ask) -> None:
    """Its deletion is due, and that is not its end: nobody is there to stop it."""
    seconds = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
    toleration = {**seconds, "effect": "NoExecute", "tolerationSeconds": 900}
    cluster = [lost("a1"), node("a2"), owned("StatefulSet", "db", "a1", 0)]
    cluster[2]["spec"]["tolerations"] = [toleration]
    said = ask(cluster, "explain", "pod", "db-0", "-o", "json").document["answers"]
    when = next(a for a in said if a["question"] == "When will it be evicted?")
    assert [t["what"] for t in when["terms"]] == ["until its deletion"]
    told = " ".join(when["sentences"])
    assert "Then it is Terminating for ever, until its kubelet is back, its node object is" in told
    assert "StatefulSet db keeps to at most one db-0" in told


def test_a_node_whose_taint_puts_pods_out_is_not_healthy(ask: Ask) -> None:
    """`evicting` while pods must go, `tainted` when all that are left may stay."""
    taint = {
        "key": "maintenance",
        "value": "now",
        "effect": "NoExecute",
        "timeAdded": "2026-01-01T00:59:50Z",
    }
    tolerates = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}
    leaving = pod("p", "a1", spec={"tolerations": [tolerates]})
    cluster = [node("a1", spec={"taints": [taint]}), leaving]
    for objects, state, code in ((cluster, "evicting", 4), (cluster[:1], "tainted", 0)):
        said = ask(objects, "status", "-o", "json", "--exit-code")
        assert (said.document["nodes"][0]["verdict"]["state"], said.code) == (state, code)


def test_no_update_is_seen_where_only_other_namespaces_revisions_were_read(ask: Ask) -> None:
    made = workload("DaemonSet", "agent", 0, template={"metadata": {"labels": {"app": "agent"}}})
    made["status"] = {"desiredNumberScheduled": 1}
    other = manifest("ControllerRevision", "x", "elsewhere", revision=1)
    hashed = {"labels": {"app": "agent", "controller-revision-hash": "7f9"}}
    cluster = [node("a1"), made, owned("DaemonSet", "agent", "a1", 0, metadata=hashed), other]
    assert "update is under way" not in ask(cluster, "daemonset").out


def test_a_pod_of_which_little_is_known_is_not_called_consistent(ask: Ask) -> None:
    bare = pod("p", "a1", status={"conditions": []})
    told = questions(ask, [node("a1"), bare], "pod", "p")["Does the audit find something?"]
    assert told.startswith("Not known: it has no Ready condition")


def test_services_are_only_unknown_where_none_was_read(ask: Ask) -> None:
    question = "Which Services lose endpoints with it?"
    cluster: list[object] = [node("a1"), pod("p", "a1")]
    assert questions(ask, cluster, "node", "a1")[question] == "No Service selects a pod of it."
    said = ask(cluster, "explain", "node", "a1", kinds="nodes,pods,leases").out
    assert "Not known: no Service was read" in said


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("container runtime network not ready: NetworkReady=false reason:x message:y", "(CNI)"),
        ("[container runtime is down, PLEG is not healthy: pleg was last seen]", "(CRI)"),
        ("CSINode is not yet initialized", "(CSI)"),
    ],
)
def test_a_node_that_is_not_ready_says_which_part_is_broken(
    ask: Ask, message: str, part: str
) -> None:
    """The words are those of pkg/kubelet/runtime.go."""
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message}
    told = questions(ask, [node("a1", status={"conditions": [ready]})], "node", "a1")
    assert any(part in said for said in told.values() if "What is broken there" in said)
