"""Random scenarios and dumps in which a rule of an old release decides."""

from __future__ import annotations

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
