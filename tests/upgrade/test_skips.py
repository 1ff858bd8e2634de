"""Why nodes are left out: rows 8, 15 and 17 of the decision vectors."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict, why_skipped, why_undrainable
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.node import Node

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SICK = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
TARGET = {"target": ["kubeletVersion=v1.36.3"]}


def node(status: dict[str, Any] | None = None, spec: Any = None, **metadata: Any) -> Node:
    raw = {"metadata": {"name": "x", **metadata}, "spec": spec or {}, "status": status or READY}
    found = decode("Node", raw)
    assert isinstance(found, Node)
    return found


@pytest.mark.parametrize(
    "of, policy, because",
    [
        pytest.param(node(), {}, "", id="nothing speaks against it"),
        pytest.param(
            node(labels={"nodelife.dev/upgrade-hold": ""}),
            {},
            "held by a person (label nodelife.dev/upgrade-hold)",
            id="17: hold label",
        ),
        pytest.param(
            node(spec={"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}),
            {},
            "Karpenter is about to delete it (taint karpenter.sh/disrupted)",
            id="17: karpenter.sh/disrupted",
        ),
        pytest.param(
            node(deletionTimestamp="2026-01-01T00:00:00Z"),
            {},
            "it is being deleted",
            id="17: deleted",
        ),
        pytest.param(
            node({**READY, "nodeInfo": {"kubeletVersion": "v1.36.3"}}),
            TARGET,
            "is there already (kubeletVersion=v1.36.3)",
            id="17: meets --target",
        ),
        pytest.param(
            node({**READY, "nodeInfo": {"kubeletVersion": "v1.35.1"}}),
            TARGET,
            "",
            id="not there yet",
        ),
        pytest.param(node(), {"target": ["bootID=changed"]}, "", id="no boot to compare with yet"),
        pytest.param(
            node(spec={"unschedulable": True}),
            {},
            "cordoned by others",
            id="8: cordoned by a person",
        ),
        pytest.param(
            node(spec={"unschedulable": True}),
            {"includeCordoned": True},
            "",
            id="--include-cordoned",
        ),
        pytest.param(
            node(SICK), {}, "unhealthy before the run: Ready is Unknown", id="NotReady before"
        ),
        pytest.param(node(SICK), {"unhealthy": "include"}, "", id="--unhealthy include"),
    ],
)
def test_why_skipped(of: Node, policy: dict[str, Any], because: str) -> None:
    assert why_skipped(of, policy_from(policy)) == because


def test_15_undrainable_nodes_are_skipped_with_the_planners_sentence() -> None:
    policy = policy_from({})
    assert why_undrainable(DrainVerdict("slow", "x"), policy) == ""
    never = DrainVerdict("never", "two budgets match it")
    assert why_undrainable(never, policy) == "drain: never: two budgets match it"
    unknown = DrainVerdict("unknown", "budgets were not read")
    assert why_undrainable(unknown, policy).endswith("(--accept-unknown)")
    assert why_undrainable(unknown, policy_from({"acceptUnknown": True})) == ""
