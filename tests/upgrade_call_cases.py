"""A case for every action of an upgrade, as in `call_cases`."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.engine import upgrade_actions as upgrade
from kubectl_nodelife.kube.node import Taint
from tests.call_objects import (
    CONTAINERS,
    JOB,
    LEASE,
    NODE,
    NODE_KEEPS,
    NS,
    POD,
    SERVICE,
    WHO,
    Case,
    node_of,
    pod_of,
)

_UNPROVEN = Taint("nodelife.dev/unproven", "NoSchedule", "r")


def _marks(word: type[upgrade.NodeMarkPatch], **changed: Any) -> Case:
    """A case of a patch of a node's marks."""
    return Case(word.__name__, (NODE,), lambda f: word(**node_of(f), **changed), NODE_KEEPS)


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
    Case("DeleteCanary", (POD,), lambda f: upgrade.DeleteCanary(**pod_of(f), node="n1")),
    Case(
        "CreateJob",
        (NODE,),
        lambda f: upgrade.CreateJob(**WHO, namespace=NS, name="j", node="n1", manifest=JOB),
    ),
    Case(
        "DeleteJob",
        (JOB,),
        lambda f: upgrade.DeleteJob(
            **WHO, namespace=NS, name="j", node="n1", object_uid=f["Job"].uid
        ),
    ),
    Case(
        "CreateCanaryService",
        (NODE,),
        lambda f: upgrade.CreateCanaryService(
            **WHO, namespace=NS, name="s", node="n1", manifest=SERVICE
        ),
    ),
    Case(
        "DeleteCanaryService",
        (SERVICE,),
        lambda f: upgrade.DeleteCanaryService(
            **WHO, namespace=NS, name="s", node="n1", object_uid=f["Service"].uid
        ),
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
