"""Which nodes are available: rows of section 6, and the marks of other programs (section 4)."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.counts import foreign_mark, why_unavailable
from kubectl_nodelife.kube.node import Node
from tests import objects
from tests.objects import typed

READY = {"type": "Ready", "status": "True"}


def node(
    taints: list[dict[str, Any]] | None = None,
    ready: str | None = "True",
    unschedulable: bool = False,
    **metadata: Any,
) -> Node:
    spec = {"taints": taints or (), "unschedulable": unschedulable}
    return typed(objects.node("b1", ready, metadata=metadata, **spec))


def taint(key: str, effect: str = "NoSchedule") -> list[dict[str, Any]]:
    return [{"key": key, "effect": effect}]


@pytest.mark.parametrize(
    "of, because",
    [
        pytest.param(node(), "", id="Ready"),
        pytest.param(node(ready="Unknown"), "Ready is Unknown", id="Ready is Unknown"),
        pytest.param(node(ready=None), "Ready is missing", id="no condition"),
        pytest.param(node(unschedulable=True), "cordoned", id="cordoned"),
        pytest.param(node(taint("dedicated")), "", id="a dedicated pool's own taint"),
        pytest.param(
            node(taint("node.kubernetes.io/not-ready", "NoExecute")),
            "taint node.kubernetes.io/not-ready:NoExecute",
            id="a taint of Kubernetes",
        ),
        pytest.param(
            node(taint("nodelife.dev/unproven")),
            "taint nodelife.dev/unproven:NoSchedule",
            id="not proven",
        ),
        pytest.param(
            node(taint("nodelife.dev/outdated", "PreferNoSchedule")), "", id="to be done still"
        ),
        pytest.param(
            node(taint("karpenter.sh/disrupted")),
            "Karpenter is about to delete it (taint karpenter.sh/disrupted)",
            id="about to go",
        ),
    ],
)
def test_why_unavailable(of: Node, because: str) -> None:
    assert why_unavailable(of) == because


def test_a_lease_that_is_not_renewed_makes_a_ready_node_unavailable() -> None:
    assert why_unavailable(node(), lease_is_fresh=False) == "its Lease is not renewed"


@pytest.mark.parametrize(
    "of, begins",
    [
        pytest.param(node(), "", id="nobody"),
        pytest.param(node(taint("medik8s.io/drain")), "medik8s", id="medik8s"),
        pytest.param(node(taint("eks.amazonaws.com/nodegroup")), "EKS", id="EKS"),
        pytest.param(
            node(labels={"eks.amazonaws.com/nodegroup": "blue"}), "", id="the label of that name"
        ),
        pytest.param(
            node(annotations={"weave.works/kured-reboot-in-progress": "x"}), "kured", id="kured"
        ),
        pytest.param(
            node(annotations={"machineconfiguration.openshift.io/state": "Working"}),
            "the machine config operator",
            id="MCO at work",
        ),
        pytest.param(
            node(annotations={"machineconfiguration.openshift.io/state": "Done"}), "", id="MCO done"
        ),
        pytest.param(
            node(deletionTimestamp="2026-01-01T00:00:00Z"), "it is being deleted", id="deleted"
        ),
    ],
)
def test_17_marks_of_other_programs(of: Node, begins: str) -> None:
    found = foreign_mark(of)
    assert found.startswith(begins) and bool(found) == bool(begins)
