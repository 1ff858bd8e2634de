"""`kubectl nodelife sandbox`: a simulated cluster, served as a Kubernetes API on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.flags import max_file_size
from kubectl_nodelife.commands.simulate import settings_of
from kubectl_nodelife.controllers import CONTROLLERS, IN_KUBELETS, make_controllers
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.sandbox.tls import Sandbox

NAMES = (*CONTROLLERS, IN_KUBELETS)
SCENARIO = b"""
apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {name: sandbox}
spec:
  generate: {zones: 3, nodesPerZone: 3, podsPerNode: 8, daemonSets: 2}
  kubelet: {podStartDuration: 2s, podStopDuration: 2s}
"""


@click.command()
@click.option("-f", "--filename", metavar="PATH", help="A scenario, or a dump: a file or a folder.")
@click.option(
    "--controllers",
    default="all",
    show_default=True,
    metavar="all|none|NAME,...",
    help=f"Our controllers that run inside: {', '.join(NAMES)}.",
)
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@max_file_size
@click.option(
    "-v", "--v", "level", type=click.IntRange(0), default=0, metavar="LEVEL", help="1: requests."
)
def sandbox(
    filename: str | None, controllers: str, assignments: tuple[str, ...], level: int
) -> None:
    """Serve a simulated cluster on loopback until it is interrupted. Nothing of yours is touched.

    Prints one line to evaluate, `export KUBECONFIG=PATH`, as soon as it serves; Ctrl-C ends it, and
    that file goes with it. Annotate a node
    with sandbox.nodelife.dev/heartbeats=stop (or start) to silence (or wake) its kubelet,
    and with sandbox.nodelife.dev/reboot=20s to reboot its machine.

    \b
    Examples:
      kubectl nodelife sandbox
      kubectl nodelife sandbox -f zone-outage.yaml --controllers none
      kubectl nodelife sandbox -f dump/
      kubectl nodelife sandbox --set node-monitor-grace-period=20s
    """
    import asyncio

    from kubectl_nodelife.kubelet.releases import rules_for
    from kubectl_nodelife.sandbox.cluster import SandboxCluster, read_beginning
    from kubectl_nodelife.sandbox.tls import make_sandbox
    from kubectl_nodelife.sim.scenario import STATUS_MANAGERS

    beginning = read_beginning(filename, SCENARIO, time.time_ns(), content_at)
    settings = settings_of(beginning.setting, assignments)
    wanted = _wanted(controllers)
    cluster = SandboxCluster(
        beginning.setting.under(settings),
        make_controllers(settings, wanted),
        documents=beginning.documents,
        status_rules=rules_for(settings.profile) if STATUS_MANAGERS in wanted else None,
    )
    served = make_sandbox(cluster, f"{beginning.setting.profile.name}.0", verbose=level > 0)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(served))


def content_at(path: str) -> bytes:
    """The bytes of a file; of a folder of them, one List of all their objects. Raises BadInput."""
    if not os.path.isdir(path):
        return read_named(path)
    import msgspec

    from kubectl_nodelife.dumps.dump import read_dump
    from kubectl_nodelife.kube.kinds import Kind

    items: list[dict[str, Any]] = []

    def keep(kind: Kind, document: Any) -> None:
        fields = document if isinstance(document, dict) else msgspec.json.decode(document)
        items.append({"apiVersion": kind.api_version, "kind": kind.name, **fields})

    read_dump([path], seen=keep)
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _wanted(names: str) -> list[str]:
    """The names of the controllers to run inside. Raises BadInput."""
    if names in ("none", "all"):
        return list(NAMES) if names == "all" else []
    wanted = names.split(",")
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        raise BadInput(
            f"there is no controller {unknown[0]!r}",
            on="--controllers",
            remedy=f"name some of {', '.join(NAMES)}, or all, or none",
        )
    return wanted


async def _serve(served: Sandbox) -> None:
    """Serve until SIGTERM, SIGINT, or SIGHUP of a terminal that goes (not where nohup keeps it)."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    ends = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ends.append(signal.SIGHUP)
    for number in ends:
        loop.add_signal_handler(number, stopped.set)
    async with served:
        terminal.note(f"serves until Ctrl-C or SIGTERM; {served.kubeconfig} is taken away then")
        terminal.write(f"export KUBECONFIG={served.kubeconfig}\n")
        terminal.flush()
        await served.run_until(stopped)
