"""Clocks that are wrong: the moment of a dump is what most of them agree on (kubernetes#113081)."""

import pytest

from tests.wild.reports import Report, first_lines

Capture = pytest.CaptureFixture[str]
FOLDER = "node-09-kubelet-clock-wrong"


@pytest.fixture
def report(capsys: Capture) -> Report:
    return Report(FOLDER, capsys)


AHEAD = "one-minute-ahead.json"


def test_one_clock_ahead_makes_no_other_node_late(report: Report) -> None:
    told = report.ask("status", dump=AHEAD, now=False)
    assert first_lines(told).startswith(
        "None of 7 nodes is in trouble; w-ahead: its clock is 58s ahead of the others."
    )
    moment = report.ask("status", "-o", "json", dump=AHEAD, now=False).document["moment"]["time"]
    assert "2026-09-20T11:59:5" in moment or "2026-09-20T12:00:0" in moment
    assert "nothing that was due is undone" in report.ask("diverge", dump=AHEAD, now=False).out
    assert "6 pods are consistent" in report.ask("audit", "-A", dump=AHEAD, now=False).out
    assert report.simulate(AHEAD, "--until", "3m").out.startswith("Nothing happened.")


def test_a_clock_behind_cannot_be_told_from_a_controller_that_does_not_act(report: Report) -> None:
    for now in (True, False):
        told = report.ask("explain", "node", "w-behind", dump="first.json", now=now)
        assert "one look cannot tell" in first_lines(told) and "overdue" not in told.out
        told = report.ask("diverge", dump="first.json", now=now)
        assert told.out.startswith("agrees") and "stalled" not in told.out
        told = report.ask("status", dump="first.json", now=now)
        assert "overdue" not in told.out
        said = "1 of 4 nodes may be in trouble; the worst is w-behind: silent: its last sign of"
        assert told.out.startswith(said) and "one look cannot tell" in told.out.splitlines()[0]
        told = report.ask("explain", "node", "w-ok", dump="first.json", now=now)
        assert told.out.startswith("Node w-ok is healthy")


def test_ages_are_measured_against_the_moment_alone(report: Report) -> None:
    told = report.ask("status", "w-ahead", "-o", "json", dump="first.json")
    (node,) = told.document["nodes"]
    assert node["leaseAgeSeconds"] == 0 and "clock is 29m ahead" in node["verdict"]["because"]
