"""`kubectl nodelife rbac`: the least ClusterRole with which everything can be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from kubectl_nodelife.commands.flags import output_flags
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, render

NAME = "nodelife-reader"

# API group, resources, verbs. A pod is fetched by name only to read the control plane's flags.
RULES = (
    ("", ("nodes",), ("list", "watch")),
    ("", ("pods",), ("get", "list", "watch")),
    ("coordination.k8s.io", ("leases",), ("list", "watch")),
    ("apps", ("daemonsets", "controllerrevisions"), ("list", "watch")),
    ("", ("namespaces",), ("get",)),  # kube-system's UID tells which cluster it is
    # For drain-plan and budgets; what of it is not granted they leave open, and say so.
    (
        "",
        (
            "events",  # for replay
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "replicationcontrollers",
            "services",
        ),
        ("list",),
    ),
    ("apps", ("deployments", "replicasets", "statefulsets"), ("list",)),
    ("autoscaling", ("horizontalpodautoscalers",), ("list",)),
    ("batch", ("jobs",), ("list",)),
    ("discovery.k8s.io", ("endpointslices",), ("list",)),
    ("policy", ("poddisruptionbudgets",), ("list",)),
    ("storage.k8s.io", ("storageclasses",), ("list",)),
    (
        "admissionregistration.k8s.io",
        (
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ),
        ("list",),
    ),
)


class RolePage:
    """The role as an answer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """None: a role is a document."""
        return ()

    def document(self) -> dict[str, Any]:
        """The ClusterRole."""
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": self._name},
            "rules": [
                {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
                for group, resources, verbs in RULES
            ],
        }

    def names(self) -> Iterable[str]:
        """clusterrole.rbac.authorization.k8s.io/NAME"""
        yield f"clusterrole.rbac.authorization.k8s.io/{self._name}"


@click.command()
@click.option("--name", default=NAME, show_default=True, help="The role's name.")
@output_flags("yaml", "json", "name")
def rbac(name: str, output: str, no_headers: bool) -> None:
    """Print the least ClusterRole for the daemon and for first looks. It cannot write anything.

    \b
    Examples:
      kubectl nodelife rbac | kubectl apply -f -
      kubectl create clusterrolebinding nodelife --clusterrole=nodelife-reader --user=you
    """
    terminal.write(render(RolePage(name), output))
