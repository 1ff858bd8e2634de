"""Evidence over silence: what was not read is said to be unknown, never shown as none or fine."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.drain.build import NOW, merged, node, pod
from tests.outlook.asking import Ask, lost

OLD = "2025-12-31T22:58:00Z"  # two hours and two minutes before the moment


def posted(at: str) -> dict[str, Any]:
    """A status last posted at that time."""
    return {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}]}


def test_a_node_without_a_lease_and_an_old_status_is_not_healthy(ask: Ask) -> None:
    cluster = [node("old", lease="", status=posted(OLD)), node("young", lease="")]
    entries = ask(cluster, "status", "-o", "json").document["nodes"]
    verdicts = {n["name"]: n["verdict"] for n in entries}
    assert verdicts["old"]["state"] == "silent"
    assert "status was last posted 122m ago" in verdicts["old"]["because"]
    # Nothing is foretold of it: a Lease that nobody has seen may be young.
    assert verdicts["old"]["next"] is None
    assert verdicts["young"]["state"] == "healthy"
    assert ask(cluster, "status", "--exit-code").code == 4


def test_a_status_may_be_as_old_as_a_kubelet_leaves_it(ask: Ask) -> None:
    """Five minutes between two posts, and the grace period on top."""
    for at, state in (("2026-01-01T00:54:10Z", "healthy"), ("2026-01-01T00:54:09Z", "silent")):
        cluster = [node("n", lease="", status=posted(at))]
        answer = ask(cluster, "status", "--now", NOW, "-o", "json").document
        assert answer["nodes"][0]["verdict"]["state"] == state


def test_pods_that_were_not_read_are_unknown(ask: Ask) -> None:
    said = ask([node("a1")], "status", kinds="nodes,leases")
    row = next(line.split() for line in said.out.splitlines() if line.startswith("a1 "))
    assert row[:2] == ["a1", "True"] and row.count("<unknown>") == 2
    document = ask([node("a1")], "status", "-o", "json", kinds="nodes,leases").document
    assert document["nodes"][0]["pods"] == {"total": None, "evicting": None, "terminating": None}
    explained = ask([node("a1")], "explain", "node", "a1", kinds="nodes,leases").out
    assert "Not known: no pods were read." in explained


UPGRADE = ("upgrade", "plan", "--all", "--wait", "--target", "kubeletVersion=v1.36.3")


@pytest.mark.parametrize("verb", [("audit",), ("drain-plan", "a1"), ("repair",), UPGRADE])
def test_without_pods_there_is_no_answer_about_pods(ask: Ask, verb: tuple[str, ...]) -> None:
    said = ask([node("a1")], *verb, kinds="nodes,leases")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: no pods were read") and "kubectl get pods -A" in said.err


def test_a_pod_that_waits_is_not_called_fine(ask: Ask) -> None:
    waiting = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [c]",
            },
            {
                "type": "ContainersReady",
                "status": "False",
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [c]",
            },
        ],
        "containerStatuses": [
            {"name": "c", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        ],
    }
    unbound = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    cluster = [node("a1"), pod("p", "a1", status=waiting), pod("q", "", status=unbound)]
    said = ask(cluster, "audit").out
    assert "of those without a finding 2 wait (1 ImagePullBackOff, 1 Unschedulable)" in said
    document = ask(cluster, "audit", "-o", "json").document
    assert document["waiting"] == {"ImagePullBackOff": 1, "Unschedulable": 1}


@pytest.mark.parametrize("verb", ["audit", "budgets"])
def test_a_misspelt_namespace_is_said_as_kubectl_says_it(ask: Ask, verb: str) -> None:
    said = ask([node("a1"), pod("p", "a1")], verb, "-n", "defualt")
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("No resources found in defualt namespace.\n")


def test_a_release_older_than_all_known_is_said_to_be(ask: Ask) -> None:
    info = {"nodeInfo": {"kubeletVersion": "v1.8.4"}}
    said = ask([node("a1", status=info)], "status", "-o", "json")
    assert "the newest kubelet, v1.8.4, is older than any release known here" in said.err
    assert said.document["profile"] == "v1.11"


def two_files(folder: Path, *nodes: dict[str, Any]) -> list[str]:
    """`-f` for the folder with each node in a file of its own, named in that order."""
    for number, made in enumerate(nodes):
        (folder / f"{number}.json").write_text(json.dumps(made))
    return ["-f", str(folder)]


@pytest.mark.parametrize("versions", [("7", "12"), ("12", "7")])
def test_of_an_object_in_two_files_the_newer_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], versions: tuple[str, str]
) -> None:
    """Whichever file is read last: 12 is newer than 7, and only as a number."""
    made = [
        merged(
            node("a1", lease="")[0],
            {"metadata": {"resourceVersion": v}, "spec": {"unschedulable": v == "12"}},
        )
        for v in versions
    ]
    assert main(["status", "-o", "json", *two_files(tmp_path, *made)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"][0]["unschedulable"] is True
    assert "the newer resourceVersion counts of Node a1, in" in err


def test_two_that_differ_and_nothing_tells_which_is_newer_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = node("a1", lease="")[0]
    assert main(["status", *two_files(tmp_path, one, one)]) == 0
    capsys.readouterr()
    other = merged(one, {"spec": {"unschedulable": True}})
    assert main(["status", *two_files(tmp_path, one, other)]) == 2
    assert "no resourceVersion says which is newer" in capsys.readouterr().err


RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": name, "status": "True"} for name in ("Initialized", "Ready", "ContainersReady")
    ],
    "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
}
MIRROR = {
    "metadata": {
        "annotations": {"kubernetes.io/config.mirror": "f00"},
        "deletionTimestamp": "2026-01-01T00:51:00Z",
        "ownerReferences": [],
    }
}


def test_a_static_pod_on_a_lost_node_is_to_be_left(ask: Ask) -> None:
    """Its kubelet makes the object anew; forcing it ends nothing and makes nothing."""
    cluster = [lost("a1"), node("b1"), pod("etcd-a1", "a1", **MIRROR)]
    said = ask(cluster, "audit").out
    assert "leave it: it shows a static pod of a1" in " ".join(said.split())
    (found,) = [
        f
        for f in ask(cluster, "audit", "-o", "json").document["findings"]
        if f["class"] == "terminating-dead-node"
    ]
    advice = found["advice"]
    assert (advice["forceDelete"], advice["commands"], advice["undo"]) == ("not-needed", [], [])
    assert "--force" not in ask(cluster, "explain", "pod", "etcd-a1").out


@pytest.mark.parametrize(
    "owners, told",
    [
        ([], "no controller makes it anew"),
        (
            [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}],
            "StatefulSet db makes a new pod",
        ),
    ],
)
def test_who_makes_a_forced_pod_anew(ask: Ask, owners: list[object], told: str) -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:51:00Z", "ownerReferences": owners}
    cluster = [lost("a1"), node("b1"), pod("p", "a1", metadata=deleted)]
    (found,) = ask(cluster, "audit", "-o", "json").document["findings"]
    assert told in found["advice"]["undo"][-1]


def test_the_audit_adds_up_and_trusts_no_pod_of_a_silent_node(ask: Ask) -> None:
    """The Lease of `silent` is old, though its Ready condition is True still."""
    cluster = [
        node("a1"),
        node("silent", lease="2026-01-01T00:40:00Z"),
        pod("fine", "a1", status=RUNNING),
        pod("bare", "a1", status={"conditions": []}),
        *(pod(f"p{n}", "silent") for n in range(3)),
    ]
    assert ask(cluster, "status", "--exit-code").code == 4
    counts = ask(cluster, "audit", "-o", "json").document["counts"]
    assert counts == {"ok": 1, "unknown": 1, "unheard": 3}
    said = ask(cluster, "audit").out
    assert "1 pod is consistent; 3 on 1 node that does not report" in said
    assert "1 says too little" in said


def test_a_node_of_which_no_lease_was_read_is_not_called_healthy(ask: Ask) -> None:
    cluster = [node("a1", lease="", status=posted("2026-01-01T00:56:44Z"))]
    said = ask(cluster, "status", "--now", NOW).out
    assert "Ready (no lease read)" in said and "healthy" not in said
    assert said.startswith("None of 1 node is in trouble, as far as Ready shows.")
    entry = ask(cluster, "status", "--now", NOW, "-o", "json").document["nodes"][0]
    assert "no lease was read" in entry["verdict"]["because"]
    assert "status was posted 3m" in entry["verdict"]["because"]


@pytest.mark.parametrize("age", [1, 4, 6, 9])
def test_a_node_of_one_look_is_unknown_a_grace_period_after_its_last_renewal(
    ask: Ask, age: int
) -> None:
    """Also where that is younger than a monitor period: the pass that noticed it is not known."""
    lease = f"2026-01-01T00:59:{60 - age}Z"
    cluster = [node("a1", lease=lease, status=posted("2026-01-01T00:56:44Z")), node("a2")]
    entry = ask(cluster, "status", "--now", NOW, "-o", "json").document["nodes"][0]
    span = (entry["unknownInEarliestSeconds"], entry["unknownInLatestSeconds"])
    assert span == (50 - age, 55 - age)


def test_the_page_says_which_times_rest_on_assumed_settings(ask: Ask) -> None:
    told = ask([node("a1")], "status").out
    assert "times assume node-monitor-grace-period=50s" in told and "--set FLAG=VALUE" in told
    given = ask([node("a1")], "status", "--set", "node-monitor-grace-period=40s").out
    assert "assume node-eviction-rate" in given and "grace-period" not in given


def test_a_drain_of_a_node_without_a_single_pod_is_not_promised(ask: Ask) -> None:
    """A partial must-gather: every real node has a static pod or a DaemonSet's."""
    cluster = [node("master"), node("w1"), pod("p", "w1")]
    said = " ".join(ask(cluster, "drain-plan", "master").out.split())
    assert said.startswith("Not read: any pod of master, not even a static one")
    assert "Of the rest: " in said
    assert "Not read: any pod" not in ask(cluster, "drain-plan", "w1", "--force").out


def test_it_is_said_what_a_pod_does_not_tell(ask: Ask) -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    cluster = [node("a1"), pod("p", "a1", status={"conditions": conditions})]
    said = ask(cluster, "explain", "pod", "p").out
    assert "Not known: it reports no container statuses to hold its Ready=False against." in said
    assert "no Ready condition" not in said
