"""Evidence over silence: what was not read is said to be unknown, never shown as none or fine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.answers.asking import Ask
from tests.drain.build import NOW, merged, node, pod

OLD = "2025-12-31T22:58:00Z"  # two hours and two minutes before the moment


def posted(at: str) -> dict[str, Any]:
    """A status last posted at that time."""
    return {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}]}


def test_a_node_without_a_lease_and_an_old_status_is_not_healthy(ask: Ask) -> None:
    cluster = [node("old", lease="", status=posted(OLD)), node("young", lease="")]
    entries = ask(cluster, "status", "-o", "json").document["nodes"]
    verdicts = {n["name"]: n["verdict"] for n in entries}
    assert verdicts["old"]["state"] == "silent"
    assert "status was last posted 122m ago" in verdicts["old"]["because"]
    # Nothing is foretold of it: a Lease that nobody has seen may be young.
    assert verdicts["old"]["next"] is None
    assert verdicts["young"]["state"] == "healthy"
    assert ask(cluster, "status", "--exit-code").code == 4


def test_a_status_may_be_as_old_as_a_kubelet_leaves_it(ask: Ask) -> None:
    """Five minutes between two posts, and the grace period on top."""
    for at, state in (("2026-01-01T00:54:10Z", "healthy"), ("2026-01-01T00:54:09Z", "silent")):
        cluster = [node("n", lease="", status=posted(at))]
        answer = ask(cluster, "status", "--now", NOW, "-o", "json").document
        assert answer["nodes"][0]["verdict"]["state"] == state


def test_pods_that_were_not_read_are_unknown(ask: Ask) -> None:
    said = ask([node("a1")], "status", kinds="nodes,leases")
    row = said.out.splitlines()[-1].split()
    assert row[:2] == ["a1", "True"] and row.count("<unknown>") == 2
    document = ask([node("a1")], "status", "-o", "json", kinds="nodes,leases").document
    assert document["nodes"][0]["pods"] == {"total": None, "evicting": None, "terminating": None}
    explained = ask([node("a1")], "explain", "node", "a1", kinds="nodes,leases").out
    assert "Not known: no pods were read." in explained


@pytest.mark.parametrize("verb", [("audit",), ("drain-plan", "a1"), ("repair",)])
def test_without_pods_there_is_no_answer_about_pods(ask: Ask, verb: tuple[str, ...]) -> None:
    said = ask([node("a1")], *verb, kinds="nodes,leases")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: no pods were read") and "kubectl get pods -A" in said.err


def test_a_pod_that_waits_is_not_called_fine(ask: Ask) -> None:
    waiting = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [c]",
            },
            {
                "type": "ContainersReady",
                "status": "False",
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [c]",
            },
        ],
        "containerStatuses": [
            {"name": "c", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        ],
    }
    unbound = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    cluster = [node("a1"), pod("p", "a1", status=waiting), pod("q", "", status=unbound)]
    assert "of these 2 wait (1 ImagePullBackOff, 1 Unschedulable)" in ask(cluster, "audit").out
    document = ask(cluster, "audit", "-o", "json").document
    assert document["waiting"] == {"ImagePullBackOff": 1, "Unschedulable": 1}


@pytest.mark.parametrize("verb", ["audit", "budgets"])
def test_a_misspelt_namespace_is_said_as_kubectl_says_it(ask: Ask, verb: str) -> None:
    said = ask([node("a1"), pod("p", "a1")], verb, "-n", "defualt")
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("No resources found in defualt namespace.\n")


def test_a_release_older_than_all_known_is_said_to_be(ask: Ask) -> None:
    info = {"nodeInfo": {"kubeletVersion": "v1.8.4"}}
    said = ask([node("a1", status=info)], "status", "-o", "json")
    assert "the newest kubelet, v1.8.4, is older than any release known here" in said.err
    assert said.document["profile"] == "v1.11"


def two_files(folder: Path, *nodes: dict[str, Any]) -> list[str]:
    """`-f` for the folder with each node in a file of its own, named in that order."""
    for number, made in enumerate(nodes):
        (folder / f"{number}.json").write_text(json.dumps(made))
    return ["-f", str(folder)]


@pytest.mark.parametrize("versions", [("7", "12"), ("12", "7")])
def test_of_an_object_in_two_files_the_newer_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], versions: tuple[str, str]
) -> None:
    """Whichever file is read last: 12 is newer than 7, and only as a number."""
    made = [
        merged(
            node("a1", lease="")[0],
            {"metadata": {"resourceVersion": v}, "spec": {"unschedulable": v == "12"}},
        )
        for v in versions
    ]
    assert main(["status", "-o", "json", *two_files(tmp_path, *made)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"][0]["unschedulable"] is True
    assert "the newer resourceVersion counts of Node a1, in" in err


def test_two_that_differ_and_nothing_tells_which_is_newer_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = node("a1", lease="")[0]
    assert main(["status", *two_files(tmp_path, one, one)]) == 0
    capsys.readouterr()
    other = merged(one, {"spec": {"unschedulable": True}})
    assert main(["status", *two_files(tmp_path, one, other)]) == 2
    assert "no resourceVersion tells which is newer" in capsys.readouterr().err
