"""`kubectl nodelife daemon install`: prints what makes a service manager or a cluster run it.

For a service manager that is a systemd user unit or a launchd agent, which runs it at each login.

In a cluster two replicas watch it independently of one another, and both answer. In dry-run neither
writes anything, so that none must lead; where they enforce, a Lease in their own namespace says
which one does, and the other waits for it. A Namespace is among the objects only where it is for
the daemon alone. Printed for one that is there, it would put Pod Security `restricted` on the pods
of others as well, and `kubectl delete -f` would delete them all.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife import __version__
from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.access_rules import DAEMON_RULES
from kubectl_nodelife.commands.flags import Connection, connection_arguments, connection_flags
from kubectl_nodelife.commands.rbac import Json, enforce_roles, rule, rules_of
from kubectl_nodelife.daemon.flags import DEFAULTS, DaemonFlags, MetricsOptions, flags_named
from kubectl_nodelife.daemon.instance import installed_link, own_command
from kubectl_nodelife.daemon.paths import CachedIdentity
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import is_dns_label
from kubectl_nodelife.report import terminal

_KEPT = ("KUBECONFIG", "PATH", "NODELIFE_RUNTIME_DIR", "NODELIFE_STATE_DIR", "NODELIFE_CONFIG")
"""Variables that decide which cluster it is, and let credential plugins be found."""

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


@click.command("install")
@click.option("--print", "to_print", is_flag=True, help="Print it; nothing is installed.")
@click.option(
    "--for",
    "manager",
    type=click.Choice(("systemd", "launchd")),
    help="Default: what this system has.",
)
@click.option(
    "--kind",
    type=click.Choice(("service", "deployment")),
    default="service",
    show_default=True,
    help="For this machine, or objects for a cluster.",
)
@click.option("--image", metavar="IMAGE", help="With --kind deployment: made by the Containerfile.")
@click.option("--replicas", type=click.IntRange(1, 9), help="With --kind deployment; default 2.")
@click.option("--nodes", type=click.IntRange(1), help="About so many nodes: what it asks for.")
@click.option("--create-namespace", is_flag=True, help="With the Namespace of -n, restricted.")
@click.option("--service-monitor", is_flag=True, help="With one for Prometheus' operator.")
@click.option("--serve-answers", is_flag=True, help="With --kind deployment: for --via.")
@flags_named(
    *("--enforce", "--assume-stopped", "--webhook", "--notify-on", "--set"),
    enforce="With --kind deployment: not in dry-run.",
    webhook="With --kind deployment: post notices there.",
)
@connection_flags
def install(
    to_print: bool,
    manager: str | None,
    kind: str,
    flags: DaemonFlags,
    connection: Connection,
    **given: Any,
) -> None:
    """Print a systemd user unit or a launchd agent that runs the daemon at each login.

    With --kind deployment: the objects that run it in a cluster, in a namespace of its own
    (nodelife, which is printed too), or in that of -n.

    \b
    Examples:
      kubectl nodelife daemon install --print
      kubectl nodelife daemon install --print --for launchd
      kubectl nodelife daemon install --print --kind deployment --image IMAGE
      kubectl nodelife daemon install --print --kind deployment -n ops --create-namespace
      kubectl nodelife daemon install --print --kind deployment --serve-answers --enforce=pod-gc
    """
    if not to_print:
        raise BadInput(
            "this program installs nothing by itself",
            on="daemon install",
            remedy="give --print, and put the text where its first lines say",
        )
    flags.check()
    given |= {"namespace": connection.namespace, "flags": flags}
    wanted = {name: value for name, value in given.items() if value and value != DEFAULTS}
    if kind == "deployment":
        _check_deployment(manager, connection)
        if flags.orders.assume_stopped and not flags.orders.controllers:
            raise BadInput("it is for --enforce", on="--assume-stopped")
        _print_deployment(wanted)
        return
    if wanted.keys() - {"namespace"}:
        raise BadInput("such flags are for --kind deployment", on="daemon install")
    if connection.token:
        raise BadInput(
            "a token would stand in the unit's text for everyone to read",
            on="--token",
            remedy="put it into the kubeconfig, or its file's path as tokenFile",
        )
    cluster = ask.resolve(connection)
    terminal.write(unit(manager, cluster, connection_arguments(connection)))


def _check_deployment(manager: str | None, connection: Connection) -> None:
    """Raises BadInput for what a pod does not take over, and where it must not be."""

    if manager is not None:
        raise BadInput("a Deployment has no such manager", on="--for")
    if connection_arguments(connection._replace(namespace=None)):
        raise BadInput(
            "a pod takes its own service account and the cluster that it is in",
            on="--kind deployment",
            remedy="leave the connection's flags out",
        )
    if why := _why_not_in(connection.namespace or OWN_NAMESPACE):
        raise BadInput(
            why,
            on=f"namespace {connection.namespace}",
            remedy=f"leave -n out ({OWN_NAMESPACE}), or name one that is the daemon's alone",
        )


def _print_deployment(wanted: dict[str, Any]) -> None:
    import yaml

    order = DeploymentOrder()._replace(**wanted)
    terminal.write("".join(f"# {line}\n" for line in _comments(order)))
    terminal.write(yaml.safe_dump_all(_objects(order), sort_keys=False, width=100))


def _why_not_in(namespace: str) -> str:
    """Why the daemon is not to be put into this namespace, "" where it may be."""
    if namespace == "default" or namespace.startswith("kube-"):
        return "it is not for the daemon alone: labels and Leases in it concern others"
    return "" if is_dns_label(namespace) else "no namespace can have this name"


def _comments(order: DeploymentOrder) -> list[str]:
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


def _objects(order: DeploymentOrder) -> list[Json]:
    """All objects, in an order in which they can be applied: `deployment.yaml` with these values.

    The template's filter `yaml` quotes what is text of the user.
    """
    import yaml
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from kubectl_nodelife.daemon.notices import TOKEN
    from kubectl_nodelife.daemon.server import DEFAULT_PORT

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
        "arguments": _arguments(order, DEFAULT_PORT),
        "token_variable": TOKEN if order.flags.notify.webhook else "",
        "port": PORT,
        "answer_port": DEFAULT_PORT if order.serve_answers else 0,
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


def _arguments(order: DeploymentOrder, answer_port: int) -> list[str]:
    orders = order.flags.orders
    if orders.controllers:
        orders = orders._replace(lease_namespace=order.namespace, wait=True, yes=True)
    flags = order.flags._replace(
        orders=orders,
        metrics=MetricsOptions(bind_address=f"$(POD_IP):{PORT}"),
        answer_port=answer_port if order.serve_answers else None,
    )
    return ["daemon", "run", "--in-cluster", *flags.arguments(secrets=True)]


def unit(manager: str | None, cluster: CachedIdentity, arguments: Sequence[str]) -> str:
    """The text for the service manager; None: the one of this system."""
    if manager is None:
        manager = "launchd" if sys.platform == "darwin" else "systemd"
    link = installed_link()  # an upgrade by krew removes the folder that it leads to now
    command = [*([link] if link else own_command()), "daemon", "run", *arguments]
    environment = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    make = _launchd if manager == "launchd" else _systemd
    return make(cluster, command, environment)


def _systemd(cluster: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    name = f"nodelife-{cluster.identity}.service"
    quoted = " ".join(_systemd_quoted(word) for word in command)
    variables = "".join(
        f"Environment={_systemd_quoted(f'{key}={value}')}\n" for key, value in environment.items()
    )
    return (
        f"# ~/.config/systemd/user/{name}\n"
        f"# then: systemctl --user daemon-reload && systemctl --user enable --now {name}\n"
        "[Unit]\n"
        f"Description=kubectl nodelife daemon for {cluster.context or cluster.server}\n"
        "After=network-online.target\n\n"
        "[Service]\n"
        "Type=simple\n"
        f"{variables}"
        f"ExecStart={quoted}\n"
        "ExecReload=/bin/kill -HUP $MAINPID\n"
        "Restart=on-failure\n"
        "RestartSec=10\n\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _systemd_quoted(word: str) -> str:
    """As systemd reads it: its own specifiers and variables doubled, blanks in quotes."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word == shlex.quote(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _launchd(cluster: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    import plistlib

    label = f"dev.nodelife.{cluster.identity}"
    agent = {
        "Label": label,
        "ProgramArguments": command,
        "EnvironmentVariables": environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
    }
    path = f"~/Library/LaunchAgents/{label}.plist"
    comment = f"<!-- {path}, then: launchctl load {path} -->\n"
    head, _, rest = plistlib.dumps(agent, sort_keys=False).decode().partition("\n")
    return f"{head}\n{comment}{rest}"
