"""Reads what the daemon does not watch and metrics show: budgets, and the Lease of an upgrade run.

Each is one list at most a minute; what may not be read is left out of the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kubectl_nodelife.controllers.upgrade.document import OVER
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.decode import decode_json
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.listwatch import read_all
from kubectl_nodelife.live.requests import resource_of
from kubectl_nodelife.outlook.upgrade_status import NO_RUN, upgrade_status

BUDGET_STATES: Final = ("ok", "zero", "failed", "stale")


class BudgetSample(msgspec.Struct):
    """Budgets by state, and the nodes with a pod that none may evict now."""

    states: Counter[str] = msgspec.field(default_factory=Counter)
    blocked_nodes: int = 0


class UpgradeSample(msgspec.Struct):
    """A run that is under way. `lowest`: None where it is not known yet."""

    nodes: Counter[str] = msgspec.field(default_factory=Counter)
    gates: set[str] = msgspec.field(default_factory=set)
    held: Counter[str] = msgspec.field(default_factory=Counter)
    lowest: int | None = None


async def read_budgets(client: Client) -> list[PodDisruptionBudget] | None:
    """All budgets; None where they cannot be read."""
    try:
        found = await read_all(client, resource_of("PodDisruptionBudget"))
    except (NodelifeError, msgspec.MsgspecError):
        return None
    return [budget for budget in found if isinstance(budget, PodDisruptionBudget)]


def budget_sample(budgets: Iterable[PodDisruptionBudget], cache: Cache) -> BudgetSample:
    """How it stands with the budgets, as the API server decides on evictions by their status."""
    sample, holding = BudgetSample(), dict[str, list[PodDisruptionBudget]]()
    for budget in budgets:
        state = budget_state(budget)
        sample.states[state] += 1
        if state in ("zero", "failed"):
            holding.setdefault(budget.namespace, []).append(budget)
    blocked = set()
    for pod in cache.pods.values() if holding else ():
        if pod.spec.node_name and pod.spec.node_name not in blocked:
            labels = pod.metadata.labels or {}
            of_namespace = holding.get(pod.metadata.namespace, ())
            if any(_selects(b, labels) for b in of_namespace):
                blocked.add(pod.spec.node_name)
    sample.blocked_nodes = len(blocked)
    return sample


def budget_state(budget: PodDisruptionBudget) -> str:
    """`zero`: it has pods, and lets none go now."""
    status = budget.status
    if any(c.type == "DisruptionAllowed" and c.reason == "SyncFailed" for c in status.conditions):
        return "failed"
    if status.observed_generation < budget.metadata.generation:
        return "stale"
    return "zero" if status.expected_pods > 0 and status.disruptions_allowed <= 0 else "ok"


def _selects(budget: PodDisruptionBudget, labels: Mapping[str, str]) -> bool:
    selector = budget.spec.selector
    return selector is not None and matches(selector, labels)


async def read_run(client: Client) -> Lease | None:
    """The Lease of an upgrade run in its usual namespace; None where there is none to be read."""
    namespace, name = UpgradePolicy().lease_key
    query = urlencode({"fieldSelector": f"metadata.name={name}"})
    try:
        body = await client.read(
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?{query}"
        )
        items = msgspec.json.decode(body, type=dict[str, Any]).get("items") or []
        return decode_json(Lease, msgspec.json.encode(items[0])) if items else None
    except (NodelifeError, msgspec.MsgspecError, ValueError):
        return None


def upgrade_sample(lease: Lease | None, cache: Cache, now_ns: int) -> UpgradeSample | None:
    """The run on the Lease; None where there is none, or it is over."""
    if lease is None:
        return None
    status = upgrade_status(list(cache.nodes.values()), lease, now_ns, {})
    if status["phase"] in {NO_RUN, *map(str, OVER)}:
        return None
    return UpgradeSample(
        Counter(status["counts"]),
        {gate["gate"] for gate in status["gates"]},
        Counter(hold["because"].partition(":")[0] for hold in status["holds"]),
        status["lowest"]["all"],
    )
