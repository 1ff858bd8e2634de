"""Real drains: record a cluster's objects, run the real kubectl, and note what it did.

What is noted has the form of the recorded drains in `tests/drains/`, so that the same rule judges
it: evictions and deletions accepted and refused, out of the API server's audit log, with seconds
since kubectl was started.
"""

import errno
import json
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.kinds import KINDS, OPTIONAL_KINDS, find_kind
from tests.real.audited import Write, writes
from tests.real.control_plane import ControlPlane, until
from tests.real.drain_objects import Json, Setup
from tests.real.kubelets import Kubelets

NEVER_STARTS = "3600"
# Nobody decides anything by an Event, and a busy cluster has thousands.
RESOURCES = ",".join(kind.resource for kind in KINDS if kind.name not in ("Event", *OPTIONAL_KINDS))


@dataclass(frozen=True)
class Ran:
    """One command: when it was started (seconds since the epoch), how it ended, what it printed."""

    exit_code: int | None
    seconds: float
    start: float
    stdout: list[str]
    stderr: list[str]


def create(plane: ControlPlane, obj: Json) -> None:
    """POST an object."""
    kind = find_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None, obj["kind"]
    prefix = "/apis/" if "/" in obj["apiVersion"] else "/api/"
    namespace = f"/namespaces/{obj['metadata']['namespace']}" if kind.namespaced else ""
    plane.api.create(f"{prefix}{obj['apiVersion']}{namespace}/{kind.plural}", obj)


def prepare(plane: ControlPlane, kubelets: Kubelets, setups: tuple[Setup, ...]) -> None:
    """Create everything, and wait until every pod is what it shall be before its drain."""
    for setup in setups:
        for name, labels in setup.nodes.items():
            kubelets.add_node(setup.node(name), {"setup": setup.name, **labels})
    until(lambda: nodes_take_pods(plane), "the nodes")
    for setup in setups:
        for obj in (setup.namespace(), *setup.placed(setup.objects)):
            create(plane, obj)
    for setup in setups:
        if setup.then:
            until(lambda s=setup: has_begun(plane, s), f"what comes first in {setup.name}")
        for obj in setup.placed(setup.then):
            create(plane, obj)
    for setup in setups:
        until(lambda s=setup: is_there(plane, s), f"the pods of {setup.name}")
    for setup in setups:
        for name, labels in setup.later.items():
            kubelets.add_node(setup.node(name), {"setup": setup.name, **labels})
    until(lambda: nodes_take_pods(plane), "the later nodes")
    for setup in setups:
        if setup.silent:
            kubelets.stop(setup.node(setup.silent))


def nodes_take_pods(plane: ControlPlane) -> bool:
    """True if all nodes are Ready, and the taint that new ones have is gone."""
    nodes = plane.api.get("/api/v1/nodes")["items"]
    return all(ready_status(n) == "True" and not n["spec"].get("taints") for n in nodes)


def is_there(plane: ControlPlane, setup: Setup) -> bool:
    """True if all pods of the set-up have a node and have come as far as they ever will."""
    bound = [pod for pod in pods_of(plane, setup.name) if pod["spec"].get("nodeName")]
    ready = [pod for pod in bound if ready_status(pod) == "True"]
    return (len(bound), len(ready)) == setup.pods and all(has_started(pod) for pod in bound)


def has_begun(plane: ControlPlane, setup: Setup) -> bool:
    """True if pods are Ready, and all budgets that are there have counted some."""
    path = f"/apis/policy/v1/namespaces/{setup.name}/poddisruptionbudgets"
    counted = [b.get("status", {}).get("currentHealthy") for b in plane.api.get(path)["items"]]
    ready = [pod for pod in pods_of(plane, setup.name) if ready_status(pod) == "True"]
    return bool(ready) and all(counted)


