"""The plan of an upgrade takes the nodes in the order in which its run takes them."""

import pytest

from tests.wild.reports import Report

Capture = pytest.CaptureFixture[str]
WORK = ("--run", "true", "--expect-work", "60s", "--accept-unknown")
PLAN = ("upgrade", "plan", "-l", "pool=blue", *WORK, "-o", "json")


@pytest.mark.parametrize(
    ("number", "flags"),
    [
        ("214", ("--max-unavailable", "3", "--zones", "0")),
        ("216", ("--max-unavailable", "1")),
        ("217", ("--max-unavailable", "3", "--zones", "0")),
    ],
    ids=["214", "216", "217"],
)
def test_a_plan_is_its_run(capsys: Capture, number: str, flags: tuple[str, ...]) -> None:
    """What a drain costs is remembered for as long, whether or not all kinds were read; and nodes
    that a budget holds up come last of those whose verdict is unknown, as of those that are known.
    """
    report = Report("upgrade-20-plan-order", capsys)
    now = ("--now", "2026-01-01T00:00:00Z")
    plan = report.ask(*PLAN, *flags, *now, dump=f"d{number}.json", now=False).document
    planned = sorted((node["times"]["claimed"], node["name"]) for node in plan["nodes"])
    records = report.simulate(f"s{number}.json", "-o", "json").document["records"]
    played = [(r["at"], r["object"]["name"]) for r in records if r["action"] == "ClaimNode"]
    assert [name for _, name in planned] == [name for _, name in sorted(played)]
    begun = played[0][0] - planned[0][0]
    assert all(
        abs(at - begun - told) < 1
        for (told, _), (at, _) in zip(planned, sorted(played), strict=True)
    )
