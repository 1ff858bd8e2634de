"""`replay --drain NODE`: reads what is left of a drain, and shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.replay_sources import Traces
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.replay.drain_review import drain_review
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, timeline
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.drain_review import DrainReviewPage


class DrainTraces(NamedTuple):
    """What is left of drains besides a replay's traces."""

    budgets: list[PodDisruptionBudget]
    warnings: list[str]


def review_page(
    found: Traces, more: DrainTraces, begin_ns: int, node: str, plan: str | None
) -> DrainReviewPage:
    """The drain of the node since then, with warnings said. `plan`: what `drain-plan -o json` said.

    Raises NodelifeError.
    """
    node = node.removeprefix("node/").removeprefix("nodes/")
    names = [known.name for known in found.sources.nodes]
    if node not in names:
        raise NotFound("nodes", node, among=names)
    promised = None if plan is None else _promised(plan)
    lines = timeline(found.sources, ReplayFilter(begin_ns, found.now_ns + 10**9))
    warnings = [*found.warnings, *more.warnings]
    for warning in warnings:
        terminal.warn(warning)
    review = drain_review(lines, found.sources.pods, more.budgets, node)
    return DrainReviewPage(review, found.source, promised, warnings)


def drain_traces(connection: Connection) -> DrainTraces:
    """Those of a cluster. Raises NodelifeError."""
    import asyncio

    warnings: list[str] = []
    budgets = asyncio.run(_budgets(connection, warnings))
    return DrainTraces(budgets, warnings)


async def _budgets(connection: Connection, warnings: list[str]) -> list[PodDisruptionBudget]:
    from kubectl_nodelife.commands.cluster.direct import bulk_client, or_refused, target_of
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listing import read_all
    from kubectl_nodelife.live.requests import Resource

    async with bulk_client(target_of(connection)) as client:
        kind = kind_named("PodDisruptionBudget")
        found = await or_refused(read_all(client, Resource(kind), lambda count: None, []))
    if isinstance(found, ApiError):
        warnings.append(f"PodDisruptionBudget cannot be read ({found.what}): budgets are left out")
        return []
    return [budget for budget in found if isinstance(budget, PodDisruptionBudget)]


def _promised(path: str) -> dict[str, float]:
    """The estimate of a plan that was kept. Raises BadInput."""
    try:
        plan = json.loads(Path(path).read_bytes())
        estimate: Any = plan["estimate"] or (plan.get("withFlags") or {}).get("estimate")
        return {key: float(estimate[key]) for key in ("lowSeconds", "highSeconds")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "name what 'drain-plan -o json' printed for a drain that finishes"
        raise BadInput(f"holds no estimate: {error}", on=path, remedy=remedy) from None
