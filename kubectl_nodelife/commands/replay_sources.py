"""Reads what a replay is made from: the journal, Events, nodes with who wrote them, pods."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.acts_journal import changes_of_acts
from kubectl_nodelife.daemon.changes import document
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.daemon.store import ChangeFilter as ChosenChanges
from kubectl_nodelife.daemon.store import read_only
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.kube.unreadable import Unreadable, told
from kubectl_nodelife.outlook.replay.timeline import ReplaySources
from kubectl_nodelife.report.progress import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.live.target import Target

NO_DAEMON: Final = (
    "no daemon has watched this cluster: only Events and what objects keep are shown, without what "
    "was planned and why; run: kubectl nodelife daemon start"
)
_EVENTS_KEPT_NS: Final = HOUR_NS
"""kube-apiserver's default `--event-ttl`."""

_LOST: Final = {
    "Event": "what controllers and kubelets said of themselves",
    "Node": "who cordoned or tainted nodes",
    "Pod": "which pods are being deleted, and where pods are",
}


class Traces(NamedTuple):
    """What was read, when by the server's clock, and what must be said with it."""

    sources: ReplaySources
    source: dict[str, Any]
    now_ns: int
    warnings: list[str]


def read_traces(connection: Connection, since_ns: int) -> Traces:
    """Read all sources; `since_ns`: how long ago the replay begins. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.commands.cluster.direct import target_of

    target = target_of(connection)
    warnings: list[str] = []
    changes = _journal(connection, since_ns, warnings)
    acts = _acts(connection, since_ns)
    with progress_bar(f"reading {target.server}") as step:
        lists, now_ns = asyncio.run(_read(target, step, warnings))
    if since_ns > _EVENTS_KEPT_NS:
        warnings.append(
            "the API server forgets Events, as a rule after an hour: what is older comes from the "
            "journal and the objects alone"
        )
    source = {
        "kind": "cluster" if changes is None else "journal and cluster",
        "context": target.context or None,
        "server": target.server,
    }
    told = [*(changes or ()), *acts] if changes or acts else changes
    return Traces(ReplaySources(told, *lists), source, now_ns, warnings)


def _journal(
    connection: Connection, since_ns: int, warnings: list[str]
) -> list[dict[str, Any]] | None:
    """The changes that the daemon tells, or that the last one has left; None: there are none."""
    import sqlite3

    answer = ask.ask(connection, "changes", since=since_ns)
    if answer is not None:
        warnings += answer.get("warnings", ())
        items: list[dict[str, Any]] = answer["items"]
        return items
    known = ask.resolve(connection)
    wanted = ChosenChanges(since_ns=time.time_ns() - since_ns)
    try:
        found = read_only(journal_path(dict(os.environ), known.identity), wanted)
    except (OSError, sqlite3.Error):
        warnings.append(NO_DAEMON)
        return None
    warnings.append("no daemon watches this cluster: the journal is what the last one has left")
    return [document(change) for change in found]


def _acts(connection: Connection, since_ns: int) -> list[dict[str, Any]]:
    """What people ordered with `drain`, `repair` and `rollout undo` here."""
    known = ask.resolve(connection)
    folder = os.path.dirname(journal_path(dict(os.environ), known.identity))
    found = changes_of_acts(folder, {}, time.time_ns() - since_ns) if folder else []
    return [{**change, "id": None} for change in found]  # their numbers are of other journals


async def _read(
    target: Target, step: Callable[[int], None], warnings: list[str]
) -> tuple[tuple[list[Event], list[Node], list[Pod]], int]:
    import asyncio

    from kubectl_nodelife.commands.cluster.direct import (
        adding_up,
        bulk_client,
        or_refused,
        server_now_ns,
    )
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listing import read_all
    from kubectl_nodelife.live.requests import resource_of

    progress = adding_up(step)
    aside: list[Unreadable] = []
    async with bulk_client(target) as client:
        lists = await asyncio.gather(
            *(or_refused(read_all(client, resource_of(kind), progress, aside)) for kind in _LOST)
        )
    for kind, found in zip(_LOST, lists, strict=True):
        if isinstance(found, ApiError):
            warnings.append(f"{kind} cannot be read ({found.what}): left out: {_LOST[kind]}")
    if all(isinstance(found, ApiError) for found in lists):
        remedy = "see 'kubectl nodelife rbac'"
        raise Failed(cast(ApiError, lists[1]).what, on="nodes", remedy=remedy)
    warnings += told(aside)
    now_ns = server_now_ns(client)
    return cast(Any, tuple([] if isinstance(f, ApiError) else f for f in lists)), now_ns
