"""A case for every action: objects that are made, and the action that is taken on them.

The objects carry fields that no slice holds. `played_calls` plays the cases against the sandbox and
against a real API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from kubectl_nodelife.engine import actions as act
from kubectl_nodelife.engine import daemonset_actions as daemonset
from kubectl_nodelife.engine import drain_actions as drain
from kubectl_nodelife.engine import ordered_actions as ordered
from kubectl_nodelife.engine import upgrade_actions as upgrade
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, OwnerReference, Time
from kubectl_nodelife.kube.node import NodeCondition, Taint
from kubectl_nodelife.kube.pod import PodCondition
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, DaemonSetStatus

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
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "run", "namespace": NS, "annotations": {"wish": "pause", "kept": "yes"}},
    "spec": {"holderIdentity": "us"},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": NS},
    "spec": {"template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}},
}
PATHS = {
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


def _pod(found: Found) -> dict[str, Any]:
    return {**WHO, "namespace": NS, "pod": "p", "pod_uid": found["Pod"].uid}


def _node(found: Found) -> dict[str, Any]:
    return {**WHO, "node": "n1", "node_uid": found["Node"].uid}


def _set(found: Found) -> dict[str, Any]:
    return {**WHO, "namespace": NS, "name": "d", "set_uid": found["DaemonSet"].uid}


def _revision(found: Found) -> dict[str, Any]:
    uid = found["ControllerRevision"].uid
    return {**WHO, "namespace": NS, "name": "r", "revision_uid": uid}


def _owner(found: Found) -> OwnerReference:
    return OwnerReference("DaemonSet", "d", found["DaemonSet"].uid, "apps/v1", True, True)


def _restored(found: Found) -> dict[str, Any]:
    """The set's template as stored, but for one argument."""
    daemon_set = found["DaemonSet"]
    assert isinstance(daemon_set, DaemonSet)
    template = deepcopy(daemon_set.spec.template)
    template["spec"]["containers"][0]["args"] = ["<before>"]
    return {**template, "$patch": "replace"}


_STAMP = Time(NOW)
_UNKNOWN = NodeCondition("Ready", "Unknown", "NodeStatusUnknown", "silent", _STAMP, _STAMP)
_TARGET = PodCondition(
    "DisruptionTarget", "True", "DeletionByTaintManager", "why", last_transition_time=_STAMP
)
_NOT_READY = PodCondition("Ready", "False", last_transition_time=_STAMP)
_NODE_KEEPS = ("podCIDR", "images", "annotations")
_POD_KEEPS = ("hostIP", "priority")

_UNPROVEN = Taint("nodelife.dev/unproven", "NoSchedule", "r")


def _marks(word: type[upgrade.NodeMarkPatch], **changed: Any) -> Case:
    """A case of a patch of a node's marks."""
    return Case(word.__name__, (NODE,), lambda f: word(**_node(f), **changed), _NODE_KEEPS)


UPGRADE_CASES = (
    _marks(
        upgrade.ClaimNode,
        to="Draining",
        unschedulable=True,
        annotations={"mark": "{}"},
        labels={"state": "Draining"},
    ),
    _marks(upgrade.SetUpgradeState, labels={"state": "Working"}),
    _marks(upgrade.OpenForProof, add_taints=(_UNPROVEN,), labels={"a": None}),
    _marks(upgrade.ReleaseNode, remove_taints=(Taint("old", "NoSchedule"),), labels={"a": None}),
    _marks(upgrade.RestoreNode, unschedulable=False, labels={"a": None}),
    _marks(upgrade.FailNode, unschedulable=True),
    _marks(upgrade.MarkNode, add_taints=(Taint("k", "PreferNoSchedule", "r"),)),
    Case(
        "CreateCanary",
        (NODE,),
        lambda f: upgrade.CreateCanary(
            **WHO,
            namespace=NS,
            pod="canary",
            node="n1",
            manifest={
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "canary", "namespace": NS},
                "spec": {"containers": CONTAINERS},
            },
        ),
    ),
    Case("DeleteCanary", (POD,), lambda f: upgrade.DeleteCanary(**_pod(f), node="n1")),
    Case(
        "CreateJob",
        (NODE,),
        lambda f: upgrade.CreateJob(**WHO, namespace=NS, name="j", node="n1", manifest=JOB),
    ),
    Case(
        "DeleteJob",
        (JOB,),
        lambda f: upgrade.DeleteJob(**WHO, namespace=NS, name="j", node="n1", job_uid=f["Job"].uid),
    ),
    Case(
        "UpdateRun",
        (LEASE,),
        lambda f: upgrade.UpdateRun(
            **WHO, namespace=NS, name="run", annotations={"run": "{}", "wish": None}
        ),
        ("kept", "holderIdentity"),
    ),
)

