"""Auditing a few pods among a few nodes, for the tests of the findings."""

from typing import Any

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, AuditResult, audit
from tests.pod_status.objects import NOW_NS, node

SETTINGS = make_settings("v1.36")
FIVE_MINUTES = [{"operator": "Exists", "tolerationSeconds": 300}]
EVICTED: dict[str, Any] = {
    "status__phase": "Failed",
    "status__reason": "Evicted",
    "conditions": {"Ready": None},
}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service:NoExecute"
LOST = node(ready="Unknown", ready_for=600, heartbeat=640, reason="NodeStatusUnknown")


def sweep(*pods: Pod, nodes: tuple[Node, ...] | None = None) -> AuditResult:
    """Audit these pods among these nodes, by default one that is well."""
    nodes = (node(),) if nodes is None else nodes
    return audit(AuditInput(pods, {n.name: n for n in nodes}, None), SETTINGS, NOW_NS)
