"""`start --dry-run`: the leader's sentences of a run of each work mode, played to its end."""

from typing import Any

import pytest

from kubectl_nodelife.commands.upgrade.start import show_course
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.report import terminal
from kubectl_nodelife.sim.upgrade_course import PlayedRun
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests.drain.build import namespace, replica_set, snapshot
from tests.objects import manifest
from tests.upgrade.test_plan import SETTINGS, blue

JOB = manifest(
    "Job", "work", spec={"template": {"spec": {"containers": [{"name": "c", "image": "tool"}]}}}
)
WORK_NS = 4 * MINUTE_NS


def played(**policy: Any) -> PlayedRun:
    objects = [blue("a1", "a2", "b1", "b2"), replica_set("web", "a1", "a2", "a2")]
    made = snapshot(namespace(), namespace("nodelife"), *objects)
    given = {"nodes": ["a1", "a2"], "maxUnavailable": 1, "expectWork": "4m"}
    given |= {"work": {"mode": "run", "command": "true"}, **policy}
    return make_upgrade_plan(made, policy_from(given), SETTINGS).course


def lines(course: PlayedRun, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], int]:
    """What is said of the course, without the times, and the exit code."""
    code = show_course(course)
    terminal.flush()
    said = capsys.readouterr().out.splitlines()
    return [line.partition(" ")[2] for line in said if line], code


MODES: dict[str, tuple[dict[str, Any], str]] = {
    "run": ({"target": ["bootID=changed"]}, "work begins (--run)"),
    "run without a target": ({}, "work begins (--run)"),
    "job": ({"work": {"mode": "job", "manifest": JOB}}, "Job created"),
    "wait for a condition": (
        {"work": {"mode": "wait"}, "target": ["condition:Patched=True"]},
        "now Working",
    ),
    "wait for a label": ({"work": {"mode": "wait"}, "target": ["label:p=yes"]}, "now Working"),
    "replace": ({"work": {"mode": "replace"}}, "now Working"),
    "replace by a command": (
        {"work": {"mode": "replace", "command": "true"}},
        "work begins (--replace)",
    ),
    "nothing": ({"work": {"mode": "nothing"}}, "now Settling"),
}


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_ends_after_the_expected_time(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, begins = MODES[mode]
    course = played(**policy)
    said, code = lines(course, capsys)
    assert code == 0 and "(dry run) the run: now Finished: 2 done" in said, said[-3:]
    assert all(line.startswith("(dry run) ") for line in said)
    assert sum(begins in line for line in said) == 2, said
    assert sum("now Draining" in line for line in said) == 2
    assert sum("now Done" in line for line in said) == 2, said
    works_ns = 0 if mode == "nothing" else 2 * WORK_NS
    assert works_ns < course.end_ns < works_ns + 25 * MINUTE_NS


def test_each_pod_of_the_nodes_is_evicted_in_its_turn(capsys: pytest.CaptureFixture[str]) -> None:
    said, _ = lines(played(), capsys)
    assert sum(": evicted" in line for line in said) >= 3, said


def test_a_run_that_would_pause_after_failures_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said, code = lines(played(returnTimeout="30s", readyFor="60s"), capsys)
    assert code == 1 and any("now Failed" in line for line in said), said


def test_a_run_that_never_claims_a_node_says_what_holds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = PlayedRun(held={"a1": ClaimHold("pool blue", "1 of 3 is unavailable already")})
    code = show_course(course)
    terminal.flush()
    assert code == 1, "it is not over"
    said = capsys.readouterr().err
    assert "node a1 is never claimed: 1 of 3 is unavailable already" in said
