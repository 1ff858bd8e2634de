"""A case for every action of an upgrade, as in `call_cases`."""

from typing import Any

from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.node import Taint
from tests.call_objects import CONTAINERS, JOB, LEASE, NODE, NODE_KEEPS, NS, POD, WHO, Case, node_of
from tests.objects import manifest

_UNPROVEN = Taint("nodelife.dev/unproven", "NoSchedule", "r")


def _marks(**changed: Any) -> Case:
    """A case of a patch of a node's marks."""

    def make(f: Any) -> actions.NodeMarkPatch:
        return actions.NodeMarkPatch(**node_of(f), **changed)

    return Case("NodeMarkPatch", (NODE,), make, NODE_KEEPS)


UPGRADE_CASES = (
    _marks(
        record="ClaimNode",
        to="Draining",
        unschedulable=True,
        annotations={"mark": "{}"},
        labels={"state": "Draining"},
    ),
    _marks(record="SetUpgradeState", labels={"state": "Working"}),
    _marks(record="OpenForProof", add_taints=(_UNPROVEN,), labels={"a": None}),
    _marks(record="ReleaseNode", remove_taints=(Taint("old", "NoSchedule"),), labels={"a": None}),
    _marks(record="RestoreNode", unschedulable=False, labels={"a": None}),
    _marks(record="FailNode", unschedulable=True),
    _marks(record="MarkNode", add_taints=(Taint("k", "PreferNoSchedule", "r"),)),
    Case(
        "CreateForNode",
        (NODE,),
        lambda f: actions.CreateForNode(
            **WHO,
            kind="Pod",
            namespace=NS,
            name="canary",
            node="n1",
            manifest=manifest("Pod", "canary", NS, spec={"containers": CONTAINERS}),
        ),
    ),
    Case(
        "DeleteForNode",
        (POD,),
        lambda f: actions.DeleteForNode(
            **WHO, kind="Pod", namespace=NS, name=f["Pod"].name, node="n1", object_uid=f["Pod"].uid
        ),
    ),
    Case(
        "CreateForNode",
        (NODE,),
        lambda f: actions.CreateForNode(
            **WHO, kind="Job", namespace=NS, name="j", node="n1", manifest=JOB
        ),
    ),
    Case(
        "DeleteForNode",
        (JOB,),
        lambda f: actions.DeleteForNode(
            **WHO, kind="Job", namespace=NS, name="j", node="n1", object_uid=f["Job"].uid
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
