"""Nodes that are closed by others' marks, nodes without an object, and attempts that failed."""

import json
from pathlib import Path

import pytest

from tests.objects import of_kind
from tests.wild.reports import FOLDER, Report, first_lines

Capture = pytest.CaptureFixture[str]
HELD = FOLDER / "node-15-finalizer-on-lost-node" / "dump.json"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


@pytest.mark.parametrize(
    "node, says",
    [
        ("w1", "uninitialized for 88m: no cloud controller works (or it fails)"),
        ("w2", "uninitialized for 86m: its machine controller does not reach this cluster"),
        ("w3", "agent not ready for 86m"),
        ("w4", "Karpenter takes it off when it has registered the node"),
        ("w5", "Karpenter drains the node and deletes it"),
        ("w6", "NetworkUnavailable (NoRouteCreated) for 50m: Node created without a route"),
        ("w7", "is stale, the cordon is off: node-lifecycle takes it off with the next update"),
    ],
)
def test_what_a_mark_of_another_party_means(capsys: Capture, node: str, says: str) -> None:
    report = Report("node-11-uninitialized-and-foreign-taints", capsys)
    told = report.ask("explain", "node", node, dump="dump.json")
    assert says in first_lines(told) and "healthy" not in first_lines(told)
    if node == "w4":
        assert "deletes it" not in told.out


def test_nodes_that_are_closed_are_counted(capsys: Capture) -> None:
    report = Report("node-11-uninitialized-and-foreign-taints", capsys)
    said = first_lines(report.ask("status", dump="dump.json"))
    assert "8 of 8 nodes take no ordinary pod: 1 by Cilium, 1 by Cluster API" in said
    report = Report("node-12-autoscaler-marks-forgotten", capsys)
    said = first_lines(report.ask("status", dump="dump.json"))
    assert "2 of 4 nodes are closed to new pods by cluster-autoscaler." in said
    said = first_lines(report.ask("explain", "node", "ip-2", dump="dump.json"))
    assert "marked for deletion 5h ago (value 1789887600): still there, so stale" in said


def test_a_node_that_was_deleted_under_its_pods(capsys: Capture) -> None:
    report = Report("node-08-node-object-deleted-kubelet-lives", capsys)
    said = first_lines(report.ask("status", dump="thirty-seconds.json"))
    assert "3 pods are on w1, which has no Node object." in said
    told = report.ask("explain", "node", "w1", dump="thirty-seconds.json")
    assert told.code == 0
    said = first_lines(told)
    assert "no such Node; deleted at 2026-09-20T11:59:30Z, 30s ago" in said
    assert "3 pods are bound to it and go with pod-gc between about 2026-09-20T12:00:10Z" in said
    assert "restart the kubelet on that machine" in told.out
    assert report.ask("explain", "node", "w9", dump="thirty-seconds.json").code == 1
    said = first_lines(report.ask("explain", "pod", "api-7-a", dump="thirty-seconds.json"))
    assert "Its node w1 is gone: no such Node; deleted at 2026-09-20T11:59:30Z, 30s ago" in said
    assert "It goes with pod-gc between about 2026-09-20T12:00:10Z" in said


def test_a_node_that_does_not_count_because_of_its_name(capsys: Capture) -> None:
    report = Report("node-01-two-nodes-one-called-master", capsys)
    why = "k8s-master does not count in the zone's statistics (1 of its 2 nodes): its name is a"
    for words in (("explain", "node", "edge-w2"), ("explain", "zone", "<none>")):
        told = report.ask(*words, dump="dump-1.14.json")
        assert why in told.out and "labelled" not in told.out
    assert why in first_lines(report.ask("explain", "node", "edge-w2", dump="dump-1.14.json"))
    assert "overdue since 2026-09-20T11:30:10Z" in report.ask("status", dump="dump-1.34.json").out


