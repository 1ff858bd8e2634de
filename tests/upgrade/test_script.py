"""`upgrade plan -o commands` as a program: shellcheck reads it, and a kubectl that notes is run."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube import value_checks
from kubectl_nodelife.report.upgrade_script import script
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from kubectl_nodelife.upgrade.plan_values import UpgradePlan
from tests.drain.build import budget, namespace, node, replica_set, snapshot, stateful_set
from tests.drain.test_script import ScriptRun, run, shellcheck

NAMES = ["a1", "a2", "a3", "b1", "b2", "b3"]


def quickly(text: str, folder: Path, **environment: str) -> ScriptRun:
    """Run the script with a `sleep` that does not."""
    sleep = folder / "sleep"
    sleep.write_text("#!/bin/sh\n")
    sleep.chmod(0o755)
    return run(text, folder, **environment)


def plan(*objects: Any, names: list[str] = NAMES, **policy: Any) -> UpgradePlan:
    made = [obj for name in names for obj in node(name, zone=name[0])]
    found = snapshot(namespace(), namespace("nodelife"), made, *objects)
    work = {"work": {"mode": "run", "command": 'echo "work $NODE" >> "$NOTES"'}}
    given = {"maxUnavailable": 2, "zones": 0, **work, "nodes": list(names), **policy}
    return make_upgrade_plan(found, policy_from(given), make_settings("v1.36"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no wheel of shellcheck is locked there")
def test_shellcheck_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "is_dns_subdomain", lambda name: True)
    hostile = ["a'1; rm -rf x", "a c", "a2", "a3"]
    command = {"mode": "run", "command": "echo 'it'\"s\"; exit 1"}
    for made in (
        plan(),
        plan(names=hostile, work=command),
        plan(work={"mode": "nothing"}),
        plan(work={"mode": "wait"}, target=["bootID=changed"]),
        plan(minAvailable="100%"),
    ):
        assert shellcheck(script(made, ["--context=a b"])) == ""


def test_each_node_is_cordoned_drained_worked_on_and_taken_back(tmp_path: Path) -> None:
    made = plan(names=["a1", "a2", "a3"])
    done = quickly(script(made, ["--context=x"]), tmp_path)
    assert done.code == 0, done.err
    first = [line for line in done.commands if "a1" in line]
    assert first == [
        "--context=x cordon -- a1",
        "--context=x drain --ignore-daemonsets --timeout=15m0s -- a1",
        "work a1",
        "--context=x wait --for=condition=Ready node/a1 --timeout=900s",
        "--context=x wait --for=condition=Ready node/a1 --timeout=0s",
        "--context=x uncordon -- a1",
    ]
    back = done.commands.index("--context=x uncordon -- a1")
    assert all("a2" not in line and "a3" not in line for line in done.commands[:back]), "a canary"


def test_never_more_at_once_than_the_plan(tmp_path: Path) -> None:
    done = quickly(script(plan()), tmp_path)
    assert done.code == 0, done.err
    out, most = 0, 0
    for line in done.commands:
        out += line.startswith("cordon") - line.startswith("uncordon")
        most = max(most, out)
    assert most == 2 and sum(line.startswith("uncordon") for line in done.commands) == 6


def test_it_stops_at_the_first_failure_and_goes_on_where_it_was(tmp_path: Path) -> None:
    made = plan()
    failed = quickly(script(made), tmp_path, FAIL="drain")
    assert failed.code == 1 and "in step 0" in failed.err
    assert not any(line.startswith(("work", "uncordon")) for line in failed.commands)
    later = quickly(script(made), tmp_path, FROM="1")
    first = made.course.steps[0].names[0]
    assert later.code == 0 and not any(first in line for line in later.commands)


def test_work_that_is_not_a_command_must_be_put_in(tmp_path: Path) -> None:
    done = quickly(script(plan(work={"mode": "wait"}, target=["bootID=changed"])), tmp_path)
    assert done.code == 1 and "put here what is done to" in done.err


def test_what_is_not_done_is_a_comment(tmp_path: Path) -> None:
    db = budget("db", "db", healthy=1, desired=1, expected=1, minAvailable=1)
    text = script(plan(stateful_set("db", "b3"), replica_set("web", "a1"), db))
    assert "# skip: node b3: drain: never: pod default/db-0" in text
    nothing = quickly(script(plan(minAvailable="100%")), tmp_path)
    assert nothing.code == 1 and nothing.commands == []
