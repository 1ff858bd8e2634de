"""`kubectl nodelife daemon install`: prints what makes a service manager or a cluster run it."""

from __future__ import annotations

from typing import Any

import click

from kubectl_nodelife.commands import ask, service_units
from kubectl_nodelife.commands.enforce_flags import controller_names
from kubectl_nodelife.commands.flags import Connection, connection_arguments, connection_flags
from kubectl_nodelife.commands.notify_flags import notify_of
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal


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
    terminal.write(service_units.unit(manager, known, connection_arguments(connection)))


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

    from kubectl_nodelife.commands.deployment import DeploymentOrder, objects

    made = json.loads(json.dumps(objects(DeploymentOrder()._replace(**wanted))))  # nothing shared
    terminal.write(yaml.safe_dump_all(made, sort_keys=False, width=100))
