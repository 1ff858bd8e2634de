"""A leader of an upgrade, while the nodes in work wait for other programs to change them.

On a real control plane (KUBEBUILDER_ASSETS), with Leases renewed every ten seconds. A tenth of the
nodes is drained and waits for its change (`--wait`), the others are still to be claimed and have
the pods. `CorePercent` is the leader's share of one core in a quiet minute, `ClaimSeconds` how long
it took until all nodes of the first step were in work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench import BenchFailed, Stopwatch
from bench._lost_nodes import API_SERVER, AUDIT_POLICY, Fleet, cpu_seconds, resident_bytes
from tests.real.control_plane import ControlPlane, control_plane

NODES, PODS = 5_000, 10_000
QUIET_S = 60.0
SETTLE_S = 15.0
PATIENCE_S = 900.0
_IN_WORK_SHARE = 10
_WORKING = "/api/v1/nodes?labelSelector=nodelife.dev%2Fupgrade-state%3DWorking"
_FLAGS = (
    *("--all", "--wait", "--target", "bootID=changed", "--zones", "0", "--work-timeout", "4h"),
    *("--max-unavailable", f"{100 // _IN_WORK_SHARE}%", "--low-water", "0", "--force", "--yes"),
    *("--canary-image", "registry.k8s.io/pause:3.10"),
)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Claim a tenth of the nodes, then a minute in which nothing ends. `seed` is not needed."""
    with control_plane(api_server=API_SERVER, policy=AUDIT_POLICY) as plane:
        plane.api.create("/api/v1/namespaces", {"metadata": {"name": "nodelife"}})
        fleet = Fleet(plane, nodes)
        first = fleet.names[: nodes // _IN_WORK_SHARE]
        others = fleet.names[len(first) :]
        fleet.furnish((f"p{i}", others[i % len(others)]) for i in range(pods))
        with fleet, _leader(plane, first) as leader:
            try:
                claimed_s = _until_working(plane, leader, len(first))
                time.sleep(SETTLE_S)
                before = cpu_seconds(leader.pid)
                with stopwatch:
                    time.sleep(QUIET_S)
                percent = 100 * (cpu_seconds(leader.pid) - before) / QUIET_S
                resident = resident_bytes(leader.pid)
            finally:
                leader.kill()
    return {
        "inWorkNodes": len(first),
        "ClaimSeconds": round(claimed_s, 1),
        "CorePercent": round(percent, 2),
        "ResidentBytes": resident,
    }


def _leader(plane: ControlPlane, first: list[str]) -> subprocess.Popen[bytes]:
    words = ("upgrade", "start", *_FLAGS, "--canary", ",".join(first), "--insecure-enforce")
    command = [sys.executable, "-m", "kubectl_nodelife", *words]
    folder = plane.folder / "leader"
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder)},
        )


def _until_working(plane: ControlPlane, leader: subprocess.Popen[bytes], count: int) -> float:
    """Seconds until so many nodes are in work. Raises BenchFailed where they never are."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_S:
        if leader.poll() is not None:
            break
        if len(plane.api.get(_WORKING)["items"]) >= count:
            return time.monotonic() - began
        time.sleep(2)
    said = (plane.folder / "leader" / "log").read_text(errors="replace")
    raise BenchFailed(f"fewer than {count} nodes are in work:\n{said[-2000:]}")
