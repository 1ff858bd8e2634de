"""`changes -f`: the writes that a dump tells of, by its Events, managedFields and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubectl_nodelife.answers.changes_seen import changes_seen
from kubectl_nodelife.commands.replay_sources_of_dump import traces_of_dump
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, timeline

_AHEAD_NS: Final = 5 * SECOND_NS
"""Clocks of kubelets and of the server differ a little."""


def changes_of_dump(
    filename: Sequence[str], now: str | None, query: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer that a daemon would give: items, source, warnings.

    `query`: as `changes` asks it, the duration `since` counted back from the dump's moment. Raises
    BadInput.
    """
    found = traces_of_dump(filename, now).traces
    pod = (query["namespace"], query["pod"]) if "pod" in query else None
    since_ns = found.now_ns - query["since"] if "since" in query else 0
    wanted = ReplayFilter(since_ns, found.now_ns + _AHEAD_NS, query.get("node", ""), pod)
    items = changes_seen(timeline(found.sources, wanted))
    outcome = query.get("outcome")
    chosen = [item for item in items if outcome in (None, item["outcome"])]
    return {"items": chosen, "source": found.source, "warnings": found.warnings}
