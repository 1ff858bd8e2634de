"""What kubectl drain reads first, and was not read, leaves the verdict open."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.objects import workload
from tests.wild.reports import FOLDER, Report

Capture = pytest.CaptureFixture[str]
UNREADABLE = "drain-22-daemonsets-unreadable"
PLAN = ("drain-plan", "a2", "--ignore-daemonsets", "-o", "json")


def test_daemon_sets_that_were_not_read(capsys: Capture) -> None:
    """Recorded with real rights: 'cannot delete daemonsets.apps "agent" is forbidden'."""
    plan = Report(UNREADABLE, capsys).ask(*PLAN, dump="cluster.json", now=False).document
    assert plan["verdict"] == "unknown"
    assert "DaemonSet" in [kind["kind"] for kind in plan["notEvaluated"]]


def test_daemon_sets_that_were_read(tmp_path: Path, capsys: Capture) -> None:
    """The same dump with the set in it: nothing is open."""
    cluster = json.loads((FOLDER / UNREADABLE / "cluster.json").read_text())
    owners = {
        (pod["metadata"]["namespace"], owner["name"], owner["uid"])
        for pod in cluster["items"]
        for owner in pod["metadata"].get("ownerReferences", ())
        if owner["kind"] == "DaemonSet"
    }
    assert owners
    cluster["items"] += [
        workload("DaemonSet", name, namespace=namespace, uid=uid) for namespace, name, uid in owners
    ]
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps(cluster))
    main([*PLAN, "-f", str(dump)])
    plan = json.loads(capsys.readouterr().out)
    assert "DaemonSet" not in [kind["kind"] for kind in plan["notEvaluated"]]
