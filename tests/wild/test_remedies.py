"""A remedy is named only where the play of the whole plan is better with it."""

from __future__ import annotations

import pytest

from tests.wild.reports import Report

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("dump", ["cluster.json", "plus-node-b.json"])
def test_a_node_more_does_not_help_where_a_cordoned_domain_counts_as_empty(
    capsys: Capture, dump: str
) -> None:
    """Recorded: with a node like b1 added the drain of b1 is still refused for 25 s."""
    report = Report("drain-05-spread-counts-cordoned", capsys)
    words = ("drain-plan", "a1", "b1", "-o", "json")
    plan = report.ask(*words, dump=dump, now=False).document
    assert plan["verdict"] == "never"
    stuck = [p for wave in plan["waves"] for p in wave["pods"] if p["verdict"] == "never"]
    assert stuck and all(pod["unblock"] is None for pod in stuck)
    assert all("not enough: add a node like b1" in pod["unblockHint"] for pod in stuck)
