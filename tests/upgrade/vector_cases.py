"""What the decision vectors begin from."""

from typing import Any

from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.kube.node import NodeSystemInfo
from tests.upgrade.stand import Stand

DRAINING, WORKING = NodeState.DRAINING, NodeState.WORKING
SETTLING, PROVING, SOAKING = NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING
DONE, FAILED, HELD = NodeState.DONE, NodeState.FAILED, NodeState.HELD

TARGET = {"target": ["kubeletVersion=v1.36.0"]}
NEW = NodeSystemInfo(kubelet_version="v1.36.0", boot_id="boot-1")
REBOOTED = NodeSystemInfo(kubelet_version="v1.36.0", boot_id="boot-2")


def stand(nodes: int = 10, **policy: Any) -> Stand:
    """A run with nothing to claim beyond what a test marks."""
    made = Stand(**{"maxUnavailable": nodes, **policy})
    made.add_nodes(*[f"n{i}" for i in range(nodes)])
    return made


def one(state: NodeState, nodes: int = 10, **fields: Any) -> Stand:
    """A run of one node, x, which is in that state; the others are other people's."""
    policy = fields.pop("policy", {})
    made = Stand(**{"maxUnavailable": nodes, "nodes": ["x"], **policy})
    made.add_nodes("x", *[f"n{i}" for i in range(nodes - 1)])
    made.mark("x", state, **fields)
    made.settle()
    return made


def words(actions: list[Any]) -> list[str]:
    """What the actions are called."""
    return [action.word for action in actions]


def working(**policy: Any) -> Stand:
    """x in Working, and its command runs on this leader's machine."""
    s = Stand(nodes=["x"], maxUnavailable=5, **policy)
    s.add_nodes("x", "y")
    s.mark("x", DRAINING)
    s.settle()
    assert s.state("x") == WORKING and "StartWork" in words(s.did)
    return s
