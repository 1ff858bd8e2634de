"""The objects that the cases of `call_cases` are about, and what their actions have in common."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, Time
from kubectl_nodelife.kube.node import NodeCondition
from kubectl_nodelife.kube.pod import PodCondition
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from tests.objects import manifest

NOW = 1_800_000_000 * SECOND_NS
NS = "default"
WHO: dict[str, Any] = {"controller": "test", "because": "a test"}
CONTAINERS = [{"name": "c", "image": "registry.example/i"}]
TEMPLATE = {
    "metadata": {"labels": {"app": "d"}},
    "spec": {"containers": [{**CONTAINERS[0], "args": ["a && b < c", "line\u2028end"]}]},
}

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"kept": "yes"}},
    "spec": {"podCIDR": "10.1.0.0/24", "taints": [{"key": "old", "effect": "NoSchedule"}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}],
        "images": [{"names": ["i"], "sizeBytes": 7}],
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": NS, "labels": {"app": "d"}},
    "spec": {"containers": CONTAINERS, "nodeName": "n1", "priority": 0},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "hostIP": "10.9.9.9",
        "hostIPs": [{"ip": "10.9.9.9"}],
    },
}
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "d", "namespace": NS},
    "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": TEMPLATE},
    "status": {
        "conditions": [{"type": "Foreign", "status": "True"}],
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
}
REVISION = {
    "apiVersion": "apps/v1",
    "kind": "ControllerRevision",
    "metadata": {"name": "r", "namespace": NS, "labels": {"app": "d"}},
    "data": {"spec": {"template": {**TEMPLATE, "$patch": "replace"}}},
    "revision": 1,
}
LEASE = manifest(
    "Lease",
    "run",
    NS,
    metadata={"annotations": {"request": "pause", "kept": "yes"}},
    spec={"holderIdentity": "us"},
)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": NS},
    "spec": {"template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}},
}
SERVICE = manifest("Service", "s", NS, spec={"clusterIP": "None", "selector": {"app": "d"}})
PATHS = {
    "Service": f"/api/v1/namespaces/{NS}/services",
    "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases",
    "Job": f"/apis/batch/v1/namespaces/{NS}/jobs",
    "Node": "/api/v1/nodes",
    "Pod": f"/api/v1/namespaces/{NS}/pods",
    "DaemonSet": f"/apis/apps/v1/namespaces/{NS}/daemonsets",
    "ControllerRevision": f"/apis/apps/v1/namespaces/{NS}/controllerrevisions",
}

Found = Mapping[str, KubeObject]
"""The objects as created, by kind."""


class Case(NamedTuple):
    """`objects` are made, then `action` is taken on them."""

    title: str
    objects: tuple[dict[str, Any], ...]
    action: Callable[[Found], Action]
    survives: tuple[str, ...] = ()


def pod_of(found: Found) -> dict[str, Any]:
    return {**WHO, "namespace": NS, "pod": "p", "pod_uid": found["Pod"].uid}


def node_of(found: Found) -> dict[str, Any]:
    return {**WHO, "node": "n1", "node_uid": found["Node"].uid}


def set_of(found: Found) -> dict[str, Any]:
    return {**WHO, "namespace": NS, "name": "d", "object_uid": found["DaemonSet"].uid}


def revision_of(found: Found) -> dict[str, Any]:
    uid = found["ControllerRevision"].uid
    return {**WHO, "namespace": NS, "name": "r", "object_uid": uid}


def owner_of(found: Found) -> OwnerReference:
    return OwnerReference("DaemonSet", "d", found["DaemonSet"].uid, "apps/v1", True, True)


def restored(found: Found) -> dict[str, Any]:
    """The set's template as stored, but for one argument."""
    daemon_set = found["DaemonSet"]
    assert isinstance(daemon_set, DaemonSet)
    template = deepcopy(daemon_set.spec.template)
    template["spec"]["containers"][0]["args"] = ["<before>"]
    return {**template, "$patch": "replace"}


STAMP = Time(NOW)
UNKNOWN = NodeCondition("Ready", "Unknown", "NodeStatusUnknown", "silent", STAMP, STAMP)
TARGET = PodCondition(
    "DisruptionTarget", "True", "DeletionByTaintManager", "why", last_transition_time=STAMP
)
NOT_READY = PodCondition("Ready", "False", last_transition_time=STAMP)
NODE_KEEPS = ("podCIDR", "images", "annotations")
POD_KEEPS = ("hostIP", "priority")