def has_started(pod: Json) -> bool:
    """True if a kubelet has said something of the pod, if it ever will."""
    labels = pod["metadata"].get("labels") or {}
    return pod["status"].get("phase") != "Pending" or labels.get("start") == NEVER_STARTS


def just_before(plane: ControlPlane, setup: Setup) -> None:
    """What the set-up wants to happen right before its objects are recorded."""
    if setup.silent:
        node = setup.node(setup.silent)
        until(lambda: ready_status(node_of(plane, node)) == "Unknown", f"the loss of {node}")
    for verb, path, patch in setup.before:
        plane.api.call(verb, path, patch, "application/merge-patch+json")
    if setup.before:
        time.sleep(setup.settles_s)


def record(plane: ControlPlane, path: Path) -> None:
    """Write all objects of the cluster as kubectl prints them, with the word that they are all."""
    objects = json.loads(plane.kubectl("get", RESOURCES, "--all-namespaces", "-o", "json"))
    objects["metadata"]["annotations"] = {"nodelife.dev/kinds": "all"}
    path.write_text(json.dumps(objects))


def run(plane: ControlPlane, command: str, stopped_after_s: float) -> Ran:
    """Run a `kubectl` command line with the real kubectl; stop it after a while."""
    words = shlex.split(command)
    assert words[0] == "kubectl"
    words[:1] = [str(plane.programs / "kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    start, began = time.time(), time.monotonic()
    process = _start(words)
    try:
        stdout, stderr = process.communicate(timeout=stopped_after_s)
        exit_code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        exit_code = None
    seconds = time.monotonic() - began
    return Ran(exit_code, seconds, start, stdout.splitlines(), stderr.splitlines())


def _start(words: list[str]) -> subprocess.Popen[str]:
    """Kernels in virtual machines have been seen to fail one exec in some hundred with EFAULT.

    Nothing has run then, so that a second try is the first.
    """
    try:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome_of(plane: ControlPlane, namespace: str, ran: Ran) -> dict[str, Any]:
    """What came of a drain, in the form of `tests/drains/*/outcome.json`."""
    accepted: list[Json] = []
    refused: dict[tuple[str, int, str], Json] = {}
    for write in writes(plane.audit()):
        how = removal(write, namespace)
        at = round(write.at - ran.start, 2)
        if not how or at < 0:
            continue
        pod = f"{namespace}/{write.name}"
        if write.accepted:
            accepted.append({"at": at, "pod": pod, "how": how})
        elif write.code != 404:
            row = {"pod": pod, "code": write.code, "message": write.message, "at": []}
            refused.setdefault((pod, write.code, write.message), row)["at"].append(at)
    return {
        "exitCode": ran.exit_code,
        "seconds": None if ran.exit_code is None else round(ran.seconds, 2),
        "stoppedAfter": round(ran.seconds, 2) if ran.exit_code is None else None,
        "accepted": accepted,
        "refused": list(refused.values()),
        "stdout": ran.stdout,
        "stderr": ran.stderr,
    }


def removal(write: Write, namespace: str) -> str:
    """`eviction` or `delete` where kubectl asked for one of a pod in the namespace, else ""."""
    if (write.namespace, write.resource) != (namespace, "pods"):
        return ""
    if not write.agent.startswith("kubectl/"):
        return ""
    if (write.verb, write.subresource) == ("create", "eviction"):
        return "eviction"
    return "delete" if (write.verb, write.subresource) == ("delete", "") else ""


# --- looking -------------------------------------------------------------------------------------


def pods_of(plane: ControlPlane, namespace: str) -> list[Json]:
    """All pods of a namespace."""
    items: list[Json] = plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return items


def node_of(plane: ControlPlane, name: str) -> Json:
    """The node."""
    node: Json = plane.api.get(f"/api/v1/nodes/{name}")
    return node


def ready_status(obj: Json) -> str:
    """The status of condition Ready, "" without one."""
    conditions = obj["status"].get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == "Ready"), "")
