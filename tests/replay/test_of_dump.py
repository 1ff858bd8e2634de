"""`changes -f` and `replay -f`: a snapshot tells of the past what the cluster told."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.objects import UNREACHABLE, budget, condition, lease, pod, taint
from tests.raw_server import in_a_thread, raw_server
from tests.replay.test_commands import ago, drained, said

Capture = pytest.CaptureFixture[str]
SECRET = "s3cr3t-said-by-a-probe"


def tainted() -> dict[str, Any]:
    node: dict[str, Any] = drained()
    node["spec"]["taints"] = [taint(UNREACHABLE, added=ago(200))]
    lost = condition("Ready", "Unknown", "NodeStatusUnknown", changed=ago(201))
    node["status"]["conditions"] = [lost | {"lastHeartbeatTime": ago(245)}]
    return node


def replacement() -> dict[str, Any]:
    about = {"namespace": "shop", "labels": {"app": "web"}, "created": ago(99)}
    return pod("web-1-bcdfg", "b1", ready=True, since=ago(90), **about)


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster behind the kubeconfig, and a snapshot of it."""
    objects = [
        tainted(),
        replacement(),
        budget(namespace="shop", status={"desiredHealthy": 1}),
        lease("a1", ago(1)),
        lease("kube-controller-manager", ago(150), namespace="kube-system"),
        lease("some-operator", ago(1), namespace="kube-system"),
        said("Pod", "web-1-aaaaa", "Unhealthy", f"probe failed: {SECRET}", "kubelet", 150),
        said("Pod", "web-1-aaaaa", "Killing", "Stopping container c", "kubelet", 100),
        said(
            "ReplicaSet",
            "web-1",
            "SuccessfulCreate",
            "Created pod: web-1-bcdfg",
            "replicaset-controller",
            99,
        ),
        said("Pod", "web-1-bcdfg", "Scheduled", "assigned", "default-scheduler", 98),
    ]
    with in_a_thread(raw_server(objects)) as server:
        monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
        file = str(tmp_path / "snapshot.json")
        assert main(["snapshot", "save", file]) == 0
        yield file


def items(capsys: Capture, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "-o", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["items"]
    return found


def test_a_replay_names_the_same_actors(snapshot: str, capsys: Capture) -> None:
    def told(*words: str) -> list[tuple[str, ...]]:
        lines = items(capsys, "replay", *words)
        return [(i["time"], i["actor"]["name"], i["action"], i["object"]["name"]) for i in lines]

    of_file = told("-f", snapshot)
    assert of_file == told()
    assert "kubectl (a user)" in [who for _, who, action, _ in of_file if action == "Cordon"]


def test_a_drain_is_looked_back_on_alike(snapshot: str, capsys: Capture) -> None:
    capsys.readouterr()
    reviews = []
    for more in ((), ("-f", snapshot)):
        assert main(["replay", "--drain", "a1", "-o", "json", *more]) == 0
        review = json.loads(capsys.readouterr().out)
        del review["source"], review["warnings"]
        reviews.append(review)
    assert reviews[0] == reviews[1]
    (moved,) = reviews[1]["pods"]
    assert (moved["name"], moved["replacement"]) == ("web-1-aaaaa", "web-1-bcdfg")
    assert reviews[1]["cordoned"]["by"] == "kubectl (a user)"
    # From the cordon on: its one pod is all that it needs, also before that pod left.
    assert [b["zeroSeconds"] for b in reviews[1]["budgets"]] == [11]
    assert main(["replay", "--drain", "nowhere", "-f", snapshot]) == 1
    capsys.readouterr()
    assert main(["replay", "--drain", "a1", "-o", "html", "-f", snapshot]) == 2
    assert capsys.readouterr().err == (
        "error: -o html: there is no such page of one drain; use -o markdown\n"
    )


def test_changes_tell_what_was_done_and_by_whom(snapshot: str, capsys: Capture) -> None:
    found = items(capsys, "changes", "-f", snapshot)
    assert [(i["by"]["name"], i["action"]) for i in found] == [
        ("node-lifecycle", "SetNodeCondition"),
        ("node-lifecycle", "AddTaint"),
        ("kubectl (a user)", "Cordon"),
        ("kubelet a1", "Killing"),
        ("replicaset-controller", "SuccessfulCreate"),
        ("scheduler", "Scheduled"),
    ]
    assert {(i["outcome"], i["mode"]) for i in found} == {("confirmed", "observed")}
    assert found[0]["detail"]["status"] == "Unknown"
    assert found[1]["detail"]["key"] == "node.kubernetes.io/unreachable"
    assert found[1]["cause"] == found[0]["id"]


def test_changes_are_narrowed_as_a_daemons(snapshot: str, capsys: Capture) -> None:
    def actions(*words: str) -> list[str]:
        return [i["action"] for i in items(capsys, "changes", *words, "-f", snapshot)]

    assert actions("pod", "web-1-bcdfg", "-n", "shop")[-1] == "Scheduled"
    assert actions("--since", "140s", "node", "a1")[0] == "Cordon"
    assert actions("--outcome", "would") == []
    assert main(["changes", "-w", "-f", snapshot]) == 2
    assert "a dump does not change" in capsys.readouterr().err


def test_the_table_says_by_whom(snapshot: str, capsys: Capture) -> None:
    capsys.readouterr()
    assert main(["changes", "-f", snapshot]) == 0
    answer, table = capsys.readouterr().out.split("\n\n", 1)
    assert answer.startswith("6 changes were seen or planned from ")
    header, *rows = table.splitlines()
    assert header.split()[:4] == ["TIME", "OUTCOME", "BY", "ACTION"]
    (cordon,) = (row for row in rows if "Cordon" in row)
    assert "kubectl (a user)" in cordon


def test_what_a_probe_said_is_in_no_snapshot(snapshot: str) -> None:
    text = Path(snapshot).read_text()
    assert SECRET not in text and "Unhealthy" in text and "Stopping container c" in text


def test_a_node_whose_managers_wrote_nothing_of_it_has_them_all_the_same(
    tmp_path: Path, capsys: Capture
) -> None:
    """Only where managedFields were not dumped it is said how to dump them."""
    node = drained()
    node["spec"] = {}
    node["metadata"]["managedFields"][0]["fieldsV1"] = {"f:status": {}}
    path = tmp_path / "nodes.json"
    for with_fields in (True, False):
        if not with_fields:
            del node["metadata"]["managedFields"]
        path.write_text(json.dumps(node))
        assert main(["changes", "-f", str(path)]) == 0
        assert ("--show-managed-fields" in capsys.readouterr().err) is not with_fields


def test_a_snapshot_tells_whether_the_manager_lived(snapshot: str, capsys: Capture) -> None:
    """Of all Leases of kube-system only the manager's is kept."""
    (found,) = (i for i in items(capsys, "diverge", "-f", snapshot) if i["kind"] == "stalled")
    assert "not renewed for" in found["message"]
    kept = json.loads(Path(snapshot).read_text())["items"]
    names = [i["metadata"]["name"] for i in kept if i["kind"] == "Lease"]
    assert sorted(names) == ["a1", "kube-controller-manager"]
