"""A case for every action of an upgrade, as in `call_cases`."""

from typing import Any

from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.node import Taint
from tests.call_objects import CONTAINERS, JOB, LEASE, NODE, NODE_KEEPS, NS, POD, WHO, Case, node_of
from tests.objects import manifest

_UNPROVEN = Taint("nodelife.dev/unproven", "NoSchedule", "r")


def _marks(word: type[actions.NodeMarkPatch], **changed: Any) -> Case:
    """A case of a patch of a node's marks."""
    return Case(word.__name__, (NODE,), lambda f: word(**node_of(f), **changed), NODE_KEEPS)


UPGRADE_CASES = (
    _marks(
        actions.ClaimNode,
        to="Draining",
        unschedulable=True,
        annotations={"mark": "{}"},
        labels={"state": "Draining"},
    ),
    _marks(actions.SetUpgradeState, labels={"state": "Working"}),
    _marks(actions.OpenForProof, add_taints=(_UNPROVEN,), labels={"a": None}),
    _marks(actions.ReleaseNode, remove_taints=(Taint("old", "NoSchedule"),), labels={"a": None}),
    _marks(actions.RestoreNode, unschedulable=False, labels={"a": None}),
    _marks(actions.FailNode, unschedulable=True),
    _marks(actions.MarkNode, add_taints=(Taint("k", "PreferNoSchedule", "r"),)),
    Case(
        "CreateCanary",
        (NODE,),
        lambda f: actions.CreateCanary(
            **WHO,
            namespace=NS,
            name="canary",
            node="n1",
            manifest=manifest("Pod", "canary", NS, spec={"containers": CONTAINERS}),
        ),
    ),
    Case(
        "DeleteCanary",
        (POD,),
        lambda f: actions.DeleteCanary(
            **WHO, namespace=NS, name=f["Pod"].name, node="n1", object_uid=f["Pod"].uid
        ),
    ),
    Case(
        "CreateJob",
        (NODE,),
        lambda f: actions.CreateJob(**WHO, namespace=NS, name="j", node="n1", manifest=JOB),
    ),
    Case(
        "DeleteJob",
        (JOB,),
        lambda f: actions.DeleteJob(
            **WHO, namespace=NS, name="j", node="n1", object_uid=f["Job"].uid
        ),
    ),
    Case(
        "UpdateRun",
        (LEASE,),
        lambda f: actions.UpdateRun(
            **WHO, namespace=NS, name="run", annotations={"run": "{}", "request": None}
        ),
        ("kept", "holderIdentity"),
    ),
)
