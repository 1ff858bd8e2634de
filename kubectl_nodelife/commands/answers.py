"""What the daemon answers to each question: sights made into text and documents.

Handed to the daemon by `daemon run`, since only commands may join the daemon with the reports. What
takes long goes in small steps, and text is made in a thread, so that the daemon's loop is never
held up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.answers.status import NodeEntry, NodeLifeStatus, make_status, node_statuses
from kubectl_nodelife.commands.daemonset_answers import make_set_answers
from kubectl_nodelife.commands.node_status import NOTHING_TO_SHOW, choose_nodes
from kubectl_nodelife.commands.subjects import explanation_of_sight
from kubectl_nodelife.daemon.changes import Change, document
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.server import Answer, Query, Stream, sliced
from kubectl_nodelife.daemon.sight import Sight, journal_warnings
from kubectl_nodelife.daemon.store import Wanted
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report.formats import FORMATTERS, render
from kubectl_nodelife.report.status import ExplanationPage, StatusPage, node_lines
from kubectl_nodelife.report.table import Widths

Look = Callable[[], Sight]

WATCH_SECONDS: Final = 1.0

MOST_CHANGES: Final = 20_000
"""How many changes one answer holds at most; the newest count."""

_NUMBER = re.compile(r"\d+")


def make_answers(
    look: Look, journal: Journal, now_ns: Callable[[], int]
) -> tuple[dict[str, Answer], dict[str, Stream]]:
    """All questions about the cluster that a daemon answers."""

    async def status(query: Query) -> dict[str, Any]:
        made = await sliced(_status(look(), query))
        return await asyncio.to_thread(_page, made, query)

    async def explain(query: Query) -> dict[str, Any]:
        kind, namespace, name = (_word(query, w) for w in ("kind", "namespace", "name"))
        page = ExplanationPage(explanation_of_sight(look(), kind, namespace, name))
        text = render(page, _output(query), headers=_headers(query))
        return {"text": text, "warnings": page.warnings()}

    async def changes(query: Query) -> dict[str, Any]:
        found = await journal.select(_wanted(query, now_ns()), MOST_CHANGES)
        said = journal_warnings(journal)
        if len(found) == MOST_CHANGES:
            said.append(f"only the newest {MOST_CHANGES} changes are shown; narrow with --since")
        return {"items": await asyncio.to_thread(_documents, found), "warnings": said}

    def watch_status(query: Query) -> AsyncIterator[dict[str, Any]]:
        return _watch_status(look, query)

    def watch_changes(query: Query) -> AsyncIterator[dict[str, Any]]:
        return _watch_changes(journal, _wanted(query, now_ns()))

    sets, watch_sets = make_set_answers(look)
    return (
        {"status": status, "explain": explain, "changes": changes, **sets},
        {"status": watch_status, "changes": watch_changes, **watch_sets},
    )


def _status(sight: Sight, query: Query) -> Generator[None, None, NodeLifeStatus]:
    """The status, a step a node."""
    outlook = sight.outlook
    names = choose_nodes(outlook.cache, query.get("node", []), _word(query, "selector"))
    nodes: list[NodeEntry] = []
    for node in node_statuses(outlook, names):
        nodes.append(node)
        yield
    return make_status(
        outlook,
        nodes=nodes,
        source=sight.source,
        mode=sight.mode,
        moment=sight.moment,
        warnings=sight.warnings,
    )


def _page(status: NodeLifeStatus, query: Query) -> dict[str, Any]:
    output = _output(query)
    empty = not status.nodes
    text = ""
    if not (empty and output in NOTHING_TO_SHOW):
        text = render(StatusPage(status), output, headers=_headers(query))
    return {
        "text": text,
        "warnings": status.warnings,
        "empty": empty,
        "inTrouble": status.in_trouble(),
    }


async def _watch_status(look: Look, query: Query) -> AsyncIterator[dict[str, Any]]:
    """All nodes, then each second those about which there is something else to say."""
    output = _output(query)
    headers = _headers(query)
    widths = Widths()
    told: dict[str, object] = {}
    said: set[str] = set()
    while True:
        status = await sliced(_status(look(), query))
        gists = {n.outlook.node.name: _gist(n) for n in status.nodes}
        changed = [n for n in status.nodes if told.get(n.outlook.node.name) != gists[_name(n)]]
        news = [w for w in status.warnings if _NUMBER.sub("#", w) not in said]
        if changed or news:
            shown = replace(status, nodes=changed)
            if output in ("table", "wide"):
                lines = node_lines(shown, widths, wide=output == "wide", headers=headers)
                text, headers = "".join(lines), headers and not lines
            else:
                text = render(StatusPage(shown), output) if changed else ""
            yield {"text": text, "warnings": news}
        told, said = gists, {_NUMBER.sub("#", w) for w in status.warnings}
        await asyncio.sleep(WATCH_SECONDS)


async def _watch_changes(journal: Journal, wanted: Wanted) -> AsyncIterator[dict[str, Any]]:
    """What there is, then what comes, and again what ends differently."""
    following = journal.listen()
    try:
        found = await journal.select(wanted, MOST_CHANGES)
        seen = {change.id: change.outcome for change in found}
        yield {"items": _documents(found), "warnings": journal_warnings(journal)}
        async for batch in journal.follow(following, wanted):
            items = [c for c in batch if seen.get(c.id) != c.outcome]
            seen = {}
            if items:
                yield {"items": _documents(items)}
    finally:
        journal.leave(following)


def _documents(changes: list[Change]) -> list[dict[str, Any]]:
    return [document(change) for change in changes]


def _gist(node: NodeEntry) -> object:
    """What makes a node worth another line: anything but the time that goes by."""
    outlook, verdict = node.outlook, node.verdict
    return (
        verdict.state,
        verdict.next.action.partition(" ")[0] if verdict.next is not None else "",
        outlook.ready,
        outlook.node.spec.taints,
        outlook.node.spec.unschedulable,
        outlook.queued is not None,
        bool(outlook.timers),
    )


def _name(node: NodeEntry) -> str:
    return node.outlook.node.name


def _wanted(query: Query, now_ns: int) -> Wanted:
    """The query as a choice. `since` is in ns before now."""
    since, pod = _word(query, "since"), _word(query, "pod")
    return Wanted(
        since_ns=now_ns - int(since) if since else None,
        outcome=_word(query, "outcome"),
        node=_word(query, "node"),
        pod=(_word(query, "namespace"), pod) if pod else None,
    )


def _word(query: Query, key: str) -> str:
    values = query.get(key)
    return values[-1] if values else ""


def _headers(query: Query) -> bool:
    return _word(query, "headers") != "false"


def _output(query: Query) -> str:
    output = _word(query, "output") or "table"
    if output not in FORMATTERS:
        raise BadInput(f"the daemon does not know the format {output!r}", on="--output")
    return output
