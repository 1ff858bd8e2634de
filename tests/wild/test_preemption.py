"""Placeholder pods of negative priority keep room for drained pods: one is preempted, once."""

import pytest

from tests.wild.reports import Report

Capture = pytest.CaptureFixture[str]
PLACEHOLDERS = "drain-34-placeholder-pods"


@pytest.fixture
def report(capsys: Capture) -> Report:
    return Report(PLACEHOLDERS, capsys)


@pytest.mark.parametrize("dump", ["cluster.json", "positive.json"], ids=["0 > -10", "1000 > 0"])
def test_a_drain_preempts_one_placeholder(report: Report, dump: str) -> None:
    """Recorded: 6.7 s, of which 5 s are kubectl's wait; afterwards one placeholder is Pending."""
    told = report.ask("what-if", "drain", "a1", "-o", "json", dump=dump, now=False).document
    evicted = {w["name"].split("-")[0]: w for w in told["workloads"]}
    assert evicted["placeholder"]["evicted"] == len(evicted["placeholder"]["pending"]) == 1
    assert evicted["web"]["evicted"] == 2 and evicted["web"]["pending"] == []
    assert evicted["web"]["low"]["backSeconds"] < 6.7 < evicted["web"]["high"]["backSeconds"] < 8


@pytest.mark.parametrize("dump", ["cluster.json", "positive.json"], ids=["0 > -10", "1000 > 0"])
def test_the_plan_of_the_drain_ends(report: Report, dump: str) -> None:
    told = report.ask("drain-plan", "a1", "-o", "json", dump=dump, now=False)
    plan = told.document
    assert plan["verdict"] == "slow"
    (preempted,) = [line for line in plan["warnings"] if "preempt" in line]
    assert preempted.startswith("replacements would preempt 1 pod of a lower priority: default/")
    first, second = sorted(pod["startSeconds"] for wave in plan["waves"] for pod in wave["pods"])
    assert first < 0.5 and 5 < second < 7


def test_the_play_of_the_drain_says_so(report: Report) -> None:
    told = report.simulate("drain.yaml", "-o", "json").document
    records = [(r["detail"].get("reason"), r["at"]) for r in told["records"]]
    assert len([1 for reason, _ in records if reason == "Preempted"]) == 1
    (drained,) = [at for reason, at in records if reason == "Drained"]
    assert 6 < drained - 1 < 9
