"""`daemonset` and `rollout` on dumps of simulated clusters, as a user and a script meet them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife import cli
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.objects import write_list

TRACES = Path(__file__).parents[1] / "traces"
KINDS = ("Node", "Pod", "DaemonSet", "ControllerRevision")

Call = Callable[..., str]


def dump_of(trace: str, seconds: float, folder: Path, kinds: tuple[str, ...] = KINDS) -> list[str]:
    """The flags that read a trace's cluster as it was after so many seconds."""
    content = (TRACES / trace / "scenario.yaml").read_bytes()
    setting = assemble(parse_scenario(content, trace))
    settings = make_settings(setting.profile, setting.scenario.flags)
    controllers = make_controllers(settings, setting.scenario.controllers)
    done = run(setting, controllers, until_ns=round(seconds * 1e9))
    items = [encode(obj) for kind in kinds for obj in done.cluster.all(kind)]
    path = write_list(folder / "cluster.json", items)
    return ["-f", path, "--now", format_time(done.end_ns), "--profile", setting.profile.name]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line; its output. `code`: the exit code that is expected."""

    def run_it(*words: str, code: int = 0) -> str:
        assert cli.main(list(words)) == code
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    return run_it


@pytest.fixture
def lost(tmp_path: Path) -> list[str]:
    """A node is lost, and an update has begun."""
    return dump_of("daemonset-on-lost-node", 30, tmp_path)


def test_the_counts_and_what_is_odd(call: Call, lost: list[str]) -> None:
    one = call("daemonset", "agent", *lost)
    assert "It is not as it should be: an update does not end: agent-" in one
    answer, table = call("daemonset", *lost).split("\n\n", 1)
    assert answer.startswith("1 of 1 DaemonSet is not as it should be; the first is ")
    header, row, *rest = table.splitlines()
    assert header.split()[:7] == [
        *("NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "MISSCHEDULED")
    ]
    assert row.split()[:7] == ["agent", "3", "3", "3", "0", "3", "1"]
    assert "an update does not end: agent-" in row
    assert "Misscheduled on a1 (node.kubernetes.io/unreachable:NoSchedule)" in one
    assert "4 nodes have a pod of another revision" in one and rest


def test_all_namespaces_and_names(call: Call, lost: list[str]) -> None:
    assert call("daemonset", "-A", "-o", "name", *lost) == "daemonset.apps/agent\n"
    assert call("daemonset", "-A", *lost).split("\n\n")[1].startswith("NAMESPACE ")
    assert call("daemonset", "-n", "elsewhere", *lost) == ""


def test_the_document(call: Call, lost: list[str]) -> None:
    document = json.loads(call("daemonset", "agent", "-o", "json", *lost))
    assert (document["apiVersion"], document["kind"]) == (
        "nodelife.dev/v1alpha1",
        "DaemonSetSummaryList",
    )
    (item,) = document["items"]
    assert item["counted"]["desiredNumberScheduled"] == 3
    assert item["counted"] == item["reported"]
    assert document == yaml.safe_load(call("daemonset", "agent", "-o", "yaml", *lost))


def test_the_truth_table_names_the_rule(call: Call, lost: list[str]) -> None:
    document = json.loads(call("daemonset", "agent", "--nodes", "-o", "json", *lost))
    rows = {row["node"]: row for row in document["nodes"]}
    assert {name: row["shouldRun"] for name, row in rows.items()} == {
        "a1": False,
        "a2": True,
        "a3": True,
        "a4": True,
    }
    a1 = rows["a1"]
    assert (a1["rule"], a1["subject"], a1["shouldContinue"]) == (
        "Taint",
        "node.kubernetes.io/unreachable:NoSchedule",
        True,
    )
    assert a1["next"] == "wait until the terminating pod is gone"
    assert a1["has"][0]["trouble"] == "terminating, and its node is not Ready"
    assert rows["a2"]["rule"] == "Fits"
    assert rows["a2"]["next"] == "wait for its turn in the update, which a1 holds up"


def test_the_truth_table_tells_of_selectors(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-follows-nodes", 24.8, tmp_path)
    document = json.loads(call("daemonset", "gpu", "--nodes", "-o", "json", *flags))
    rules = {row["node"]: (row["rule"], row["because"]) for row in document["nodes"]}
    assert rules["a1"] == ("Taint", "its taint evict=1:NoExecute is not tolerated")
    assert rules["a2"] == (
        "NodeSelector",
        "the template's nodeSelector wants gpu=yes, the node has gpu=no",
    )
    assert rules["a3"][1] == "the template's nodeSelector wants gpu=yes, it is not set"


def test_rollout_status_says_who_eats_the_budget(call: Call, lost: list[str]) -> None:
    shown = call("daemonset", "status", "daemonset", "agent", *lost)
    assert shown.startswith(
        'Waiting for daemon set "agent" rollout to finish: 0 out of 3 new pods have been updated'
    )
    assert "waits: 1 of maxUnavailable 1 in use: by a1" in shown
    assert "about" not in shown  # the only node in the way will not come free by itself
    document = json.loads(call("daemonset", "status", "ds/agent", "-o", "json", *lost))
    assert document["budget"] == {"desired": 3, "maxUnavailable": 1, "maxSurge": 0, "used": 1}
    assert document["budgetUsedBy"][0]["stuck"] is True
    assert document["estimate"] is None
    assert document["done"] is False


def test_rollout_status_estimates_what_is_left(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-rolling-update", 31, tmp_path)
    document = json.loads(call("daemonset", "status", "ds", "agent", "-o", "json", *flags))
    assert document["nodesWithOldPods"] == 3
    estimate = document["estimate"]
    assert estimate["lowSeconds"] <= 3.6 <= estimate["highSeconds"]  # it was over 3.6 s later
    shown = call("daemonset", "status", "ds", "agent", *flags)
    assert "about 2s to 4s more: 2 rounds of 2" in shown


def test_rollout_status_at_the_end(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-rollback", 23, tmp_path)
    shown = call("daemonset", "status", "daemonset/agent", *flags)
    assert shown == 'daemon set "agent" successfully rolled out\n'


def test_rollout_history_tells_what_changed(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-rollback", 30, tmp_path)
    rows = [line.split() for line in call("daemonset", "history", "ds/agent", *flags).splitlines()]
    assert rows[2][0] == "REVISION"
    assert rows[3][0] == "2"
    assert rows[4][:2] == ["3", "(current)"]  # the rollback renumbered revision 1
    change = "spec.containers[c].image: registry.example/agent:2 -> registry.example/agent:1"
    assert " ".join(rows[4]).endswith(change)
    one = call("daemonset", "history", "ds/agent", "--revision", "2", *flags)
    assert one.startswith("daemonset.apps/agent with revision #2\n")
    assert "Image:\tregistry.example/agent:2" in one
    names = call("daemonset", "history", "ds/agent", "-o", "name", *flags).splitlines()
    assert all(name.startswith("controllerrevision.apps/agent-") for name in names)


def test_rollout_undo_shows_the_very_patch(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-rollback", 20, tmp_path)
    document = json.loads(call("daemonset", "undo", "ds/agent", "-o", "json", *flags))
    assert document["dryRun"] is True
    assert document["toRevision"] == 1
    template: dict[str, Any] = document["patch"]["spec"]["template"]
    assert template["$patch"] == "replace"
    assert template["spec"]["containers"][0]["image"] == "registry.example/agent:1"
    assert document["effects"] == [
        "revision 1 is renumbered to 3; the number 1 is gone",
        "3 pods to be replaced, 0 with that revision already",
    ]
    shown = call("daemonset", "undo", "ds/agent", "--to-revision", "2", *flags)
    assert shown == (
        "daemonset.apps/agent skipped rollback (current template already matches revision 2)"
        " (dry run)\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("daemonset", "agnt"), 1, "not found; did you mean default/agent?"),
        (("daemonset", "nope"), 1, '"default/nope" not found; check the name'),
        (("daemonset", "agent", "-n", "x"), 1, "it is in namespace default: use -n"),
        (("daemonset", "--nodes", "-o", "json"), 2, "is about one set with -o json; name the set"),
        (("daemonset", "status", "deploy/agent"), 2, "unclear from 'deploy/agent'"),
        (("daemonset", "undo", "ds/agent", "--to-revision", "9"), 1, "find specified revision 9"),
        (("daemonset", "history", "ds/agent", "--revision", "9"), 1, "find the specified revision"),
        (("daemonset", "history", "ds/agent", "--revision", "-1"), 2, "must be a positive number"),
    ],
)
def test_what_cannot_be_answered(
    words: tuple[str, ...], code: int, line: str, call: Call, lost: list[str]
) -> None:
    assert line in call(*words, *lost, code=code)


def test_a_dump_without_sets_says_what_to_add(call: Call, tmp_path: Path) -> None:
    flags = dump_of("daemonset-on-lost-node", 10, tmp_path, ("Node", "Pod"))
    said = call("daemonset", "agent", *flags, code=1)
    assert 'error: daemonsets.apps "agent" not found; no DaemonSets were read: add what' in said


def test_what_was_not_read_is_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = dump_of("daemonset-on-lost-node", 10, tmp_path, ("Node", "DaemonSet"))
    assert cli.main(["daemonset", "-A", "-o", "json", *flags]) == 0
    shown = capsys.readouterr()
    assert "no Pods were read" in shown.err
    (item,) = json.loads(shown.out)["items"]
    assert item["counted"] is None
    assert item["odd"] == ["no pods were read: only reported counts"]


def test_pods_without_revisions_are_told_by_their_generation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = dump_of("daemonset-on-lost-node", 30, tmp_path, ("Node", "DaemonSet", "Pod"))
    assert cli.main(["daemonset", "-A", "-o", "json", *flags]) == 0
    shown = capsys.readouterr()
    assert "no ControllerRevisions were read" in shown.err
    (item,) = json.loads(shown.out)["items"]
    assert item["counted"]["updatedNumberScheduled"] == 0
