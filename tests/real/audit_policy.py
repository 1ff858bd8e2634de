"""What the API server of the tests writes to its audit log."""

from typing import Any

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
_LEASES = [{"group": "coordination.k8s.io", "resources": ["leases"]}]
_OUR_LEASE = [{**_LEASES[0], "resourceNames": ["kubectl-nodelife-enforce"]}]
_HEARTBEATS = {"level": "Metadata", "verbs": _WRITES, "namespaces": ["kube-node-lease"]}


def audit_policy(*, heartbeats: bool) -> dict[str, Any]:
    """All writes whole, of Leases our own election only. `heartbeats`: renewals of nodes too."""
    rules = [{**_HEARTBEATS, "resources": _LEASES}] if heartbeats else []
    rules += [
        {"level": "RequestResponse", "verbs": _WRITES, "resources": _OUR_LEASE},
        {"level": "None", "resources": _LEASES},
        {"level": "RequestResponse", "verbs": _WRITES},
        {"level": "None"},
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": rules,
    }
