"""Enforcing on a bare etcd and kube-apiserver, under the role that `rbac --mode enforce` prints."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.control_plane import Api, ControlPlane, control_plane, until
from tests.real.enforcing import CONTROLLERS, Enforcer, enforcer, least_privilege

STOPPED = f"--assume-stopped={','.join(CONTROLLERS)}"
RESTART = (STOPPED, "--begin=restart", "--caps=upstream")
SETS = "/apis/apps/v1/namespaces/default/daemonsets"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubectl-nodelife-enforce"
STOP = "/api/v1/namespaces/kube-system/configmaps"
DAEMON_SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "containers": [
                    {"name": "c", "image": "registry.example/i", "args": ["a && b < c\u2028"]}
                ]
            },
        },
    },
}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with control_plane() as plane:
        for name in ("n1", "n2"):
            plane.api.create("/api/v1/nodes", {"metadata": {"name": name}})
        yield plane


def pods(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(PODS)["items"]
    return found


def test_a_bare_control_plane_gets_its_daemon_pods_and_the_lease_is_released(
    plane: ControlPlane,
) -> None:
    plane.api.create(SETS, DAEMON_SET)
    with enforcer(plane, *RESTART) as one:
        assert re.fullmatch(
            r"enforcing node-lifecycle,taint-eviction,pod-gc,daemonset since "
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\n",
            one._out.read_text(),
        )
        # a node without a kubelet keeps admission's not-ready taint, which daemon pods tolerate
        made = until(lambda: len(found := pods(plane.api)) == 2 and found)
        assert {p["metadata"]["generateName"] for p in made} == {"d-"}
        managers = {m["manager"] for p in made for m in p["metadata"]["managedFields"]}
        assert managers == {"kubectl-nodelife-daemonset"}
        revisions = plane.api.get("/apis/apps/v1/namespaces/default/controllerrevisions")["items"]
        assert [r["revision"] for r in revisions] == [1]
        assert plane.api.get(LEASE)["spec"]["holderIdentity"]
        assert one.stop() == 0
    assert plane.api.get(LEASE)["spec"]["holderIdentity"] == ""
    assert len(pods(plane.api)) == 2, "the cluster is left as it is"


def test_a_second_enforcer_and_another_cluster_are_refused_in_one_line(
    plane: ControlPlane,
) -> None:
    with enforcer(plane, *RESTART):
        kubeconfig = least_privilege(plane)
        other = Enforcer(kubeconfig, plane.folder / "other", *RESTART)
        other.start(wait=False)
        assert other.process is not None and other.process.wait(60) == 5
        assert "holds it" in other.log().splitlines()[-1]


def test_the_kill_switch_stops_every_writer(plane: ControlPlane) -> None:
    with enforcer(plane, *RESTART) as one:
        plane.api.create(STOP, {"metadata": {"name": "nodelife-stop", "namespace": "kube-system"}})
        time.sleep(5)
        plane.api.create(SETS, DAEMON_SET)
        time.sleep(3)
        assert pods(plane.api) == [], "no write while it is there"
        plane.api.delete(f"{STOP}/nodelife-stop")
        until(lambda: len(pods(plane.api)) == 2)
        assert one.stop() == 0
    plane.api.create(STOP, {"metadata": {"name": "nodelife-stop", "namespace": "kube-system"}})
    refused = Enforcer(least_privilege(plane), plane.folder / "refused", *RESTART)
    refused.start(wait=False)
    assert refused.process is not None and refused.process.wait(60) == 5
    assert "nodelife-stop" in refused.log().splitlines()[-1]


def test_paused_nothing_is_written(plane: ControlPlane) -> None:
    with enforcer(plane, *RESTART) as one:
        assert one.run("daemon", "pause").returncode == 0
        plane.api.create(SETS, DAEMON_SET)
        time.sleep(4)
        assert pods(plane.api) == []
        assert one.run("daemon", "resume").returncode == 0
        until(lambda: len(pods(plane.api)) == 2)


def test_kill_9_doubles_nothing(plane: ControlPlane) -> None:
    plane.api.create(SETS, DAEMON_SET)
    with enforcer(plane, *RESTART) as one:
        until(lambda: len(pods(plane.api)) >= 1)
        one.kill()
        one.start()
        until(lambda: len(pods(plane.api)) == 2)
        time.sleep(3)
        assert len(pods(plane.api)) == 2


def test_missing_rights_are_named(plane: ControlPlane) -> None:
    kubeconfig = least_privilege(plane)
    role = plane.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodelife-enforcer")
    for rule in role["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if verb != "delete"]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodelife-enforcer"
    plane.api.call("PUT", path, role)
    one = Enforcer(kubeconfig, plane.folder / "denied", *RESTART)
    one.start(wait=False)
    assert one.process is not None and one.process.wait(60) == 5
    last = one.log().splitlines()[-1]
    assert "delete pods" in last and "rbac --mode enforce" in last
