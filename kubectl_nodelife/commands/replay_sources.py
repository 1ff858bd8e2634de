"""Reads what a replay is made from, of a cluster or a dump, and the review of a drain made of it.

That is the journal, which a dump has not, Events, nodes with who wrote them, and pods; for a review
the budgets as well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.cluster.dump import Dump, load
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.acts_journal import changes_of_acts
from kubectl_nodelife.daemon.changes import document
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.daemon.store import ChangeFilter as ChosenChanges
from kubectl_nodelife.daemon.store import read_only
from kubectl_nodelife.errors import BadInput, Failed, NotFound
from kubectl_nodelife.kube.documents import Json
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS, Kind, kind_named, kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.subjects import parse_names
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.kube.unreadable import Unreadable, unreadable_sentences
from kubectl_nodelife.kube.workload import Event, PodDisruptionBudget
from kubectl_nodelife.outlook.replay.drains import drain_review
from kubectl_nodelife.outlook.replay.lines import last_seen_ns
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, ReplaySources, timeline
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.drain_review import DrainReviewPage
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    import msgspec

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
_WHO_ASKED: Final = "who asked for pods' evictions, and what became of gangs"

_NO_EVENTS: Final = "no Events were read: only what objects keep is shown; dump 'events -A', too"
_NO_BUDGETS: Final = "no PodDisruptionBudgets were read: for how long one was at zero is unknown"
_MANAGED, _QUOTED = "managedFields", b'"managedFields"'
_NO_MANAGERS: Final = (
    "no node has managedFields: who cordoned or tainted nodes is unknown; dump them with "
    "'kubectl get nodes -o yaml --show-managed-fields'"
)


class Traces(NamedTuple):
    """The sources that were read, when by the server's clock, and the notes that go with them."""

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
        lists, asked, now_ns = asyncio.run(_read(target, step, warnings))
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
    recorded = [*(changes or ()), *acts] if changes or acts else changes
    return Traces(ReplaySources(recorded, *lists, asked), source, now_ns, warnings)


def _journal(
    connection: Connection, since_ns: int, warnings: list[str]
) -> list[dict[str, Any]] | None:
    """The changes that the daemon has, or that the last one has left; None: there are none."""
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
    """The orders that people gave with `drain`, `repair` and `daemonset undo` here."""
    known = ask.resolve(connection)
    folder = os.path.dirname(journal_path(dict(os.environ), known.identity))
    found = changes_of_acts(folder, {}, time.time_ns() - since_ns) if folder else []
    return [{**change, "id": None} for change in found]  # their numbers are of other journals


async def _read(
    target: Target, step: Callable[[int], None], warnings: list[str]
) -> tuple[tuple[list[Event], list[Node], list[Pod]], list[KubeObject], int]:
    import asyncio

    from kubectl_nodelife.commands.cluster.direct import (
        adding_up,
        bulk_client,
        or_refused,
        server_now_ns,
    )
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.listwatch import read_all, served
    from kubectl_nodelife.live.requests import resource_of

    progress = adding_up(step)
    aside: list[Unreadable] = []
    async with bulk_client(target) as client:
        kinds = await served(client, (*_LOST, *OPTIONAL_KINDS))
        lists = await asyncio.gather(
            *(or_refused(read_all(client, resource_of(kind), progress, aside)) for kind in kinds)
        )
    for kind, found in zip(kinds, lists, strict=True):
        if isinstance(found, ApiError):
            warnings.append(
                f"{kind} cannot be read ({found.what}): left out: {_LOST.get(kind, _WHO_ASKED)}"
            )
    if all(isinstance(found, ApiError) for found in lists):
        remedy = "see 'kubectl nodelife rbac'"
        raise Failed(cast(ApiError, lists[1]).what, on="nodes", remedy=remedy)
    warnings += unreadable_sentences(aside)
    now_ns = server_now_ns(client)
    read = [[] if isinstance(found, ApiError) else found for found in lists]
    asked = [obj for objects in read[len(_LOST) :] for obj in objects]
    return cast(Any, tuple(read[: len(_LOST)])), asked, now_ns


class DrainTraces(NamedTuple):
    """The journals of drains, beside a replay's traces."""

    budgets: list[PodDisruptionBudget]
    warnings: list[str]


def review_page(
    found: Traces, more: DrainTraces, begin_ns: int, node: str, plan: str | None
) -> DrainReviewPage:
    """The drain of the node since then, with warnings said. `plan`: what `drain-plan -o json` said.

    Raises NodelifeError.
    """
    [node] = parse_names([node])
    nodes = {known.name: known for known in found.sources.nodes}
    if node not in nodes:
        raise NotFound("nodes", node, among=list(nodes))
    promised = None if plan is None else _promised(plan)
    lines = timeline(found.sources, ReplayFilter(begin_ns, found.now_ns + 10**9))
    warnings = [*found.warnings, *more.warnings]
    for warning in warnings:
        terminal.warn(warning)
    review = drain_review(lines, found.sources.pods, more.budgets, nodes[node])
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
    from kubectl_nodelife.live.listwatch import read_all
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


class DumpTraces(NamedTuple):
    """A dump and its traces."""

    dump: Dump
    traces: Traces


def traces_of_dump(
    filename: Sequence[str], now: str | None, profile: str | None = None
) -> DumpTraces:
    """The traces in a dump. Its moment is the newest Event's, where that is newer and none is given
    with `now` (RFC 3339). Raises BadInput.
    """
    managed = False

    def note(kind: Kind, raw: Json | msgspec.Raw | dict[str, Any]) -> None:
        nonlocal managed
        if kind.type is Node:
            found = raw["metadata"] if isinstance(raw, dict) else bytes(raw)
            managed = managed or (
                _MANAGED in found if isinstance(found, dict) else _QUOTED in found
            )

    dump = load(filename, now, profile, note)
    events = [obj for obj in dump.objects if isinstance(obj, Event)]
    nodes = [obj for obj in dump.objects if isinstance(obj, Node)]
    pods = [obj for obj in dump.objects if isinstance(obj, Pod)]
    warnings = list(dump.warnings)
    if not dump.has_read("Event"):
        warnings.append(_NO_EVENTS)
    if nodes and not managed:
        warnings.append(_NO_MANAGERS)
    newest = max((last_seen_ns(event) or 0 for event in events), default=0)
    moment_ns = dump.moment_ns if now else max(dump.moment_ns, newest)
    source = {"kind": "snapshot", "context": None, "server": ", ".join(filename)}
    asked = [obj for obj in dump.objects if kind_of(obj) in OPTIONAL_KINDS]
    sources = ReplaySources(None, events, nodes, pods, asked)
    return DumpTraces(dump, Traces(sources, source, moment_ns, warnings))


def drain_traces_of(dump: Dump) -> DrainTraces:
    """The traces of drains in a dump: its budgets."""
    budgets = [obj for obj in dump.objects if isinstance(obj, PodDisruptionBudget)]
    unread = [] if dump.has_read("PodDisruptionBudget") else [_NO_BUDGETS]
    return DrainTraces(budgets, unread)
