"""Whether kube-controller-manager may read the Leases of nodes, as its ClusterRole says.

From v1.37 on a node is lost only after its Lease was read (`tryUpdateNodeHealth` in
pkg/controller/nodelifecycle/node_lifecycle_controller.go), and an error of that read skips the
node: a manager that may not GET Leases calls none lost. The API server keeps its roles up to date
(pkg/registry/rbac/reconciliation), unless an annotation forbids it. Which account the manager has
is not asked (--use-service-account-credentials), nor what else is bound to that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.errors import NodelifeError

if TYPE_CHECKING:
    from kubectl_nodelife.live.client import Client

NODE_CONTROLLER: Final = "system:controller:node-controller"
ROLE_PATH: Final = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NODE_CONTROLLER}"
AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
MAY_NOT: Final = (
    f"ClusterRole {NODE_CONTROLLER} does not let Leases be read: a kube-controller-manager that "
    "runs by it calls no silent node lost"
)
REMEDY: Final = (
    f"kubectl annotate --overwrite clusterrole {NODE_CONTROLLER} {AUTOUPDATE}=true, and restart an "
    "API server, which then repairs it"
)


def release_reads_leases(version: str) -> bool:
    """True if a control plane of that version, such as `v1.37.2`, reads Leases before a loss."""
    try:
        return parse_profile(version).has("lease_circuit_breaker")
    except ValueError:
        return False


def lets_read_leases(role: dict[str, Any]) -> bool:
    """True if some rule of the ClusterRole allows a GET of any Lease."""
    return any(_allows(rule) for rule in role.get("rules") or ())


def _allows(rule: dict[str, Any]) -> bool:
    def has(field: str, word: str) -> bool:
        return not {word, "*"}.isdisjoint(rule.get(field) or ())

    every = has("apiGroups", "coordination.k8s.io") and has("resources", "leases")
    return every and has("verbs", "get") and not rule.get("resourceNames")


async def read_role(client: Client) -> dict[str, Any] | None:
    """The node controller's ClusterRole, None where it cannot be read. Never raises."""
    try:
        return dict(json.loads(await client.read(ROLE_PATH, retry=False)))
    except (NodelifeError, ValueError, TypeError):
        return None


async def role_warnings(client: Client, version: str) -> list[str]:
    """The warning where the role is known to be too small for what that release does."""
    if not release_reads_leases(version):
        return []
    role = await read_role(client)
    return [] if role is None or lets_read_leases(role) else [f"{MAY_NOT}; {REMEDY}"]
