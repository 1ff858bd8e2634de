"""One-off acts on a real API server: `repair` mends, `daemonset undo` equals kubectl's."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_nodelife.kube.times import SECOND_NS, format_time
from tests.acts.program import Ended, nodelife
from tests.objects import manifest
from tests.real.control_plane import ControlPlane, Refused, control_plane, until
from tests.real.test_enforce import STOP

SETS = "/apis/apps/v1/namespaces/default/daemonsets"
PODS = "/api/v1/namespaces/default/pods"
LONG_AGO = format_time(time.time_ns() - 3600 * SECOND_NS)
SWITCH = {"metadata": {"name": "nodelife-stop", "namespace": "kube-system"}}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane(controller_manager=["--controllers=daemonset-controller"]) as plane:
        plane.api.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
        now = format_time(time.time_ns())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": LONG_AGO,
            "lastHeartbeatTime": now,
        }
        plane.api.merge("/api/v1/nodes/n1/status", {"status": {"conditions": [ready]}})
        plane.api.strategic("/api/v1/nodes/n1", {"spec": {"taints": None}})
        yield plane


def ours(plane: ControlPlane, *words: str) -> Ended:
    folder = plane.folder / "acts"
    folder.mkdir(exist_ok=True)
    return asyncio.run(nodelife(str(plane.kubeconfig), str(folder), *words))


def stuck(plane: ControlPlane, name: str) -> str:
    """A pod that bears the mark of a lost node which is back; its path."""
    containers = [{"name": "c", "image": "registry.example/i"}]
    plane.api.create(
        PODS, {"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": containers}}
    )
    words = {"Initialized": "True", "Ready": "False", "ContainersReady": "True"}
    running = {"running": {"startedAt": LONG_AGO}}
    container = {"name": "c", "ready": True, "state": running, "image": "i", "imageID": "i"}
    status = {
        "phase": "Running",
        "containerStatuses": [{**container, "restartCount": 0}],
        "conditions": [
            {"type": type_, "status": word, "lastTransitionTime": LONG_AGO}
            for type_, word in words.items()
        ],
        "hostIP": "10.9.9.9",
    }
    plane.api.merge(f"{PODS}/{name}/status", {"status": status})
    return f"{PODS}/{name}"


def ready(plane: ControlPlane, path: str) -> str:
    conditions = plane.api.get(path)["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


def test_repair_mends_stuck_pods(plane: ControlPlane) -> None:
    paths = [stuck(plane, name) for name in ("one", "two")]
    tried = ours(plane, "repair", "--dry-run=server")
    assert tried.code == 0, tried.err
    assert [ready(plane, path) for path in paths] == ["False", "False"]
    plane.api.create(STOP, SWITCH)
    stopped = ours(plane, "repair", "--yes")
    assert stopped.code == 5 and "nodelife-stop" in stopped.err.splitlines()[-1]
    assert [ready(plane, path) for path in paths] == ["False", "False"]
    plane.api.delete(f"{STOP}/nodelife-stop")
    mended = ours(plane, "repair", "--yes")
    assert mended.code == 0, mended.err
    assert [ready(plane, path) for path in paths] == ["True", "True"]
    assert plane.api.get(paths[0])["status"]["hostIP"] == "10.9.9.9"


def daemon_set(name: str, image: str) -> dict[str, Any]:
    arguments = ["a && b < c", "line\u2028end", "<&>"]
    container = {"name": "c", "image": image, "args": arguments}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {"note": image}},
        "spec": {"containers": [container]},
    }
    return manifest(
        "DaemonSet",
        name,
        "default",
        metadata={"annotations": {"kubernetes.io/change-cause": f"to {image}", "kept": "yes"}},
        spec={"selector": {"matchLabels": {"app": name}}, "template": template},
    )


def observed(plane: ControlPlane, name: str, revisions: int) -> None:
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"

    def found() -> int:
        names = (revision["metadata"]["name"] for revision in plane.api.get(path)["items"])
        return sum(one.startswith(f"{name}-") for one in names)

    until(lambda: found() == revisions, f"{name} has {revisions} revisions")


def comparable(plane: ControlPlane, name: str) -> str:
    """The set as text, less its name and what no two objects have alike."""
    found = plane.api.get(f"{SETS}/{name}")
    meta = found["metadata"]
    for key in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields"):
        meta.pop(key)
    found.pop("status")
    return json.dumps(found).replace(name, "NAME")


@pytest.mark.parametrize("words", [(), ("--to-revision=1",)], ids=["before", "by-number"])
def test_rollout_undo_equals_kubectls(plane: ControlPlane, words: tuple[str, ...]) -> None:
    names = [f"{who}{len(words)}" for who in ("theirs", "mine")]
    for name in names:
        for number in (1, 2):
            wanted = daemon_set(name, f"registry.example/i:{number}")
            try:
                plane.api.create(SETS, wanted)
            except Refused:
                plane.api.merge(f"{SETS}/{name}", wanted)
            observed(plane, name, number)
    theirs, mine = names
    plane.kubectl("rollout", "undo", f"daemonset/{theirs}", *words)
    done = ours(plane, "daemonset", "undo", f"daemonset/{mine}", *words, "--yes")
    assert done.code == 0, done.err
    assert comparable(plane, mine) == comparable(plane, theirs)
    managers = {m["manager"] for m in plane.api.get(f"{SETS}/{mine}")["metadata"]["managedFields"]}
    assert "kubectl-nodelife-rollout" in managers
