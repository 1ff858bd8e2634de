"""The objects that run the daemon in a cluster: `daemon install --kind deployment`.

Two replicas watch the cluster independently of one another, and both answer. In dry-run neither
writes anything, so that none must lead; where they enforce, a Lease in their own namespace says
which one does, and the other waits for it.

A Namespace is among them only where it is for the daemon alone. Printed for one that is there, it
would put Pod Security `restricted` on the pods of others as well, and `kubectl delete -f` would
delete them all.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kubectl_nodelife import __version__
from kubectl_nodelife.commands.rbac import (
    DAEMON_RULES,
    RBAC_GROUP,
    Json,
    enforce_roles,
    rule,
    rules_of,
)
from kubectl_nodelife.daemon.flags import DaemonFlags, MetricsOptions
from kubectl_nodelife.daemon.notice_delivery import TOKEN
from kubectl_nodelife.daemon.server import DEFAULT_PORT as ANSWER_PORT
from kubectl_nodelife.kube.names import is_dns_label

NAME: Final = "kubectl-nodelife"
PORT: Final = 9876
USER: Final = 65532
STATE: Final = "/var/lib/nodelife"
SIZES: Final = {100: ("50m", "96Mi"), 1_000: ("200m", "192Mi"), 5_000: ("1", "512Mi")}
"""Up to so many nodes: what a replica asks for, cpu and memory."""

OWN_NAMESPACE: Final = "nodelife"
SCRAPERS: Final = {"metrics": "enabled"}
"""The label of namespaces whose pods may scrape the metrics, as kubebuilder has it. Namespaces get
labels from administrators; a label of a pod could be set by every tenant."""

_LABELS: Final = {"app.kubernetes.io/name": NAME}
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MOVES_AFTER_SECONDS: Final = 30


class DeploymentOrder(NamedTuple):
    """The deployment that is asked for. `nodes`: of the cluster, about; `flags`: those that the
    user gave for `daemon run`; a webhook's token is in a Secret of our name, where there is one;
    `create_namespace`: the namespace is to be made too, as our own one always is.
    """

    namespace: str = OWN_NAMESPACE
    create_namespace: bool = False
    replicas: int = 2
    image: str = f"{NAME}:{__version__}"
    nodes: int = 1_000
    service_monitor: bool = False
    serve_answers: bool = False
    flags: DaemonFlags = DaemonFlags()

    @property
    def makes_namespace(self) -> bool:
        """True if the Namespace is among the objects."""
        return self.create_namespace or self.namespace == OWN_NAMESPACE


def why_not_in(namespace: str) -> str:
    """Why the daemon is not to be put into this namespace, "" where it may be."""
    if namespace == "default" or namespace.startswith("kube-"):
        return "it is not for the daemon alone: labels and Leases in it concern others"
    return "" if is_dns_label(namespace) else "no namespace can have this name"


def comments(order: DeploymentOrder) -> list[str]:
    """What the cluster must have that is not among the objects, a line each."""
    label = ",".join(f"{key}={value}" for key, value in SCRAPERS.items())
    lines = [
        f"Only pods in namespaces with the label {label} may scrape port {PORT}:",
        f"  kubectl label namespace NAMESPACE {label}",
    ]
    if not order.makes_namespace:
        security = "=".join(*_restricted().items())
        lines += [
            f"Namespace {order.namespace} is not printed (--create-namespace does). It must be "
            "there, for the daemon",
            "alone: who may create pods in it has the daemon's rights. Before Pod Security holds "
            "all its pods",
            "to `restricted`, see which of them would not pass:",
            f"  kubectl label --dry-run=server namespace {order.namespace} {security}",
        ]
    return lines


def objects(order: DeploymentOrder) -> list[Json]:
    """All objects, in an order in which they can be applied."""
    made = [_object("v1", "Namespace", order.namespace, "", metadata=_restricted())]
    made = [
        *(made if order.makes_namespace else ()),
        _object("v1", "ServiceAccount", NAME, order.namespace, automountServiceAccountToken=False),
        *_rights(order),
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


def _rights(order: DeploymentOrder) -> list[Json]:
    """A role and its binding for each namespace in which there are rights; "": everywhere."""
    granted: dict[str, list[Json]] = {"": rules_of(DAEMON_RULES)}
    if order.flags.orders.controllers:
        granted = _rights_to_enforce(order)
    return [made for namespace, rules in granted.items() for made in _role(order, namespace, rules)]


def _rights_to_enforce(order: DeploymentOrder) -> dict[str, list[Json]]:
    """As `rbac --mode enforce` grants them, with the Lease in the namespace of the pods."""
    from kubectl_nodelife.daemon.permissions import PolicyRule, merged

    roles = enforce_roles(order.flags.orders.controllers, order.namespace)
    for group, resources, verbs in DAEMON_RULES:
        roles[""] += [PolicyRule(group, each, "", verbs) for each in resources]
    roles[""] = list(merged(roles[""]))
    return {namespace: [rule(each) for each in rules] for namespace, rules in roles.items()}


def _role(order: DeploymentOrder, namespace: str, rules: list[Json]) -> list[Json]:
    kind = "Role" if namespace else "ClusterRole"
    role = {"apiGroup": RBAC_GROUP, "kind": kind, "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": order.namespace}
    version = f"{RBAC_GROUP}/v1"
    return [
        _object(version, kind, NAME, namespace, rules=rules),
        _object(version, f"{kind}Binding", NAME, namespace, roleRef=role, subjects=[account]),
    ]


def _deployment(order: DeploymentOrder) -> Json:
    return {
        "replicas": order.replicas,
        "selector": {"matchLabels": _LABELS},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod(order)},
    }


def _pod(order: DeploymentOrder) -> Json:
    enforces = bool(order.flags.orders.controllers)
    return {
        **({"priorityClassName": "system-cluster-critical"} if enforces else {}),
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
        "args": _arguments(order),
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": STATE},
            {"name": "NODELIFE_STATE_DIR", "value": f"{STATE}/state"},
            {"name": "NODELIFE_RUNTIME_DIR", "value": f"{STATE}/run"},
            *_webhook_token(order),
        ],
        "ports": _ports(order),
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


def _arguments(order: DeploymentOrder) -> list[str]:
    orders = order.flags.orders
    if orders.controllers:
        orders = orders._replace(lease_namespace=order.namespace, wait=True, yes=True)
    flags = order.flags._replace(
        orders=orders,
        metrics=MetricsOptions(bind_address=f"$(POD_IP):{PORT}"),
        answer_port=ANSWER_PORT if order.serve_answers else None,
    )
    return ["daemon", "run", "--in-cluster", *flags.arguments(secrets=True)]


def _webhook_token(order: DeploymentOrder) -> list[Json]:
    """The key webhook-token of a Secret that is made elsewhere."""
    source = {"secretKeyRef": {"name": NAME, "key": "webhook-token", "optional": True}}
    return [{"name": TOKEN, "valueFrom": source}] * bool(order.flags.notify.webhook)


def _ports(order: DeploymentOrder) -> list[Json]:
    """That of answers is on the pod's own loopback: its name is how `--via` finds it."""
    ports: list[Json] = [{"name": "metrics", "containerPort": PORT}]
    return ports + [{"name": "answers", "containerPort": ANSWER_PORT}] * order.serve_answers


def _probe(path: str) -> Json:
    return {"httpGet": {"path": path, "port": "metrics"}, "timeoutSeconds": 5}


def _network_policy() -> Json:
    """In: scrapers; the probes of its own node are always let in. Out: the API server, whatever
    its address, and DNS.
    """
    scrapers = [{"namespaceSelector": {"matchLabels": SCRAPERS}}]
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {
        "podSelector": {"matchLabels": _LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": scrapers, "ports": [{"port": PORT, "protocol": "TCP"}]}],
        "egress": [{"ports": [{"port": 443}, {"port": 6443}, *dns]}],
    }


def _service() -> Json:
    return {
        "clusterIP": "None",
        "selector": _LABELS,
        "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}],
    }
