"""Recorded drains: what real `kubectl drain` did, and when a plan from the same objects is right.

A folder of `tests/drains/` holds the cluster's objects at the moment before (`cluster.json`), the
command (`command.txt`) and what came of it (`outcome.json`). Pods of one node with the same
controller, or without one the same labels, and the same budgets stand for one another: how many of
them go is compared, not which.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import DrainPlan, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.kube.times import parse_duration
from kubectl_nodelife.sim.kubectl.options import DrainOptions

DRAINS = Path(__file__).parents[1] / "drains"

# What a refusal names -> the gates that say the same.
GATES = {
    500: {"two-pdbs", "webhook"},
    403: {"namespace-terminating", "webhook", "rbac"},
    422: {"webhook"},
    429: {"pdb", "landing", "unready-under-pdb", "pdb-sync-failed", "pdb-stale"},
}


@dataclass
class Recorded:
    """One recorded drain."""

    name: str
    snapshot: PlanSnapshot
    nodes: tuple[str, ...]
    options: DrainOptions
    outcome: dict[str, Any]

    def plan(self) -> DrainPlan:
        """The plan that is made from the same objects."""
        return make_plan(self.snapshot, self.nodes, self.options)


def read(folder: Path) -> Recorded:
    """One folder."""
    found = read_dump([str(folder / "cluster.json")])
    snapshot = PlanSnapshot(
        found.objects, found.moment_ns, None if found.complete else found.kinds_read
    )
    nodes, options = parse_command((folder / "command.txt").read_text())
    outcome = json.loads((folder / "outcome.json").read_text())
    return Recorded(folder.name, snapshot, nodes, options, outcome)


def parse_command(text: str) -> tuple[tuple[str, ...], DrainOptions]:
    """The nodes and the options of a `kubectl drain` line."""
    words = shlex.split(text)
    assert words[:2] == ["kubectl", "drain"]
    nodes = tuple(word for word in words[2:] if not word.startswith("-"))
    flags = dict(word.partition("=")[::2] for word in words[2:] if word.startswith("-"))
    unknown = set(flags) - KNOWN_FLAGS
    assert not unknown, f"flags that this reader does not know: {unknown}"
    return nodes, DrainOptions(
        force="--force" in flags,
        ignore_daemonsets="--ignore-daemonsets" in flags,
        delete_emptydir_data="--delete-emptydir-data" in flags,
        disable_eviction="--disable-eviction" in flags,
        grace_period_seconds=int(flags.get("--grace-period", -1)),
        timeout_ns=parse_duration(flags.get("--timeout", "0")),
        pod_selector=flags.get("--pod-selector", ""),
        skip_wait_seconds=int(flags.get("--skip-wait-for-delete-timeout", 0)),
    )


KNOWN_FLAGS = {
    "--force",
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--disable-eviction",
    "--grace-period",
    "--timeout",
    "--pod-selector",
    "--skip-wait-for-delete-timeout",
}


def expected_verdicts(recorded: Recorded) -> set[str]:
    """The plan's verdict, from what kubectl did."""
    outcome = recorded.outcome
    if outcome["exitCode"] == 0:
        return {"ready", "slow"}
    touched = outcome["accepted"] or outcome["refused"]
    return {"never"} if touched else {"refused"}


def alike(recorded: Recorded, pod_name: str) -> tuple[object, ...]:
    """What makes pods of the snapshot stand for one another."""
    namespace, _, name = pod_name.partition("/")
    pod = recorded.snapshot.find("Pod", namespace, name)
    if pod is None:
        return (pod_name,)
    owners = tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller)
    labels = tuple(sorted((pod.metadata.labels or {}).items()))
    budgets = recorded.snapshot.budgets.find(namespace, pod.metadata.labels)
    names = tuple(sorted(budget.name for budget in budgets))
    return (namespace, owners or labels, pod.spec.node_name, names)  # type: ignore[attr-defined]


def counted(recorded: Recorded, pods: Iterable[str]) -> Counter[tuple[object, ...]]:
    """How many pods of each like."""
    return Counter(alike(recorded, pod) for pod in pods)


def evicted_by_plan(plan: DrainPlan) -> list[str]:
    """The pods whose eviction or deletion the plan says will be accepted."""
    return [full_name(pod) for pod in plan.pods() if pod.start is not None]


def full_name(pod: PodPlan) -> str:
    """namespace/name"""
    return f"{pod.namespace}/{pod.name}"


def widest(plan: DrainPlan) -> float:
    """How far apart the ends of the estimate may be."""
    assert plan.estimate is not None
    graces = [pod.grace or 0 for pod in plan.pods() if pod.start is not None]
    return max(16.0, plan.estimate.low) + max(graces, default=0)
