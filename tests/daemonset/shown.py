"""A DaemonSet and what the real controller makes for it, as a lab's watches show them."""

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node
from tests.objects import of_kind, owner, pod, typed, workload

HASH = "controller-revision-hash"
NODES = ("n1", "n2", "n3")
OWNER = owner("DaemonSet", "agent", "ds", blockOwnerDeletion=True)


def pods(image: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": f"agent:{image}"}]}


def agent(image: int = 1, observed: int = 0, **spec: Any) -> DaemonSet:
    """The set as the API server has it; its generation is the image's number."""
    status = {
        "observedGeneration": observed or image,
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "numberReady": 3,
        "numberAvailable": 3,
        "updatedNumberScheduled": 3 if observed in (0, image) else 0,
    }
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    about = {"namespace": "d", "uid": "ds", "metadata": {"generation": image}, "status": status}
    spec = {"pods": pods(image), "updateStrategy": rolling, **spec}
    return typed(workload("DaemonSet", "agent", **about, **spec))


def revision(image: int, number: int | None = None) -> ControllerRevision:
    """The real controller's revision of that image; its hash is not ours."""
    label = f"real{image}"
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": pods(image)}
    made = of_kind(
        "ControllerRevision",
        f"agent-{label}",
        "d",
        uid=label,
        labels={"app": "agent", HASH: label},
        owners=[OWNER],
        data={"spec": {"template": {**template, "$patch": "replace"}}},
        revision=number or image,
    )
    return typed(made)


def daemon_pod(on: str, image: int = 1, ready: bool = True) -> Pod:
    """The real controller's pod of that image."""
    name = f"agent-{on}-{image}"
    about = {"namespace": "d", "uid": name, "labels": {"app": "agent", HASH: f"real{image}"}}
    return typed(pod(name, on, ready=ready, since=T0, owner=OWNER, **about, **pods(image)))


def going(pod: Pod) -> Pod:
    """The pod as somebody has deleted it."""
    at = Time(T0 + 30 * SECOND)
    meta = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=30)
    return replace(pod, metadata=meta)


async def begin(folder: Path, *objects: KubeObject) -> Lab:
    """A lab whose nodes are well."""
    lab = make_lab(folder)
    await lab.begin(*(node(n) for n in NODES), *(lease(n) for n in NODES), *objects)
    return lab


async def at_rest(folder: Path) -> Lab:
    """The set has a pod of its first revision everywhere."""
    return await begin(folder, agent(), revision(1), *(daemon_pod(n) for n in NODES))


async def acts(lab: Lab) -> Counter[tuple[str, str]]:
    """(action, outcome) of what was told about pods and revisions."""
    told = await lab.told()
    return Counter((a, o) for a, _, o in told if a != "UpdateDaemonSetStatus")


async def which(lab: Lab, action: str, outcome: str) -> list[str]:
    """The objects of such changes."""
    return [name for a, name, o in await lab.told() if (a, o) == (action, outcome)]
