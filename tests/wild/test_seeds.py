"""Random scenarios and dumps in which a rule of an old release decides."""

from typing import Any

import pytest

from tests.wild.reports import Report, first_lines

Capture = pytest.CaptureFixture[str]


def evictions(capsys: Capture, scenario: str) -> list[tuple[str, str, bool, float]]:
    """(action, pod, refused, seconds) of the node lifecycle controller's writes about pods."""
    told = Report("seeds", capsys).simulate(f"{scenario}.yaml", "-o", "json").document
    return [
        (r["action"], r["object"]["name"], bool(r.get("error")), round(r["at"] - 310.1, 3))
        for r in told["records"]
        if r["action"] in ("SetPodReason", "DeletePod")
    ]


def test_a_deletion_that_fails_ends_the_turn_of_its_node(capsys: Capture) -> None:
    """`DeletePods` returns the error; the queue's next token, ten seconds later, tries again."""
    assert evictions(capsys, "C024") == [
        ("SetPodReason", "p", False, 0.0),
        ("DeletePod", "p", True, 0.0),
        ("DeletePod", "p", False, 10.0),
        ("SetPodReason", "q", False, 10.0),
        ("DeletePod", "q", False, 10.0),
    ]


def test_a_pod_whose_reason_meets_a_conflict_is_passed_by(capsys: Capture) -> None:
    assert evictions(capsys, "C024b") == [
        ("SetPodReason", "p", True, 0.0),
        ("SetPodReason", "q", False, 0.0),
        ("DeletePod", "q", False, 0.0),
        ("SetPodReason", "p", False, 10.0),
        ("DeletePod", "p", False, 10.0),
    ]


def test_any_other_failure_to_set_a_reason_is_ignored(capsys: Capture) -> None:
    assert evictions(capsys, "C024c") == [
        ("SetPodReason", "p", True, 0.0),
        ("DeletePod", "p", False, 0.0),
        ("SetPodReason", "q", False, 0.0),
        ("DeletePod", "q", False, 0.0),
    ]


def asked(capsys: Capture, profile: str, *words: str) -> Any:
    return Report("seeds", capsys).ask(*words, "--profile", profile, dump="h3.json", now=False)


def test_a_lost_master_by_name_waits_for_its_taint_and_does_not_count(capsys: Capture) -> None:
    """`isNodeExcludedFromDisruptionChecks`, with IsMasterNode to v1.18: zones do not count it, and
    its own taints come all the same."""
    due = "overdue since 2020-05-09T18:15:10Z (4m50s)"
    why = "kube-master does not count in the zone's statistics (1 of its 3 nodes): its name is a"
    for profile, counted, lost in (("v1.16", 2, 0), ("v1.26", 3, 1)):
        told = asked(capsys, profile, "status", "-o", "json").document
        (zone,) = told["zones"]
        assert (zone["state"], zone["nodes"], zone["notReady"]) == ("Normal", counted, lost)
        assert due in first_lines(asked(capsys, profile, "status"))
        told = asked(capsys, profile, "explain", "node", "kube-master").out
        assert due in told and (why in told) == (counted == 2)
    lost_too = asked(capsys, "v1.16", "explain", "node", "a1").out
    assert "Losing this node leaves it at 0.1/s: 1 of 2 not ready" in lost_too


def of_pods(capsys: Capture, scenario: str, *actions: str) -> list[tuple[float, str, str, str]]:
    """(seconds, action, condition or reason, status) of these actions about pods."""
    told = Report("seeds", capsys).simulate(f"{scenario}.yaml", "-o", "json").document
    chosen = [r for r in told["records"] if r["object"]["kind"] == "Pod" and r["action"] in actions]
    about = "reason" if "RecordEvent" in actions else "type"
    return [
        (r["at"], r["action"], r["detail"].get(about, ""), r["detail"].get("status", ""))
        for r in chosen
    ]


def test_a_readiness_gate_that_opens_is_seen_at_once(capsys: Capture) -> None:
    """`NeedToReconcilePodReadiness`: a patch of the gate's condition syncs the pod."""
    assert of_pods(capsys, "G039", "SetPodCondition") == [
        (13.0, "SetPodCondition", "Ready", "True")
    ]


def test_a_pod_whose_gate_has_no_condition_is_not_ready(capsys: Capture) -> None:
    assert of_pods(capsys, "G039b", "SetPodCondition") == [
        (15.0, "SetPodCondition", "Initialized", "True"),
        (15.0, "SetPodCondition", "Ready", "False"),
        (15.0, "SetPodCondition", "ContainersReady", "True"),
        (15.0, "SetPodCondition", "PodScheduled", "True"),
    ]


def test_a_status_that_could_not_be_sent_goes_with_a_later_batch(capsys: Capture) -> None:
    """`syncBatch`, each ten seconds: a deletion (G042) and a patch (G043) that fail."""
    assert [a for a in of_pods(capsys, "G042", "DeletePod", "RecordEvent") if a[0] > 15] == [
        (20.0, "RecordEvent", "StatusSendFailed", ""),
        (30.0, "RecordEvent", "StatusSendFailed", ""),
        (40.0, "DeletePod", "", ""),
    ]
    assert {a[0] for a in of_pods(capsys, "G043", "SetPodCondition")} == {50.0}


def test_a_daemon_set_of_the_old_group_waits_for_its_pods_to_be_deleted(capsys: Capture) -> None:
    """`SetDefaults_DaemonSet` of extensions/v1beta1: updateStrategy OnDelete."""
    assert {a[0] for a in of_pods(capsys, "F062", "CreatePod")} == {0.0}
    assert of_pods(capsys, "F062", "DeletePod") == []
