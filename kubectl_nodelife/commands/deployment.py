"""The objects that run the daemon in a cluster, in dry-run: `daemon install --kind deployment`.

Two replicas watch the cluster independently of one another; neither writes anything, so that none
must lead. Left out: enforcing from a Deployment.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kubectl_nodelife import __version__
from kubectl_nodelife.commands.rbac import DAEMON_RULES, rules_of

NAME: Final = "kubectl-nodelife"
PORT: Final = 9876
USER: Final = 65532
STATE: Final = "/var/lib/nodelife"
SIZES: Final = {100: ("50m", "96Mi"), 1_000: ("200m", "192Mi"), 5_000: ("1", "512Mi")}
"""Up to so many nodes: what a replica asks for, cpu and memory."""

_LABELS: Final = {"app.kubernetes.io/name": NAME}
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MOVES_AFTER_SECONDS: Final = 30
_RBAC: Final = "rbac.authorization.k8s.io"

Json = dict[str, Any]


class DeploymentOrder(NamedTuple):
    """What is asked for. `nodes`: of the cluster, about; `arguments`: more for `daemon run`."""

    namespace: str = "nodelife"
    replicas: int = 2
    image: str = f"{NAME}:{__version__}"
    nodes: int = 1_000
    service_monitor: bool = False
    arguments: tuple[str, ...] = ()


def objects(order: DeploymentOrder) -> list[Json]:
    """All objects, in an order in which they can be applied."""
    made = [
        _object("v1", "Namespace", order.namespace, "", metadata=_restricted()),
        _object("v1", "ServiceAccount", NAME, order.namespace, automountServiceAccountToken=False),
        *_rights(order.namespace),
        _object("apps/v1", "Deployment", NAME, order.namespace, spec=_deployment(order)),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            NAME,
            order.namespace,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": _LABELS}},
        ),
        _object(
            "networking.k8s.io/v1", "NetworkPolicy", NAME, order.namespace, spec=_network_policy()
        ),
        _object("v1", "Service", NAME, order.namespace, spec=_service()),
    ]
    if order.service_monitor:
        spec = {"selector": {"matchLabels": _LABELS}, "endpoints": [{"port": "metrics"}]}
        kind = ("monitoring.coreos.com/v1", "ServiceMonitor")
        made.append(_object(*kind, NAME, order.namespace, spec=spec))
    return made


def _object(version: str, kind: str, name: str, namespace: str, **fields: Any) -> Json:
    meta: Json = {"name": name}
    if namespace:
        meta["namespace"] = namespace
    meta["labels"] = {**_LABELS, **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def _restricted() -> dict[str, str]:
    """Labels of a namespace: Pod Security admission holds the pods to `restricted`."""
    return {"pod-security.kubernetes.io/enforce": "restricted"}


def _rights(namespace: str) -> list[Json]:
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    version = f"{_RBAC}/v1"
    return [
        _object(version, "ClusterRole", NAME, "", rules=rules_of(DAEMON_RULES)),
        _object(version, "ClusterRoleBinding", NAME, "", roleRef=role, subjects=[account]),
    ]


def _deployment(order: DeploymentOrder) -> Json:
    return {
        "replicas": order.replicas,
        "selector": {"matchLabels": _LABELS},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod(order)},
    }


def _pod(order: DeploymentOrder) -> Json:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": _apart()},
        "tolerations": [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _MOVES_AFTER_SECONDS,
            }
            for key in _LOST
        ],
        "containers": [_container(order)],
        "volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi"}}],
    }


def _apart() -> Json:
    """Replicas on other nodes, and in other zones, where there are any."""
    terms = [
        {
            "weight": weight,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": _LABELS},
                "topologyKey": key,
            },
        }
        for weight, key in ((100, "kubernetes.io/hostname"), (50, "topology.kubernetes.io/zone"))
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _container(order: DeploymentOrder) -> Json:
    cpu, memory = next(
        (size for most, size in SIZES.items() if order.nodes <= most), SIZES[max(SIZES)]
    )
    return {
        "name": "daemon",
        "image": order.image,
        "args": ["daemon", "run", f"--metrics-bind-address=$(POD_IP):{PORT}", *order.arguments],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": STATE},
            {"name": "NODELIFE_STATE_DIR", "value": f"{STATE}/state"},
            {"name": "NODELIFE_RUNTIME_DIR", "value": f"{STATE}/run"},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "startupProbe": {**_probe("/healthz"), "failureThreshold": 30, "periodSeconds": 2},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5},
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "state", "mountPath": STATE}],
    }


def _probe(path: str) -> Json:
    return {"httpGet": {"path": path, "port": "metrics"}, "timeoutSeconds": 5}


def _network_policy() -> Json:
    """In: scrapers and probes. Out: the API server, whatever its address, and DNS."""
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {
        "podSelector": {"matchLabels": _LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": PORT}]}],
        "egress": [{"ports": [{"port": 443}, {"port": 6443}, *dns]}],
    }


def _service() -> Json:
    return {
        "clusterIP": "None",
        "selector": _LABELS,
        "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}],
    }
