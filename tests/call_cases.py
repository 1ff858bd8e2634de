"""A case for every action: objects that are made, and the action that is taken on them.

The objects carry fields that no slice holds. `played_calls` plays the cases against the sandbox and
against a real API server.
"""

from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSetStatus
from tests.call_objects import (
    DAEMON_SET,
    NODE,
    NODE_KEEPS,
    NOT_READY,
    NS,
    POD,
    POD_KEEPS,
    REVISION,
    STAMP,
    TARGET,
    UNKNOWN,
    WHO,
    node_of,
    owner_of,
    pod_of,
    restored,
    revision_of,
    set_of,
)
from tests.call_objects import NOW as NOW
from tests.call_objects import PATHS as PATHS
from tests.call_objects import Case as Case
from tests.upgrade_call_cases import UPGRADE_CASES

CASES = (
    *UPGRADE_CASES,
    Case(
        "SetNodeConditions",
        (NODE,),
        lambda f: actions.SetNodeConditions(**node_of(f), conditions=(UNKNOWN,)),
        NODE_KEEPS,
    ),
    Case(
        "AddTaints",
        (NODE,),
        lambda f: actions.AddTaints(**node_of(f), taints=(Taint("k", "NoExecute", "v", STAMP),)),
        NODE_KEEPS,
    ),
    Case(
        "RemoveTaints",
        (NODE,),
        lambda f: actions.RemoveTaints(**node_of(f), taints=(Taint("old", "NoSchedule"),)),
        NODE_KEEPS,
    ),
    Case(
        "SetNodeLabels",
        (NODE,),
        lambda f: actions.SetNodeLabels(**node_of(f), labels={"c": "d"}),
        NODE_KEEPS,
    ),
    Case(
        "SetUnschedulable",
        (NODE,),
        lambda f: actions.SetUnschedulable(**node_of(f), unschedulable=True),
        NODE_KEEPS,
    ),
    Case(
        "SetPodCondition",
        (POD,),
        lambda f: actions.SetPodCondition(**pod_of(f), condition=TARGET),
        POD_KEEPS,
    ),
    Case(
        "MarkPodNotReady",
        (POD,),
        lambda f: actions.MarkPodNotReady(**pod_of(f), condition=NOT_READY),
        POD_KEEPS,
    ),
    Case(
        "SetPodReason",
        (POD,),
        lambda f: actions.SetPodReason(**pod_of(f), reason="NodeLost", message="m"),
        POD_KEEPS,
    ),
    Case(
        "SetPodPhase",
        (POD,),
        lambda f: actions.SetPodPhase(**pod_of(f), phase="Failed", if_node_gone="n1"),
        POD_KEEPS,
    ),
    Case("DeletePod", (POD,), lambda f: actions.DeletePod(**pod_of(f))),
    Case(
        "DeletePod of pod-gc",
        (POD,),
        lambda f: actions.DeletePod(
            **pod_of(f), grace_period_seconds=0, force=True, if_node_gone="n1"
        ),
    ),
    Case(
        "DeletePod if unchanged",
        (POD,),
        lambda f: actions.DeletePod(**pod_of(f), grace_period_seconds=0, if_unchanged=True),
    ),
    Case(
        "SetPodReady",
        (POD,),
        lambda f: actions.SetPodReady(**pod_of(f), status="False", at=STAMP),
        POD_KEEPS,
    ),
    Case(
        "RollBackDaemonSet",
        (DAEMON_SET,),
        lambda f: actions.RollBackDaemonSet(
            **set_of(f), revision=1, patch={"spec": {"template": restored(f)}}
        ),
        ("Foreign",),
    ),
    Case("EvictPod", (POD,), lambda f: actions.EvictPod(**pod_of(f))),
    Case(
        "CreatePod",
        (DAEMON_SET,),
        lambda f: actions.CreatePod(
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
        lambda f: actions.SetPodLabel(**pod_of(f), key="k", value="v"),
        POD_KEEPS,
    ),
    Case(
        "AdoptObject",
        (DAEMON_SET, POD),
        lambda f: actions.AdoptObject(
            **WHO, kind="Pod", namespace=NS, name="p", object_uid=f["Pod"].uid, owner=owner_of(f)
        ),
        POD_KEEPS,
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
        lambda f: actions.ReleaseObject(
            **WHO, kind="Pod", namespace=NS, name="p", object_uid=f["Pod"].uid, owner_uid="u1"
        ),
        POD_KEEPS,
    ),
    Case(
        "CreateControllerRevision",
        (DAEMON_SET,),
        lambda f: actions.CreateControllerRevision(
            **WHO,
            namespace=NS,
            name="r2",
            revision=ControllerRevision(
                metadata=ObjectMeta(name="r2", namespace=NS, owner_references=(owner_of(f),)),
                data=REVISION["data"],  # type: ignore[arg-type]
                revision=2,
            ),
        ),
    ),
    Case(
        "UpdateControllerRevision",
        (REVISION,),
        lambda f: actions.UpdateControllerRevision(
            **revision_of(f), number=3, hash_label=("hash", "r")
        ),
    ),
    Case(
        "DeleteControllerRevision",
        (REVISION,),
        lambda f: actions.DeleteControllerRevision(**revision_of(f), number=1),
    ),
    Case(
        "UpdateDaemonSetStatus",
        (DAEMON_SET,),
        lambda f: actions.UpdateDaemonSetStatus(
            **set_of(f), status=DaemonSetStatus(desired_number_scheduled=5, observed_generation=1)
        ),
        ("Foreign",),
    ),
    Case(
        "RaiseCollisionCount",
        (DAEMON_SET,),
        lambda f: actions.RaiseCollisionCount(**set_of(f), seen=None),
        ("Foreign",),
    ),
    Case(
        "RecordEvent",
        (NODE,),
        lambda f: actions.RecordEvent(
            **{**WHO, "controller": "node-lifecycle"},
            kind="Node",
            name="n1",
            object_uid=f["Node"].uid,
            reason="NodeNotReady",
            message="m",
        ),
    ),
)
