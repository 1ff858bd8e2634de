"""The objects that run the daemon in a cluster: `daemon install --kind deployment`.

Two replicas watch the cluster independently of one another, and both answer. In dry-run neither
writes anything, so that none must lead; where they enforce, a Lease in their own namespace says
which one does, and the other waits for it.

A Namespace is among them only where it is for the daemon alone. Printed for one that is there, it
would put Pod Security `restricted` on the pods of others as well, and `kubectl delete -f` would
delete them all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife import __version__
from kubectl_nodelife.commands.rbac import (
    DAEMON_RULES,
    Json,
    enforce_roles,
    rule,
    rules_of,
)
from kubectl_nodelife.daemon.flags import DaemonFlags, MetricsOptions
from kubectl_nodelife.daemon.notices import TOKEN
from kubectl_nodelife.daemon.server import DEFAULT_PORT as ANSWER_PORT
from kubectl_nodelife.kube.names import is_dns_label

NAME: Final = "kubectl-nodelife"
PORT: Final = 9876
USER: Final = 65532
SIZES: Final = {100: ("50m", "96Mi"), 1_000: ("200m", "192Mi"), 5_000: ("1", "512Mi")}
"""Up to so many nodes: what a replica asks for, cpu and memory."""

OWN_NAMESPACE: Final = "nodelife"
SCRAPERS: Final = {"metrics": "enabled"}
"""The label of namespaces whose pods may scrape the metrics, as kubebuilder has it. Namespaces get
labels from administrators; a label of a pod could be set by every tenant."""

RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of a namespace: Pod Security admission holds the pods to `restricted`."""


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
        security = "=".join(*RESTRICTED.items())
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
    """All objects, in an order in which they can be applied: `deployment.yaml` with these values.

    The template's filter `yaml` quotes what is text of the user.
    """
    import yaml
    from jinja2 import Environment, PackageLoader, StrictUndefined

    orders = order.flags.orders
    cpu, memory = next(
        (size for most, size in SIZES.items() if order.nodes <= most), SIZES[max(SIZES)]
    )
    values = {
        **order._asdict(),
        "makes_namespace": order.makes_namespace,
        "restricted": RESTRICTED,
        "roles": _roles(order),
        "enforces": bool(orders.controllers),
        "user": USER,
        "arguments": _arguments(order),
        "token_variable": TOKEN if order.flags.notify.webhook else "",
        "port": PORT,
        "answer_port": ANSWER_PORT if order.serve_answers else 0,
        "cpu": cpu,
        "memory": memory,
        "scrapers": SCRAPERS,
    }
    environment = Environment(
        loader=PackageLoader("kubectl_nodelife.commands", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["yaml"] = _on_one_line
    return list(yaml.safe_load_all(environment.get_template("deployment.yaml").render(values)))


def _on_one_line(value: object) -> str:
    """The value as YAML, each text of it in quotes."""
    import yaml

    quoted = yaml.safe_dump(
        value, default_flow_style=True, default_style='"', sort_keys=False, width=float("inf")
    )
    return quoted.strip()


def _roles(order: DeploymentOrder) -> list[Json]:
    """What is granted in each namespace in which there are rights; "": everywhere."""
    granted: dict[str, list[Json]] = {"": rules_of(DAEMON_RULES)}
    if order.flags.orders.controllers:
        granted = _rights_to_enforce(order)
    return [
        {"kind": "Role" if namespace else "ClusterRole", "namespace": namespace, "rules": rules}
        for namespace, rules in granted.items()
    ]


def _rights_to_enforce(order: DeploymentOrder) -> dict[str, list[Json]]:
    """As `rbac --mode enforce` grants them, with the Lease in the namespace of the pods."""
    from kubectl_nodelife.daemon.permissions import PolicyRule, merged

    roles = enforce_roles(order.flags.orders.controllers, order.namespace)
    for group, resources, verbs in DAEMON_RULES:
        roles[""] += [PolicyRule(group, each, "", verbs) for each in resources]
    roles[""] = list(merged(roles[""]))
    return {namespace: [rule(each) for each in rules] for namespace, rules in roles.items()}


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
