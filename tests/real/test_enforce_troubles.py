"""What goes wrong beside the cluster: each time one clear line, the exit code, and no write."""

import resource
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.enforcing import Enforcer, enforcer, least_privilege
from tests.real.kubelets import Kubelets
from tests.real.test_enforce import DAEMON_SET, LEASE, RESTART, SETS

SILENT = "/api/v1/nodes/silent"
PODS = "/api/v1/namespaces/default/pods"
LOST = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodelife-enforcer"
FAST = ("--set=node-monitor-period=500ms",)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane(scheduler=True) as plane, Kubelets(plane.api) as kubelets:
        kubelets.add_node("n1")
        yield plane


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "daemon"


def refusal(plane: ControlPlane, folder: Path, *flags: str, as_admin: bool = False) -> str:
    """The one line with which a start of the daemon ends; it has written nothing."""
    before = len(written(plane))
    kubeconfig = plane.kubeconfig if as_admin else least_privilege(plane)
    one = Enforcer(kubeconfig, folder, *flags)
    one.start(wait=False)
    assert one.process is not None and one.process.wait(60) == 5, one.log()
    assert len(written(plane)) == before
    (line,) = [line for line in one.log().splitlines() if line.startswith("error: ")]
    assert line == one.log().splitlines()[-1]
    return line


def written(plane: ControlPlane) -> list[dict[str, Any]]:
    """Our writes of anything but our Lease and questions about rights."""
    return [
        entry
        for entry in plane.audit()
        if "nodelife/" in entry.get("userAgent", "")
        and entry["objectRef"]["resource"] not in ("leases", "selfsubjectaccessreviews")
    ]


def taints(plane: ControlPlane) -> list[str]:
    return [t["key"] for t in plane.api.get(SILENT)["spec"].get("taints") or []]


def make_set(plane: ControlPlane, name: str, **more: str) -> str:
    """A DaemonSet, with more labels of its pods; the name of these begins so."""
    labels = {"app": name, **more}
    spec = {**DAEMON_SET["spec"], "selector": {"matchLabels": labels}}
    spec["template"] = {**spec["template"], "metadata": {"labels": labels}}
    plane.api.create(SETS, {**DAEMON_SET, "metadata": {"name": name}, "spec": spec})
    return f"{name}-"


def pods(plane: ControlPlane, prefix: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in plane.api.get(PODS)["items"]]
    return [name for name in names if name.startswith(prefix)]


def test_taints_are_stripped_once_and_no_pause_ends_with_taints_gone(
    plane: ControlPlane, folder: Path
) -> None:
    plane.api.create("/api/v1/nodes", {"metadata": {"name": "silent"}})
    plane.api.merge(SILENT, {"spec": {"taints": [LOST]}})
    with enforcer(plane, *RESTART, *FAST) as one:
        until(lambda: LOST["key"] not in taints(plane))
        assert one.run("daemon", "pause").returncode == 0
        time.sleep(2)  # longer than a monitor period: what follows begins anew
        plane.api.merge(SILENT, {"spec": {"taints": [LOST]}})
        assert one.run("daemon", "resume").returncode == 0
        prefix = make_set(plane, "after-the-pause")
        until(lambda: pods(plane, prefix))
        time.sleep(2)
        assert taints(plane) == [LOST["key"]]
        assert one.stop() == 0
    plane.api.delete(SILENT)


def test_a_full_disk_stops_the_writes_and_nothing_is_lost(plane: ControlPlane) -> None:
    with enforcer(plane, *RESTART, *FAST) as one:
        assert one.process is not None
        (journal,) = one.folder.glob("**/*.writes.db")
        before, unlimited = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (0, unlimited))
        prefix = make_set(plane, "disk")
        said = until(lambda: "journal" in (text := one.run("daemon", "status").stderr) and text)
        assert "cannot be written" in said
        time.sleep(2)
        assert pods(plane, prefix) == [], f"without an intent on disk in {journal}"
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (before, unlimited))
        until(lambda: len(pods(plane, prefix)) == 1)
        assert one.stop() == 0


def test_a_right_that_is_taken_away_opens_the_breaker(plane: ControlPlane) -> None:
    with enforcer(plane, *RESTART, *FAST) as one:
        role = plane.api.get(ROLE)
        without = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]}
            if "pods" in rule["resources"]
            else rule
            for rule in role["rules"]
        ]
        plane.api.merge(ROLE, {"rules": without})
        time.sleep(1)
        prefix = make_set(plane, "right")
        said = until(lambda: "rights" in (text := one.run("daemon", "status").stderr) and text)
        assert "create pods" in said and one.run("daemon", "status").returncode == 1
        assert pods(plane, prefix) == []
        plane.api.merge(ROLE, {"rules": role["rules"]})
        time.sleep(1)
        assert one.run("daemon", "resume").returncode == 0
        plane.api.merge(f"{SETS}/right", {"metadata": {"labels": {"back-off": "ends"}}})
        until(lambda: len(pods(plane, prefix)) == 1)
        assert one.stop() == 0


def test_a_journal_of_another_version_is_refused(plane: ControlPlane, folder: Path) -> None:
    one = Enforcer(least_privilege(plane), folder, *RESTART)
    one.start()
    assert one.stop() == 0
    (journal,) = folder.glob("**/*.writes.db")
    db = sqlite3.connect(journal)
    db.execute("PRAGMA user_version = 99")
    db.close()
    assert "its version is 99" in refusal(plane, folder, *RESTART)


def test_a_lease_namespace_that_is_missing_is_refused(plane: ControlPlane, folder: Path) -> None:
    flags = (*RESTART, "--lease-namespace=nowhere", "--insecure-enforce")
    line = refusal(plane, folder, *flags, as_admin=True)
    assert 'namespaces "nowhere" not found' in line and "--lease-namespace" in line


def test_another_cluster_behind_the_same_address_is_refused(
    plane: ControlPlane, folder: Path
) -> None:
    one = Enforcer(least_privilege(plane), folder, *RESTART)
    one.start()
    assert one.stop() == 0
    (journal,) = folder.glob("**/*.writes.db")
    db = sqlite3.connect(journal)
    db.execute("UPDATE marks SET value = 'of another one' WHERE name = 'kube-system-uid'")
    db.commit()
    db.close()
    assert "another cluster is behind this address" in refusal(plane, folder, *RESTART)


def test_an_unknown_controller_is_refused(plane: ControlPlane, folder: Path) -> None:
    one = Enforcer(plane.kubeconfig, folder)
    done = one.run("daemon", "run", "--enforce=scheduler", "--yes")
    assert done.returncode == 2 and "there is no controller 'scheduler'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_pause_without_a_daemon_says_so(plane: ControlPlane, folder: Path) -> None:
    one = Enforcer(plane.kubeconfig, folder)
    for order in ("pause", "resume"):
        done = one.run("daemon", order)
        assert done.returncode == 3, done
        assert len(done.stderr.splitlines()) == 1 and "no daemon" in done.stderr, done.stderr


def test_a_cap_of_nothing_sends_nothing_and_says_so(plane: ControlPlane) -> None:
    prefix = make_set(plane, "capped", ends="Failed")
    with enforcer(plane, *RESTART[:2], "--cap=daemonset-deletions-per-minute=0") as one:
        (pod,) = until(lambda: pods(plane, prefix))
        because = "no deletions of pods of one DaemonSet are allowed (cap 0)"
        until(lambda: because in one.run("changes", "-o", "json").stdout)
        assert pods(plane, prefix) == [pod]
        assert one.stop() == 0
    assert plane.api.get(LEASE)["spec"]["holderIdentity"] == ""
