"""What `start` says where the run under way has another order."""

from typing import Any

from kubectl_nodelife.acts.upgrade.lease import differences
from kubectl_nodelife.controllers.upgrade.document import RunDocument
from kubectl_nodelife.controllers.upgrade.policy import policy_from, shown_policy

THEIRS = {"selector": "pool=blue", "target": ["bootID=changed"], "gate": "true"}


def told(ours: dict[str, Any], command: str = "reboot") -> str:
    run = policy_from({**THEIRS, "work": {"mode": "run", "command": "reboot"}})
    here = policy_from({**THEIRS, "work": {"mode": "run", "command": command}, **ours})
    return differences(RunDocument(run="r1", spec=shown_policy(run)), here)


def test_what_differs_is_told_with_both_values() -> None:
    assert told({}) == ""
    assert told({"maxUnavailable": 2}) == "maxUnavailable is 10% there, 2 here"
    target = "target is bootID=changed there, osImage=x, bootID=changed here"
    assert told({"target": ["osImage=x", "bootID=changed"]}) == target


def test_commands_are_not_told_but_that_they_differ() -> None:
    assert told({}, command="rm") == "the command or the Job differs"
    assert told({"gate": ""}) == "the command of --gate differs"
