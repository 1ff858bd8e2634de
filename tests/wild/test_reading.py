"""A field that decides nothing refuses no file, and what was not read is not absent."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests import objects
from tests.objects import pod

Capture = pytest.CaptureFixture[str]
NOW = ("--now", "2026-09-20T12:00:00Z")
WILD = Path(__file__).parent


def written(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def listed(*items: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


POD = pod("p", "w1", namespace="d", ready=True, uid="")


def workload(kind: str, created: Any) -> dict[str, Any]:
    made = objects.workload(kind, "a", namespace="d")
    made["spec"]["template"]["metadata"]["creationTimestamp"] = created
    return made


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"])
def test_a_template_that_was_created_null_is_read(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    dump = written(tmp_path, "dump.json", listed(POD, workload(kind, "null")))
    assert main(["audit", "-A", "-f", dump, *NOW]) == 0
    assert "cannot be read" not in capsys.readouterr().err


def test_a_field_that_decides_nothing_is_left_out_with_a_warning(
    tmp_path: Path, capsys: Capture
) -> None:
    condition = {"type": "Ready", "status": "True", "lastProbeTime": "never"}
    dump = written(tmp_path, "dump.json", listed({**POD, "status": {"conditions": [condition]}}))
    assert main(["audit", "-A", "-f", dump, *NOW]) == 0
    err = capsys.readouterr().err
    assert err.count("Pod d/p: status.conditions[0].lastProbeTime is 'never'") == 1


def test_one_that_decides_is_not(tmp_path: Path, capsys: Capture) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "never"}
    dump = written(tmp_path, "dump.json", listed({**POD, "status": {"conditions": [condition]}}))
    assert main(["audit", "-A", "-f", dump, *NOW]) == 2
    assert "lastTransitionTime" in capsys.readouterr().err


def pods_and(folder: Path, *nodes: str) -> tuple[str, ...]:
    """The pods of a report, and single nodes of it, each in a file of its own."""
    report = WILD / "node-02-noexecute-never-came" / "noexecute-but-not-evicted-1.34.json"
    items = json.loads(report.read_text())["items"]
    pods = written(folder, "pods.json", listed(*(o for o in items if o["kind"] == "Pod")))
    named = {o["metadata"]["name"]: o for o in items if o["kind"] == "Node"}
    files = [pods, *(written(folder, f"{name}.json", named[name]) for name in nodes)]
    return tuple(word for file in files for word in ("-f", file))


@pytest.mark.parametrize("nodes", [(), ("infra-1",)])
def test_a_node_of_which_nothing_was_read_may_exist(
    tmp_path: Path, capsys: Capture, nodes: tuple[str, ...]
) -> None:
    files = pods_and(tmp_path, *nodes)
    main(["audit", "-A", *files, *NOW])
    said = capsys.readouterr()
    assert "does not exist" not in said.out and "no list of nodes was read" in said.err
    main(["explain", "pod", "auth-0", *files, *NOW])
    assert "no such node" not in capsys.readouterr().out.lower()


def test_a_bundle_without_nodes_loses_no_pod(tmp_path: Path, capsys: Capture) -> None:
    main(["simulate", *pods_and(tmp_path), "--until", "5m"])
    said = capsys.readouterr()
    assert said.out.startswith("Nothing happened.") and "no list of nodes was read" in said.err
