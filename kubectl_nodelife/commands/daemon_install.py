"""`kubectl nodelife daemon install`: prints what makes a service manager or a cluster run it.

For a service manager that is a systemd user unit or a launchd agent, which runs it at each login.

With `--kind deployment` they are the objects that run the daemon in a cluster. Two replicas watch
the cluster independently of one another, and both answer. In dry-run neither writes anything, so
that none must lead; where they enforce, a Lease in their own namespace says which one does, and the
other waits for it.
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
from kubectl_nodelife.commands.daemon_flags import controller_names, notify_of
from kubectl_nodelife.commands.flags import Connection, connection_arguments, connection_flags
from kubectl_nodelife.commands.rbac import DAEMON_RULES, enforce_roles, rule, rules_of
from kubectl_nodelife.daemon.answer_port import DEFAULT_PORT as ANSWER_PORT
from kubectl_nodelife.daemon.identity_cache import CachedIdentity
from kubectl_nodelife.daemon.notify.delivery import TOKEN
from kubectl_nodelife.daemon.spawning import installed_link, own_command
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

_KEPT = ("KUBECONFIG", "PATH", "NODELIFE_RUNTIME_DIR", "NODELIFE_STATE_DIR", "NODELIFE_CONFIG")
"""Variables that decide which cluster it is, and let credential plugins be found."""


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
@click.option("--service-monitor", is_flag=True, help="With one for Prometheus' operator.")
@click.option("--serve-answers", is_flag=True, help="With --kind deployment: for --via.")
@click.option("--enforce", metavar="C[,C...]", help="With --kind deployment: not in dry-run.")
@click.option(
    "--assume-stopped", metavar="C[,C...]", help="You vouch that nothing else runs these."
)
@click.option("--webhook", metavar="URL", help="With --kind deployment: post notices there.")
@click.option("--notify-on", metavar="LIST", help="Only these events.")
@click.option("--set", "arguments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@connection_flags
def install(
    to_print: bool,
    manager: str | None,
    kind: str,
    connection: Connection,
    **given: Any,
) -> None:
    """Print a systemd user unit or a launchd agent that runs the daemon at each login.

    With --kind deployment: the objects that run it in a cluster, in the namespace of -n (nodelife).

    \b
    Examples:
      kubectl nodelife daemon install --print
      kubectl nodelife daemon install --print --for launchd
      kubectl nodelife daemon install --print --kind deployment --image IMAGE
      kubectl nodelife daemon install --print --kind deployment --serve-answers --enforce=pod-gc
    """
    if not to_print:
        raise BadInput(
            "this program installs nothing by itself",
            on="daemon install",
            remedy="give --print, and put the text where its first lines say",
        )
    wanted = _of_deployment(given, connection)
    if kind == "deployment":
        _check_deployment(manager, connection)
        if "assume_stopped" in wanted and "enforce" not in wanted:
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
    known = ask.resolve(connection)
    terminal.write(unit(manager, known, connection_arguments(connection)))


def _of_deployment(given: dict[str, Any], connection: Connection) -> dict[str, Any]:
    """The fields of a DeploymentOrder that were given. Raises BadInput."""
    notify_of({"notify": "", **{name: given[name] or "" for name in ("webhook", "notify_on")}})
    found = {
        **given,
        "namespace": connection.namespace,
        "enforce": controller_names(given["enforce"], "--enforce"),
        "assume_stopped": controller_names(given["assume_stopped"], "--assume-stopped"),
        "arguments": tuple(f"--set={assignment}" for assignment in given["arguments"]),
    }
    return {name: value for name, value in found.items() if value}


def _check_deployment(manager: str | None, connection: Connection) -> None:
    """Raises BadInput for what a pod does not take over."""
    if manager is not None:
        raise BadInput("a Deployment has no such manager", on="--for")
    if connection_arguments(connection._replace(namespace=None)):
        raise BadInput(
            "a pod takes its own service account and the cluster that it is in",
            on="--kind deployment",
            remedy="leave the connection's flags out",
        )


def _print_deployment(wanted: dict[str, Any]) -> None:
    import json

    import yaml


    made = json.loads(json.dumps(objects(DeploymentOrder()._replace(**wanted))))  # nothing shared
    terminal.write(yaml.safe_dump_all(made, sort_keys=False, width=100))


def unit(manager: str | None, known: CachedIdentity, arguments: Sequence[str]) -> str:
    """The text for the service manager; None: the one of this system."""
    if manager is None:
        manager = "launchd" if sys.platform == "darwin" else "systemd"
    link = installed_link()  # an upgrade by krew removes the folder that it leads to now
    command = [*([link] if link else own_command()), "daemon", "run", *arguments]
    environment = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    make = _launchd if manager == "launchd" else _systemd
    return make(known, command, environment)


def _systemd(known: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    name = f"nodelife-{known.identity}.service"
    quoted = " ".join(_systemd_quoted(word) for word in command)
    variables = "".join(
        f"Environment={_systemd_quoted(f'{key}={value}')}\n" for key, value in environment.items()
    )
    return (
        f"# ~/.config/systemd/user/{name}\n"
        f"# then: systemctl --user daemon-reload && systemctl --user enable --now {name}\n"
        "[Unit]\n"
        f"Description=kubectl nodelife daemon for {known.context or known.server}\n"
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


def _launchd(known: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    import plistlib

    label = f"dev.nodelife.{known.identity}"
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
    """The deployment that is asked for. `nodes`: of the cluster, about; `arguments`: more for
    `daemon run`; `enforce`: controllers, by our names, and those that nothing else runs
    (`assume_stopped`); `webhook`: where notices go, with a token from a Secret of our name, where
    there is one.
    """

    namespace: str = "nodelife"
    replicas: int = 2
    image: str = f"{NAME}:{__version__}"
    nodes: int = 1_000
    service_monitor: bool = False
    serve_answers: bool = False
    enforce: tuple[str, ...] = ()
    assume_stopped: tuple[str, ...] = ()
    webhook: str = ""
    notify_on: str = ""
    arguments: tuple[str, ...] = ()


def objects(order: DeploymentOrder) -> list[Json]:
    """All objects, in an order in which they can be applied."""
    made = [
        _object("v1", "Namespace", order.namespace, "", metadata=_restricted()),
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
    if order.enforce:
        granted = _rights_to_enforce(order)
    return [made for namespace, rules in granted.items() for made in _role(order, namespace, rules)]


def _rights_to_enforce(order: DeploymentOrder) -> dict[str, list[Json]]:
    """As `rbac --mode enforce` grants them, with the Lease in the namespace of the pods."""
    from kubectl_nodelife.daemon.permissions import merged

    roles = enforce_roles(order.enforce, order.namespace)
    dry_run = ((group, each, "", verbs) for group, names, verbs in DAEMON_RULES for each in names)
    roles[""] = list(merged((*roles[""], *dry_run)))
    return {namespace: [rule(*row) for row in rows] for namespace, rows in roles.items()}


def _role(order: DeploymentOrder, namespace: str, rules: list[Json]) -> list[Json]:
    kind = "Role" if namespace else "ClusterRole"
    role = {"apiGroup": _RBAC, "kind": kind, "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": order.namespace}
    version = f"{_RBAC}/v1"
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
    priority = {"priorityClassName": "system-cluster-critical"} if order.enforce else {}
    return {
        **priority,
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
    words = ["daemon", "run", "--in-cluster", f"--metrics-bind-address=$(POD_IP):{PORT}"]
    words += [f"--serve-answers={ANSWER_PORT}"] if order.serve_answers else []
    if order.enforce:
        words += [f"--enforce={','.join(order.enforce)}", f"--lease-namespace={order.namespace}"]
        stopped = ",".join(order.assume_stopped)
        words += [f"--assume-stopped={stopped}"] if stopped else []
        words += ["--wait", "--yes"]
    words += [f"--webhook={order.webhook}"] if order.webhook else []
    words += [f"--notify-on={order.notify_on}"] if order.notify_on else []
    return words + list(order.arguments)


def _webhook_token(order: DeploymentOrder) -> list[Json]:
    """The key webhook-token of a Secret that somebody else makes."""
    source = {"secretKeyRef": {"name": NAME, "key": "webhook-token", "optional": True}}
    return [{"name": TOKEN, "valueFrom": source}] * bool(order.webhook)


def _ports(order: DeploymentOrder) -> list[Json]:
    """That of answers is on the pod's own loopback: its name is how `--via` finds it."""
    ports: list[Json] = [{"name": "metrics", "containerPort": PORT}]
    return ports + [{"name": "answers", "containerPort": ANSWER_PORT}] * order.serve_answers


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