def test_an_attempt_that_failed_is_not_confirmed(capsys: Capture) -> None:
    report = Report("node-07-cloud-cannot-delete-node", capsys)
    told = report.ask("changes", "--since", "10m", "-o", "json", dump="dump.json").document
    found = {c["action"]: (c["outcome"], c.get("count")) for c in told["items"]}
    assert found["DeletingNode"] == ("failed", 9) == found["DeletingNodeFailed"]
    assert "DeletingNode (x9)" in report.ask("changes", "--since", "10m", dump="dump.json").out
    said = first_lines(report.ask("explain", "node", "cp-24q92", dump="dump.json"))
    assert "wants to delete it" in said and "it does not exist in the cloud provider" in said
    assert "That fails (9 times), and the Node stays" in said
    assert 'nodes "cp-24q92" is forbidden' in said and "dns-5c-a is deleted in 119s" in said


def test_pods_that_their_kubelet_ended_are_there(capsys: Capture) -> None:
    report = Report("node-13-disk-pressure", capsys)
    said = report.ask("replay", "--since", "1h", dump="dump.json").out
    assert "5 pods were evicted by the kubelet and failed (their objects are there)" in said
    report = Report("node-18-graceful-shutdown", capsys)
    told = report.ask("changes", "--since", "10m", "-o", "json", dump="dump.json").document
    of_pods = [c["action"] for c in told["items"] if c["object"]["kind"] == "Pod"]
    assert of_pods == ["SetPodPhase", "SetPodPhase"]


def test_a_stateful_sets_failed_pod_is_made_anew_at_once(capsys: Capture) -> None:
    report = Report("node-18-graceful-shutdown", capsys)
    told = report.simulate("dump.json", "--until", "10m", "-o", "json")
    made = [r for r in told.document["records"] if r["action"] == "CreatePod"]
    assert [(r["object"]["name"], r["at"] < 1.5) for r in made] == [("q-0", True)]


def test_a_job_lets_go_of_a_pod_that_has_failed(capsys: Capture) -> None:
    report = Report("node-16-job-tracking-finalizer", capsys)
    told = report.simulate("oos.yaml", "-o", "json").document
    collected = [
        r for r in told["records"] if r["action"] == "DeletePod" and r["controller"] == "pod-gc"
    ]
    assert len(collected) == 1
    made = [r for r in told["records"] if r["action"] == "CreatePod"]
    assert len(made) == 1 and made[0]["at"] < 60


def test_a_repeated_delete_is_no_deletion(capsys: Capture) -> None:
    report = Report("node-15-finalizer-on-lost-node", capsys)
    words = ("what-if", "taint", "node", "ip-5", OUT_OF_SERVICE)
    told = report.ask(*words, "-o", "json", dump="dump.json")
    (node,) = (n for n in told.document["nodes"] if n["name"] == "ip-5")
    assert node["evicted"] == 2
    said = first_lines(report.ask(*words, dump="dump.json"))
    assert "default/batch-x: held by a finalizer: batch.kubernetes.io/job-tracking" in said


@pytest.mark.parametrize("act", ["delete node ip-5", f"taint node ip-5 {OUT_OF_SERVICE}"])
def test_a_finalizer_of_nobody_here_holds_a_pod(tmp_path: Path, capsys: Capture, act: str) -> None:
    cluster = json.loads(HELD.read_text())
    for item in cluster["items"]:
        if item["metadata"]["name"] in ("db-0", "batch-x"):
            item["metadata"]["finalizers"] = ["example.com/x"]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(cluster))
    said = first_lines(Report("", capsys).ask("what-if", *act.split(), dump=str(dump)))
    assert "default/batch-x, default/db-0: held by a finalizer: example.com/x" in said


def test_a_job_that_did_not_let_go_before_does_not_now(tmp_path: Path, capsys: Capture) -> None:
    """The pod counts as ended since it was deleted; where the Job waits for it to have failed, it
    lets go once pod-gc has made it so (`onlyReplaceFailedPods`)."""
    cluster = json.loads(HELD.read_text())
    (pod,) = (item for item in cluster["items"] if item["metadata"]["name"] == "batch-x")
    uid = pod["metadata"]["ownerReferences"][0]["uid"]
    cluster["items"].append(
        of_kind("Job", "batch", "default", uid=uid, spec={"podReplacementPolicy": "Failed"})
    )
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(cluster))
    act = ("what-if", "taint", "node", "ip-5", OUT_OF_SERVICE)
    assert "held by" not in first_lines(Report("", capsys).ask(*act, dump=str(dump)))