CASES = (
    *UPGRADE_CASES,
    Case(
        "SetNodeConditions",
        (NODE,),
        lambda f: act.SetNodeConditions(**_node(f), conditions=(_UNKNOWN,)),
        _NODE_KEEPS,
    ),
    Case(
        "AddTaints",
        (NODE,),
        lambda f: act.AddTaints(**_node(f), taints=(Taint("k", "NoExecute", "v", _STAMP),)),
        _NODE_KEEPS,
    ),
    Case(
        "RemoveTaints",
        (NODE,),
        lambda f: act.RemoveTaints(**_node(f), taints=(Taint("old", "NoSchedule"),)),
        _NODE_KEEPS,
    ),
    Case(
        "SetNodeLabels",
        (NODE,),
        lambda f: act.SetNodeLabels(**_node(f), labels={"c": "d"}),
        _NODE_KEEPS,
    ),
    Case(
        "SetUnschedulable",
        (NODE,),
        lambda f: drain.SetUnschedulable(**_node(f), unschedulable=True),
        _NODE_KEEPS,
    ),
    Case(
        "SetPodCondition",
        (POD,),
        lambda f: act.SetPodCondition(**_pod(f), condition=_TARGET),
        _POD_KEEPS,
    ),
    Case(
        "MarkPodNotReady",
        (POD,),
        lambda f: act.MarkPodNotReady(**_pod(f), condition=_NOT_READY),
        _POD_KEEPS,
    ),
    Case(
        "SetPodReason",
        (POD,),
        lambda f: act.SetPodReason(**_pod(f), reason="NodeLost", message="m"),
        _POD_KEEPS,
    ),
    Case(
        "SetPodPhase",
        (POD,),
        lambda f: act.SetPodPhase(**_pod(f), phase="Failed", if_node_gone="n1"),
        _POD_KEEPS,
    ),
    Case("DeletePod", (POD,), lambda f: act.DeletePod(**_pod(f))),
    Case(
        "DeletePod of pod-gc",
        (POD,),
        lambda f: act.DeletePod(**_pod(f), grace_period_seconds=0, force=True, if_node_gone="n1"),
    ),
    Case(
        "DeletePod if unchanged",
        (POD,),
        lambda f: act.DeletePod(**_pod(f), grace_period_seconds=0, if_unchanged=True),
    ),
    Case(
        "SetPodReady",
        (POD,),
        lambda f: ordered.SetPodReady(**_pod(f), status="False", at=_STAMP),
        _POD_KEEPS,
    ),
    Case(
        "RollBackDaemonSet",
        (DAEMON_SET,),
        lambda f: ordered.RollBackDaemonSet(
            **_set(f), revision=1, patch={"spec": {"template": _restored(f)}}
        ),
        ("Foreign",),
    ),
    Case("EvictPod", (POD,), lambda f: drain.EvictPod(**_pod(f))),
    Case(
        "CreatePod",
        (DAEMON_SET,),
        lambda f: daemonset.CreatePod(
            **WHO,
            namespace=NS,
            pod="d-abcde",
            manifest={
                **{k: v for k, v in POD.items() if k != "status"},
                "metadata": {
                    "name": "d-abcde",
                    "generateName": "d-",
                    "namespace": NS,
                    "labels": {"app": "d"},
                },
            },
            node="n1",
            owner="d",
            owner_uid=f["DaemonSet"].uid,
            revision="abc",
        ),
    ),
    Case(
        "SetPodLabel",
        (POD,),
        lambda f: daemonset.SetPodLabel(**_pod(f), key="k", value="v"),
        _POD_KEEPS,
    ),
    Case(
        "AdoptObject",
        (DAEMON_SET, POD),
        lambda f: daemonset.AdoptObject(
            **WHO, kind="Pod", namespace=NS, name="p", object_uid=f["Pod"].uid, owner=_owner(f)
        ),
        _POD_KEEPS,
    ),
    Case(
        "ReleaseObject",
        (
            {
                **POD,
                "metadata": {
                    "name": "p",
                    "namespace": NS,
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1"},
                        {"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "u2"},
                    ],
                },
            },
        ),
        lambda f: daemonset.ReleaseObject(
            **WHO, kind="Pod", namespace=NS, name="p", object_uid=f["Pod"].uid, owner_uid="u1"
        ),
        _POD_KEEPS,
    ),
    Case(
        "CreateControllerRevision",
        (DAEMON_SET,),
        lambda f: daemonset.CreateControllerRevision(
            **WHO,
            namespace=NS,
            name="r2",
            revision=ControllerRevision(
                metadata=ObjectMeta(name="r2", namespace=NS, owner_references=(_owner(f),)),
                data=REVISION["data"],  # type: ignore[arg-type]
                revision=2,
            ),
        ),
    ),
    Case(
        "UpdateControllerRevision",
        (REVISION,),
        lambda f: daemonset.UpdateControllerRevision(
            **_revision(f), number=3, hash_label=("hash", "r")
        ),
    ),
    Case(
        "DeleteControllerRevision",
        (REVISION,),
        lambda f: daemonset.DeleteControllerRevision(**_revision(f), number=1),
    ),
    Case(
        "UpdateDaemonSetStatus",
        (DAEMON_SET,),
        lambda f: daemonset.UpdateDaemonSetStatus(
            **_set(f), status=DaemonSetStatus(desired_number_scheduled=5, observed_generation=1)
        ),
        ("Foreign",),
    ),
    Case(
        "RaiseCollisionCount",
        (DAEMON_SET,),
        lambda f: daemonset.RaiseCollisionCount(**_set(f), seen=None),
        ("Foreign",),
    ),
    Case(
        "RecordEvent",
        (NODE,),
        lambda f: act.RecordEvent(
            **{**WHO, "controller": "node-lifecycle"},
            kind="Node",
            name="n1",
            object_uid=f["Node"].uid,
            reason="NodeNotReady",
            message="m",
        ),
    ),
)
