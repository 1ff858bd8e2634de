"""200 of 1,000 kubelets stop at once: the enforcing daemon, then a real controller manager.

On a real control plane (KUBEBUILDER_ASSETS), with Leases renewed every ten seconds and ten pods on
each node that is lost. Both have the same flags and client rate, and each loses nodes of its own.
For each node the time counts from the end of its grace period: until the write of its NoSchedule
taint is answered, until the last of its pods is marked. `...Percent` is the share of one core in a
quiet half minute before; `dryRun...` is a daemon that enforces nothing. NODELIFE_BENCH_QPS: another
rate than 1,000 a second; 20 is upstream's own. It fails where one of the two tainted fewer nodes or
marked fewer pods than were lost: percentiles of the writes that were made would hide the rest.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import BenchFailed, Stopwatch
from bench._lost_nodes import (
    API_SERVER,
    AUDIT_POLICY,
    Fleet,
    cpu_seconds,
    ended_writes,
    is_taint,
    resident_bytes,
)
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.enforcing import CONTROLLERS, Enforcer, least_privilege

NODES, PODS = 1_000, 4_000
GRACE_S = 20
QUIET_S = 30.0
SETTLE_S = 15.0
PATIENCE_S = 120.0
_LOST_SHARE = 5

_QPS = int(os.environ.get("NODELIFE_BENCH_QPS", "1000"))
_FLAGS = {
    "node-monitor-period": "1s",
    "node-monitor-grace-period": f"{GRACE_S}s",
    "kube-api-qps": str(_QPS),
    "kube-api-burst": "30" if _QPS == 20 else str(2 * _QPS),
}
_MANAGER = (
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "daemonset-controller",
)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """The daemon in dry-run and enforcing, then the real one. `seed` is not needed."""
    with control_plane(api_server=API_SERVER, policy=AUDIT_POLICY) as plane:
        fleet = Fleet(plane, nodes)
        lost = nodes // _LOST_SHARE
        groups = [fleet.names[:lost], fleet.names[lost : 2 * lost]]
        each = pods // (2 * lost)
        fleet.furnish((f"{n}-{i}", n) for group in groups for n in group for i in range(each))
        with fleet:
            dry = _ours(plane, fleet, [], 0)
            with stopwatch:
                ours = _ours(plane, fleet, groups[0], each)
                real = _real(plane, fleet, groups[1], each)
        figures = {
            "lostNodes": lost,
            "lostPods": lost * each,
            "qps": _QPS,
            **{f"dryRun{k}": v for k, v in dry.items()},
            **{f"ours{k}": v for k, v in ours.items()},
            **{f"real{k}": v for k, v in real.items()},
        }
        check_counts(figures)
        return figures


def check_counts(figures: Mapping[str, Any]) -> None:
    """Raises BenchFailed unless both tainted all lost nodes and marked all lost pods."""
    for what, lost in (("TaintedNodes", "lostNodes"), ("MarkedPods", "lostPods")):
        done = {who: figures[f"{who}{what}"] for who in ("ours", "real")}
        if set(done.values()) != {figures[lost]}:
            raise BenchFailed(f"{what} of {figures[lost]}: {done}; all figures: {figures}")


def _ours(plane: ControlPlane, fleet: Fleet, lost: list[str], each: int) -> dict[str, Any]:
    """The daemon; it enforces only where some nodes are to be lost."""
    names = ",".join(CONTROLLERS)
    words = (f"--assume-stopped={names}", "--begin=restart", "--caps=upstream")
    flags = [f"--set={name}={value}" for name, value in _FLAGS.items()]
    enforcing = words if lost else ("--enforce=",)
    folder = plane.folder / f"daemon-{time.monotonic_ns()}"
    daemon = Enforcer(least_privilege(plane), folder, *flags, *enforcing)
    daemon.start(wait=bool(lost))
    assert daemon.process is not None
    try:
        while daemon.run("daemon", "status").returncode:
            time.sleep(1)
        figures = _quiet(daemon.process.pid)
        figures |= _requests(plane) if lost else {}
        if lost:
            figures |= _burst(plane, fleet, lost, each, daemon.process.pid)
            if figures["TaintedNodes"] < len(lost):  # why, before the daemon is gone
                status = daemon.run("daemon", "status").stdout
                raise BenchFailed(f"{figures}\n{status}\n{_end_of_logs(folder)}")
        return figures
    finally:
        daemon.stop()


def _end_of_logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-5_000:] for path in folder.rglob("*.log"))


def _real(plane: ControlPlane, fleet: Fleet, lost: list[str], each: int) -> dict[str, Any]:
    """A controller manager with these controllers alone."""
    flags = [f"--{name}={value}" for name, value in _FLAGS.items()]
    plane.start_controller_manager(f"--controllers={','.join(_MANAGER)}", *flags)
    pid = plane.pid("kube-controller-manager")
    figures = _quiet(pid)
    return figures | _burst(plane, fleet, lost, each, pid)


def _quiet(pid: int) -> dict[str, Any]:
    time.sleep(SETTLE_S)
    before = cpu_seconds(pid)
    time.sleep(QUIET_S)
    percent = 100 * (cpu_seconds(pid) - before) / QUIET_S
    return {"CorePercent": round(percent, 2), "ResidentBytes": resident_bytes(pid)}


def _requests(plane: ControlPlane) -> dict[str, Any]:
    """The requests of the enforcing daemon in a quiet minute, without watches."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - QUIET_S))
    found: Counter[str] = Counter()
    for entry in plane.audit():
        if entry["stageTimestamp"] >= since and entry["userAgent"].startswith("kubectl-nodelife/"):
            resource = (entry.get("objectRef") or {}).get("resource", "other")
            found[f"{entry['verb']} {resource}"] += 1
    return {"RequestsAMinute": {k: round(n * 60 / QUIET_S) for k, n in sorted(found.items())}}


def _burst(
    plane: ControlPlane, fleet: Fleet, lost: list[str], each: int, pid: int
) -> dict[str, Any]:
    before, since = cpu_seconds(pid), time.time()
    due = {name: at + GRACE_S for name, at in fleet.silence(lost).items()}
    tainted: dict[str, float] = {}
    first: dict[str, dict[str, float]] = {}
    gives_up = max(due.values()) + PATIENCE_S
    while time.time() < gives_up:
        time.sleep(2)
        tainted.clear()
        first = {name: {} for name in lost}
        for at, entry in ended_writes(plane, since):
            name, resource = entry["objectRef"].get("name", ""), entry["objectRef"]["resource"]
            node = name.partition("-")[0]
            if resource == "nodes" and is_taint(entry, "NoSchedule"):
                tainted.setdefault(name, at)
            elif resource == "pods" and node in first:
                first[node].setdefault(name, at)
        if len(tainted) == len(lost) and all(len(pods) >= each for pods in first.values()):
            break
    marked = {name: list(pods.values()) for name, pods in first.items()}
    taints = [tainted[name] - due[name] for name in lost if name in tainted]
    marks = [max(marked[name]) - due[name] for name in lost if marked[name]]
    return {
        "TaintedNodes": len(taints),
        "MarkedPods": sum(map(len, marked.values())),
        **_spread("TaintSeconds", taints),
        **_spread("MarkSeconds", marks),
        "BurstCpuSeconds": round(cpu_seconds(pid) - before, 2),
        "BurstResidentBytes": resident_bytes(pid),
    }


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [math.nan]
    return {
        f"{name}{share}": round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2)
        for share, percent in (("P50", 50), ("P99", 99), ("Max", 100))
    }
