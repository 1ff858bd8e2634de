"""Roll-outs that stand still, recorded on a real 1.36.3 control plane."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.wild.reports import FOLDER, Report, Told, first_lines, sections

Capture = pytest.CaptureFixture[str]
Ask = Callable[..., Told]
SURGE, NO_ROOM = "drain-02-surge-hostport", "drain-24-daemon-pod-no-room"
SELECTOR, STALE = "drain-04-admission-node-selector", "drain-09-stale-status"
BROKEN, TAKEN = "drain-10-three-broken-updates", "drain-17-rollout-on-tainted-node"
TWICE = "drain-07-duplicate-revision"


@pytest.fixture
def ask(capsys: Capture) -> Ask:
    def told(folder: str, *words: str, dump: str) -> Told:
        return Report(folder, capsys).ask(*words, dump=dump, now=False)

    return told


def status(ask: Ask, folder: str, name: str, dump: str, *more: str) -> Any:
    return ask(folder, "daemonset", "status", f"ds/{name}", *more, "-o", "json", dump=dump).document


def test_three_broken_updates(ask: Ask) -> None:
    """For a second it goes on; after an hour it is never, and no time is estimated."""
    now = status(ask, BROKEN, "agent", "cluster.json")
    assert now["verdict"] == "goes on" and now["estimate"] is not None
    later = status(ask, BROKEN, "agent", "hour-later.json")
    assert (later["verdict"], later["node"], later["pod"]) == ("never", "a1", "agent-dq862")
    assert later["estimate"] is None and later["budgetUsedBy"][0]["stuck"]
    shown = ask(BROKEN, "daemonset", "status", "ds/agent", dump="hour-later.json").out
    assert "never: agent-dq862 (new revision) on a1 has not been Ready for 60m" in shown
    assert "similar pods needed 2s; it uses up maxUnavailable 1" in shown and "about" not in shown


@pytest.mark.parametrize(
    ("folder", "dump", "odd"),
    [
        (BROKEN, "hour-later.json", "an update does not end: agent-dq862 (new revision) on a1"),
        (TAKEN, "patched.json", "the update deletes agent-j8kcl on a1, and none is made while"),
        (TAKEN, "cluster.json", "misscheduled on a1 (karpenter.sh/disrupted:NoSchedule): an up"),
    ],
    ids=["stands still", "takes a pod for good", "would take one"],
)
def test_what_is_said_first(ask: Ask, folder: str, dump: str, odd: str) -> None:
    """Before which pod is not at work, and which counts do not agree."""
    shown = ask(folder, "daemonset", "agent", "-n", "default", dump=dump).out
    assert f"It is not as it should be: {odd}" in shown.splitlines()[1]
    assert f"the first is default/agent: {odd}" in ask(folder, "daemonset", "-A", dump=dump).out


def test_an_update_that_waits_for_a_person_takes_no_pod(tmp_path: Path, capsys: Capture) -> None:
    """With OnDelete nobody but a person deletes the old pod on the tainted node."""
    cluster = json.loads((FOLDER / TAKEN / "patched.json").read_text())
    (found,) = (item for item in cluster["items"] if item["kind"] == "DaemonSet")
    found["spec"]["updateStrategy"] = {"type": "OnDelete"}
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps(cluster))
    assert main(["daemonset", "agent", "-n", "default", "-f", str(dump)]) == 0
    shown = capsys.readouterr().out
    assert "a pod of another revision, which stays until it is deleted" in shown
    assert "update deletes" not in shown


def test_surge_with_a_host_port(ask: Ask) -> None:
    document = status(ask, SURGE, "edge", "cluster.json")
    assert (document["verdict"], document["node"]) == ("never", "a1")
    assert "the set's own old pod on a1 holds host port 8443" in document["because"]
    assert document["wayOut"] == "set maxSurge to 0 and maxUnavailable to 1"
    table = ask(SURGE, "daemonset", "edge", "--nodes", dump="cluster.json").out
    assert "more than one pod" not in table
    assert "wait for its turn in the update, which a1 holds up" in table
    assert "[NodeAffinity]" not in table
    before = ask(SURGE, "daemonset", "-A", dump="before.json").out
    assert "no update of it can end: maxSurge 1 wants both pods of a node at once" in before


@pytest.mark.parametrize("dump", ["cluster.json", "update.json"])
def test_a_full_node(ask: Ask, dump: str) -> None:
    document = status(ask, NO_ROOM, "agent", dump)
    assert (document["verdict"], document["node"]) == ("never", "a1")
    assert (
        "a1 has room for 4 pods and has 4 (fill-d9c9c9c6d), all of priority 0"
        in (document["because"])
    )
    assert "system-node-critical" in document["wayOut"]


def test_the_pod_itself_says_the_same(ask: Ask) -> None:
    told = ask(NO_ROOM, "explain", "pod", "agent-j478k", dump="cluster.json")
    assert "Its affinity binds it to a1: a1 has room for 4 pods and has 4" in first_lines(told)
    told = ask(NO_ROOM, "explain", "pod", "agent-j478k", "-o", "json", dump="cluster.json")
    sentences = sections(told)["Why is it Pending?"]
    assert [s.split()[0] for s in sentences] == ["Its", "The", "The"]
    assert sentences[1].startswith("The smallest change: ")
    assert sentences[2].startswith("The scheduler says: ")


def test_a_node_selector_of_the_namespace(ask: Ask) -> None:
    document = status(ask, SELECTOR, "logs", "cluster.json", "-n", "logging")
    assert (document["verdict"], document["node"]) == ("never", "a2")
    assert "nodeSelector region=primary is met by no label of a2" in document["because"]
    assert "admission added it (namespace logging: scheduler.alpha" in document["because"]
    words = ("daemonset", "logs", "-n", "logging", "--nodes", "-o", "json")
    rows = {
        row["node"]: row["next"]
        for row in ask(SELECTOR, *words, dump="cluster.json").document["nodes"]
    }
    assert "region=primary is met by no label of a2" in rows["a2"]
    assert "region=primary is met by no label of a3" in rows["a3"] and not rows["a1"]


def test_a_stale_status(ask: Ask) -> None:
    document = status(ask, STALE, "mon", "cluster.json", "-n", "monitoring")
    assert (document["verdict"], document["done"]) == ("slow", False)
    assert "reported available 1, counted 2; the controller has not synced" in document["because"]


def test_an_update_that_takes_a_pod_for_good(ask: Ask) -> None:
    lost = (
        "the update deletes agent-j8kcl on a1, and none is made while"
        " karpenter.sh/disrupted:NoSchedule stands"
    )
    assert status(ask, TAKEN, "agent", "patched.json")["takenForGood"] == [lost]
    table = ask(TAKEN, "daemonset", "agent", "--nodes", "-o", "json", dump="patched.json").document
    (row,) = [row for row in table["nodes"] if row["node"] == "a1"]
    assert row["next"] == lost.replace(" on a1", "")
    done = status(ask, TAKEN, "agent", "after.json")
    assert (done["verdict"], done["takenForGood"]) == ("done", [])


def test_two_revisions_of_one_template(ask: Ask) -> None:
    """kubernetes#111280: all pods are relabelled, and none is replaced."""
    undo = ("daemonset", "undo", "ds/agent", "--to-revision", "1", "--dry-run")
    follows = ask(TWICE, *undo, "-o", "json", dump="before.json").document["follows"]
    assert (follows["replaced"], follows["relabelled"], follows["kept"]) == (0, 3, 0)
    assert follows["revisionsDeleted"] == ["agent-744475444"]
    shown = ask(TWICE, *undo, dump="before.json").out
    assert "agent-restored and agent-744475444 hold the same template" in shown
    odd = "3 pods run registry.example/app:2, and revision 3, whose hash they carry, holds"
    assert odd in ask(TWICE, "daemonset", "status", "ds/agent", dump="cluster.json").out
    assert odd in ask(TWICE, "daemonset", "agent", "--nodes", dump="cluster.json").out
    assert odd not in ask(TWICE, "daemonset", "agent", "--nodes", dump="before.json").out
