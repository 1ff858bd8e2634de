"""The cost of commands compared with kubectl's, on a real control plane (KUBEBUILDER_ASSETS).

Each is a whole process, run three times: the least processor time and wall time, and the most
memory. Our daemon is started once and queried after that; its cost until it is synced, and its
memory then, are given separately. Names end in the command; `nodelife` is ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from bench import Stopwatch
from bench._lost_nodes import API_SERVER, AUDIT_POLICY, Fleet, cpu_seconds, resident_bytes
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.enforcing import Enforcer, least_privilege

NODES, PODS = 1_000, 30_000
TIMES = 3

_KUBECTL = (
    "get nodes",
    "get pods -A",
    "get pods -A -o json",
    "drain {node} --dry-run=server --ignore-daemonsets --force",
)
_ALONE = ("status --no-daemon", "audit -A", "drain-plan {node} --ignore-daemonsets --force")
_ASKED = ("status", "explain node {node}", "drain-plan {node} --ignore-daemonsets --force")


class Cost(NamedTuple):
    """The cost of one command: seconds, and the most bytes."""

    cpu: float
    wall: float
    memory: int


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Run all commands, one after another. `seed` is not needed."""
    with control_plane(api_server=API_SERVER, policy=AUDIT_POLICY) as plane:
        fleet = Fleet(plane, nodes)
        each = pods // nodes
        fleet.furnish((f"{name}-{i}", name) for name in fleet.names for i in range(each))
        with fleet, stopwatch:
            return _measured(plane, fleet.names[0])


def _measured(plane: ControlPlane, node: str) -> dict[str, object]:
    daemon = Enforcer(least_privilege(plane), plane.folder / "daemon", "--enforce=")
    kubectl = [str(plane.programs / "kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    ours = [sys.executable, "-m", "kubectl_nodelife"]
    costs = {f"kubectl {line}": _cost(kubectl, line, node, os.environ) for line in _KUBECTL}
    costs |= {f"nodelife {line}": _cost(ours, line, node, daemon.environment) for line in _ALONE}
    daemon.start(wait=False)
    assert daemon.process is not None
    try:
        while daemon.run("daemon", "status").returncode:
            time.sleep(0.5)
        synced = {
            "daemonSyncCpuSeconds": round(cpu_seconds(daemon.process.pid), 2),
            "daemonResidentBytes": resident_bytes(daemon.process.pid),
        }
        costs |= {
            f"nodelife {line} (asks the daemon)": _cost(ours, line, node, daemon.environment)
            for line in _ASKED
        }
    finally:
        daemon.stop()
    return {**synced, "commands": {line: cost._asdict() for line, cost in costs.items()}}


def _cost(program: list[str], line: str, node: str, environ: Mapping[str, str]) -> Cost:
    words = [word.format(node=node) for word in line.split()]
    costs = [_once([*program, *words], environ) for _ in range(TIMES)]
    return Cost(
        round(min(cost.cpu for cost in costs), 3),
        round(min(cost.wall for cost in costs), 3),
        max(cost.memory for cost in costs),
    )


def _once(command: list[str], environ: Mapping[str, str]) -> Cost:
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    assert process.returncode in (0, 4), f"{command}: {said.decode()}"
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024)
