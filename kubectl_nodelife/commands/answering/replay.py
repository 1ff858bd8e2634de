"""Reads what a replay is made from, of a cluster or a dump, makes the review of a drain of it, and
answers `replay` for the live page.

It is the journal, which a dump has not, Events, nodes with who wrote them, and pods; for a review
the budgets as well. The live page shows no pod's own story: `all` asks for that too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering import ChangesQuestion, Query, Response, number, word
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.dumps.dump import load
from kubectl_nodelife.errors import BadInput, Failed, NotFound
from kubectl_nodelife.kube.documents import Json
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS, Kind, kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import parse_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.kube.unreadable import unreadable_sentences
from kubectl_nodelife.kube.workload import Event, PodDisruptionBudget
from kubectl_nodelife.outlook.replay.drain_review import drain_review
from kubectl_nodelife.outlook.replay.lines import last_seen_ns
from kubectl_nodelife.outlook.replay.timeline import (
    ReplayFilter,
    ReplaySources,
    is_about_nodes,
    replay_document,
    timeline,
)
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Page
from kubectl_nodelife.report.live_line import progress_bar
from kubectl_nodelife.report.replay import drain_review_page

if TYPE_CHECKING:
    import msgspec

    from kubectl_nodelife.live.listwatch import ListedOnce
    from kubectl_nodelife.live.target import Target


NO_DAEMON: Final = (
    "no daemon has watched this cluster: only Events and what objects keep are shown, without what "
    "was planned and why; run: kubectl nodelife daemon start"
)
_EVENTS_KEPT_NS: Final = HOUR_NS
"""kube-apiserver's default `--event-ttl`."""

