"""`kubectl nodelife daemon install`: prints what makes a service manager or a cluster run it.

For a service manager that is a systemd user unit or a launchd agent, which runs it at each login.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.daemon_flags import flags_named
from kubectl_nodelife.commands.flags import Connection, connection_arguments, connection_flags
from kubectl_nodelife.daemon.flags import DEFAULTS, DaemonFlags
from kubectl_nodelife.daemon.instance import installed_link, own_command
from kubectl_nodelife.daemon.paths import CachedIdentity
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
    known = ask.resolve(connection)
    terminal.write(unit(manager, known, connection_arguments(connection)))


def _check_deployment(manager: str | None, connection: Connection) -> None:
    """Raises BadInput for what a pod does not take over, and where it must not be."""
    from kubectl_nodelife.commands.deployment import OWN_NAMESPACE, why_not_in

    if manager is not None:
        raise BadInput("a Deployment has no such manager", on="--for")
    if connection_arguments(connection._replace(namespace=None)):
        raise BadInput(
            "a pod takes its own service account and the cluster that it is in",
            on="--kind deployment",
            remedy="leave the connection's flags out",
        )
    if why := why_not_in(connection.namespace or OWN_NAMESPACE):
        raise BadInput(
            why,
            on=f"namespace {connection.namespace}",
            remedy=f"leave -n out ({OWN_NAMESPACE}), or name one that is the daemon's alone",
        )


def _print_deployment(wanted: dict[str, Any]) -> None:
    import yaml

    from kubectl_nodelife.commands.deployment import DeploymentOrder, comments, objects

    order = DeploymentOrder()._replace(**wanted)
    terminal.write("".join(f"# {line}\n" for line in comments(order)))
    terminal.write(yaml.safe_dump_all(objects(order), sort_keys=False, width=100))


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
