"""Answers `upgrade`: how an upgrade run stands, from the watched nodes and the run's Lease.

The checks of nodes are left out: they need kinds that are read for `upgrade status` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubectl_nodelife.answers.upgrade_status import upgrade_status
from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.daemon.metrics.polled_objects import read_run
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.live.client import Client


def upgrade_answer(client: Client, look: Callable[[], ClusterView]) -> Answer:
    """The answer; the Lease is read for each question."""

    async def upgrade_now(query: Query) -> dict[str, Any]:
        lease = await read_run(client)
        view = look()
        names = query.get("node", ())
        nodes = list(view.cache.nodes.values())
        status = upgrade_status(nodes, lease, view.now_ns, view.source, names)
        return {**status, "warnings": [*view.warnings, *status["warnings"]]}

    return upgrade_now
