"""Makes small clusters of the kinds that operators reported, other than those that they showed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests import objects
from tests.objects import write_list
from tests.wild.reports import NOW, Told

Json = dict[str, Any]
NOON = datetime(2026, 9, 20, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    """A time so long before noon."""
    return f"{NOON - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def node(name: str, *, ready: str = "True", since: float = 86400, **more: Any) -> Json:
    """A node; `taints` and `conditions` as in the API."""
    return objects.node(
        name,
        ready,
        since=ago(since),
        heartbeat=ago(10 if ready != "Unknown" else since + 50),
        created=ago(900_000),
        labels={"kubernetes.io/hostname": name},
        allocatable=objects.ROOM,
        status={"nodeInfo": {"kubeletVersion": "v1.34.1"}},
        **more,
    )


def taint(key: str, effect: str = "NoExecute", *, age: float) -> Json:
    """A taint of that age."""
    return {"key": key, "effect": effect, "timeAdded": ago(age)}


def lease(name: str, age: float = 5) -> Json:
    """The Lease of a kubelet; of `kube-controller-manager` its own."""
    manager = name == "kube-controller-manager"
    return objects.lease(name, ago(age), namespace="kube-system" if manager else "kube-node-lease")


def pod(name: str, on: str, *, owner: str = "ReplicaSet", **more: Any) -> Json:
    """A Ready pod of a workload that is called as the first word of its name."""
    app = name.partition("-")[0]
    since = ago(3000)
    there = [objects.condition(t, changed=since) for t in ("ContainersReady", "PodScheduled")]
    running = {"running": {"startedAt": since}}
    container = {"name": "c", "ready": True, "restartCount": 0, "state": running}
    return objects.pod(
        name,
        on,
        created=ago(3600),
        labels={"app": app},
        owner=objects.owner(owner, app, uid=app),
        ready=True,
        since=since,
        conditions=there,
        status={"containerStatuses": [container]},
        **more,
    )


def tolerated(key: str, seconds: int | None = None) -> Json:
    """A toleration of a NoExecute taint, for ever or for so long."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


class Cluster:
    """A cluster in a file, which is asked about."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], *objects: Json) -> None:
        self._capsys = capsys
        manager = lease("kube-controller-manager", 1)
        self._file = write_list(folder / "cluster.json", [manager, *objects])

    def ask(self, *words: str) -> Told:
        """What a verb says of it at noon."""
        self._capsys.readouterr()
        code = main([*words, "-f", self._file, *NOW])
        return Told(code, *self._capsys.readouterr())