_KINDS: Final = ("Event", "Node", "Pod")
_BUDGET: Final = "PodDisruptionBudget"
_LOST: Final = {
    "Event": "what controllers and kubelets said of themselves",
    "Node": "who cordoned or tainted nodes",
    "Pod": "which pods are being deleted, and where pods are",
    _BUDGET: "for how long a budget was at zero",
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
    """The sources that were read, when by the server's clock, and the notes that go with them.

    `budgets`: for the review of a drain; none where that is not asked for.
    """

    sources: ReplaySources
    source: dict[str, Any]
    now_ns: int
    warnings: list[str]
    budgets: list[PodDisruptionBudget]


def read_traces(connection: Connection, since_ns: int, *, of_drain: bool) -> Traces:
    """Read all sources of a cluster since so long (ns) ago. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.commands.cluster.direct import target_of

    target = target_of(connection)
    kept = ask.kept_changes(connection, ChangesQuestion(since=since_ns))
    has_journal = kept["source"]["kind"] is not None
    warnings = list(kept["warnings"]) if has_journal else [NO_DAEMON]
    kinds = (*_KINDS, *((_BUDGET,) if of_drain else ()), *OPTIONAL_KINDS)
    with progress_bar(f"reading {target.server}") as step:
        listed, now_ns = asyncio.run(_read(target, kinds, step))
    for kind, why in listed.unread.items():
        lost = _LOST.get(kind, _WHO_ASKED)
        warnings.append(f"{kind} cannot be read ({why}): left out: {lost}")
    if listed.unread.keys() >= {*_KINDS}:
        raise Failed(listed.unread["Node"], on="nodes", remedy="see 'kubectl nodelife rbac'")
    warnings += unreadable_sentences(listed.unreadable)
    if since_ns > _EVENTS_KEPT_NS:
        warnings.append(
            "the API server forgets Events, as a rule after an hour: what is older comes from the "
            "journal and the objects alone"
        )
    source = {
        "kind": "journal and cluster" if has_journal else "cluster",
        "context": target.context or None,
        "server": target.server,
    }
    acts = [{**act, "id": None} for act in kept["acts"]]  # their numbers are of other journals
    changes = [*kept["items"], *acts]
    return _traces(
        changes if changes or has_journal else None, listed.objects, source, now_ns, warnings
    )


def _traces(
    changes: list[dict[str, Any]] | None,
    objects: Sequence[KubeObject],
    source: dict[str, Any],
    now_ns: int,
    warnings: list[str],
) -> Traces:
    sources = ReplaySources(
        changes,
        [obj for obj in objects if isinstance(obj, Event)],
        [obj for obj in objects if isinstance(obj, Node)],
        [obj for obj in objects if isinstance(obj, Pod)],
        [obj for obj in objects if kind_of(obj) in OPTIONAL_KINDS],
    )
    budgets = [obj for obj in objects if isinstance(obj, PodDisruptionBudget)]
    return Traces(sources, source, now_ns, warnings, budgets)


async def _read(
    target: Target, kinds: Sequence[str], step: Callable[[int], None]
) -> tuple[ListedOnce, int]:
    """The lists, and when they were read by the server's clock."""
    from kubectl_nodelife.commands.cluster.direct import adding_up, bulk_client, server_now_ns
    from kubectl_nodelife.live.listwatch import list_once

    async with bulk_client(target) as client:
        listed = await list_once(client, kinds, progress=adding_up(step))
    return listed, server_now_ns(client)


def review_page(traces: Traces, begin_ns: int, node: str, plan: str | None) -> Page:
    """The drain of the node since then, with warnings said. `plan`: what `drain-plan -o json` said.
    Raises NodelifeError.
    """
    [node] = parse_names([node])
    nodes = {each.name: each for each in traces.sources.nodes}
    if node not in nodes:
        raise NotFound("nodes", node, among=list(nodes))
    promised = None if plan is None else _promised(plan)
    lines = timeline(traces.sources, ReplayFilter(begin_ns, traces.now_ns + 10**9))
    terminal.warn(*traces.warnings)
    review = drain_review(lines, traces.sources.pods, traces.budgets, nodes[node])
    return drain_review_page(review, traces.source, promised, traces.warnings)


def _promised(path: str) -> dict[str, float]:
    """The estimate of a plan that was kept. Raises BadInput."""
    try:
        plan = json.loads(Path(path).read_bytes())
        estimate: Any = plan["estimate"] or (plan.get("withFlags") or {}).get("estimate")
        return {key: float(estimate[key]) for key in ("lowSeconds", "highSeconds")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "name what 'drain-plan -o json' printed for a drain that finishes"
        raise BadInput(f"holds no estimate: {error}", on=path, remedy=remedy) from None


def traces_of_dump(filename: Sequence[str], now: str | None, *, of_drain: bool = False) -> Traces:
    """The traces in a dump. Its moment is the newest Event's, where that is newer and none is given
    with `now` (RFC 3339). Raises BadInput.
    """
    managed = False

    def note(kind: Kind, raw: Json | msgspec.Raw | dict[str, Any]) -> None:
        nonlocal managed
        if kind.type is Node:
            meta = raw["metadata"] if isinstance(raw, dict) else bytes(raw)
            managed = managed or (_MANAGED in meta if isinstance(meta, dict) else _QUOTED in meta)

    dump = load(filename, now, None, note)
    warnings = list(dump.warnings)
    if not dump.has_read("Event"):
        warnings.append(_NO_EVENTS)
    if not managed and any(isinstance(obj, Node) for obj in dump.objects):
        warnings.append(_NO_MANAGERS)
    if of_drain and not dump.has_read(_BUDGET):
        warnings.append(_NO_BUDGETS)
    events = (obj for obj in dump.objects if isinstance(obj, Event))
    newest = max((last_seen_ns(event) or 0 for event in events), default=0)
    moment_ns = dump.moment_ns if now else max(dump.moment_ns, newest)
    source = {"kind": "snapshot", "context": None, "server": ", ".join(filename)}
    return _traces(None, dump.objects, source, moment_ns, warnings)


KINDS: Final = ("Event", *OPTIONAL_KINDS)
"""The kinds that are listed for it."""


def answer(
    view: ClusterView,
    listed: Sequence[KubeObject],
    changes: Sequence[Mapping[str, Any]],
    query: Query,
) -> Response:
    """The Replay between `since` and `until`, in ns before now; the last hour if not given.

    `node`, or `namespace` and `pod`: of that alone. Raises BadInput.
    """
    begin_ns = view.now_ns - (number(query, "since") or HOUR_NS)
    end_ns = view.now_ns - number(query, "until")
    if begin_ns >= end_ns:
        raise BadInput("must be longer ago than --until", on="since")
    pod = (word(query, "namespace"), word(query, "pod")) if word(query, "pod") else None
    wanted = ReplayFilter(begin_ns, end_ns, word(query, "node"), pod, bool(word(query, "all")))
    nodes, pods = list(view.cache.nodes.values()), list(view.cache.all("Pod"))
    events = [obj for obj in listed if isinstance(obj, Event)]
    sources = ReplaySources(changes, events, nodes, pods, listed)  # type: ignore[arg-type]
    lines = timeline(sources, wanted)
    if not (wanted.node or pod or wanted.quiet):
        lines = [line for line in lines if is_about_nodes(line)]
    left_out = [
        f"{kind} cannot be read ({why}): left out" for kind, why in view.unread.items() if why
    ]
    return replay_document(lines, view.source, begin_ns, end_ns, [*view.warnings, *left_out])
