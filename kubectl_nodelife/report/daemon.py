"""The pages of `daemon status`: which daemons there are, and how each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import human_seconds
from kubectl_nodelife.report.formats import Block, Page
from kubectl_nodelife.report.table import NONE, Table, columns

_COLUMNS = columns(
    "context | server:3 | state | pid | version* | up:2 | last news | nodes | pods | "
    "profile* | memory* | identity*"
)


AT_WORK = ("watching", "enforcing", "standing by", "warming up", "reading")


def daemons_page(items: Sequence[dict[str, Any]]) -> Page:
    """All daemons as an answer, which is one document even where none runs. Each item is a health
    document, or a card with an `error`. Names: daemon/CONTEXT of each."""
    return Page(
        partial(_blocks, items),
        lambda: document("DaemonList", items=list(items)),
        lambda: (f"daemon/{item.get('context') or item.get('identity')}" for item in items),
    )


def _blocks(items: Sequence[dict[str, Any]], *, wide: bool) -> Iterator[Block]:
    """How many watch, and a line for each; wide: its files, settings and kinds as well."""
    if items:
        yield _headline(items)
    yield Table(_COLUMNS, [_row(item) for item in items])
    if wide:
        for item in items:
            yield "\n".join(_more(item))


def _headline(items: Sequence[dict[str, Any]]) -> str:
    """How many daemons do their work, and what to do about the first that does not."""
    odd = [item for item in items if state_of(item) not in AT_WORK]
    are = "is" if len(items) == 1 else "are"
    if not odd:
        return f"{counted(len(items), 'daemon')} {are} at work."
    first = odd[0]
    where = first.get("context") or first.get("server")
    return (
        f"{len(odd)} of {counted(len(items), 'daemon')} {are} not at work: {where}: "
        f"{state_of(first)}. See kubectl nodelife daemon logs"
    )


def state_of(item: dict[str, Any]) -> str:
    """The daemon's state in a word or two."""
    if item.get("error"):
        return "not answering" if item.get("running") else "ended"
    if not item.get("synced"):
        return "reading"
    if item.get("standsStill"):
        return "not watching"
    enforcement = item.get("enforcement")
    if enforcement is not None:
        if enforcement.get("standsBy"):
            return "standing by"
        held = not enforcement["enforcing"] or enforcement["breakers"]
        return "not enforcing" if held else "enforcing"
    return "warming up" if item.get("cold") else "watching"


def _row(item: dict[str, Any]) -> list[object]:
    kinds = {k["kind"]: k for k in item.get("kinds", ())}
    return [
        item.get("context"),
        item.get("server"),
        state_of(item),
        item.get("pid"),
        item.get("version"),
        _age(item.get("upSeconds")),
        _age(item.get("lastNewsSeconds")),
        kinds.get("Node", {}).get("objects", NONE),
        kinds.get("Pod", {}).get("objects", NONE),
        item.get("profile"),
        f"{item['residentBytes'] >> 20}Mi" if item.get("residentBytes") else NONE,
        item.get("identity"),
    ]


def _more(item: dict[str, Any]) -> Iterable[str]:
    yield f"{item.get('context') or item.get('identity')}:"
    for name in ("socket", "log", "metrics", "answers"):
        if item.get(name):
            yield f"  {name}: {item[name]}"
    if item.get("ui"):
        yield f"  page: {item['ui']['url']}"
    journal = item.get("journal")
    if journal:
        yield f"  journal: {journal['path']}, {journal['open']} open changes"
    yield from _enforcement(item.get("enforcement"))
    if item.get("controllers"):
        yield f"  controllers: {', '.join(item['controllers'])}"
    for kind in item.get("kinds", ()):
        error = f" ({kind['error']})" if kind["error"] else ""
        yield f"  {kind['kind']}: {kind['phase']}, {counted(kind['objects'], 'object')}{error}"
    for entry in item.get("quarantine", ()):
        yield f"  quarantine: {_quarantined(entry)} since {entry['since']} ({entry['why']})"
    for flag, setting in item.get("settings", {}).items():
        yield f"  {flag}={setting['value']} ({setting['origin']})"


def not_enforced(item: dict[str, Any]) -> list[str]:
    """Why something of what a daemon was ordered to enforce is not sent, a line each."""
    found = item.get("enforcement")
    if found is None or found.get("standsBy"):
        return []
    ended = [f"{part} has ended by a bug of ours" for part in found.get("ended", ())]
    reasons = dict.fromkeys(filter(None, [found["because"], *found["breakers"], *ended]))
    waits = found["breakers"] or ended
    goes_on = "; `kubectl nodelife daemon resume` goes on" if waits else ""
    return [f"not enforced: {because}{goes_on}" for because in reasons]


def _enforcement(found: dict[str, Any] | None) -> Iterable[str]:
    if found is None:
        return
    because = "; ".join(filter(None, [found["because"], *found["breakers"]]))
    held = f" (held: {because})" if because else ""
    yield f"  enforces: {', '.join(found['controllers'])}{held}"
    yield f"  lease: {found['lease']['name']}, held by {found['lease']['holder'] or 'no process'}"
    writes = ", ".join(f"{count} {word}" for word, count in found["writes"].items())
    left = ", ".join(f"{count} {name}" for name, count in found.get("capsLeft", {}).items())
    caps = f"{found['caps']}, left: {left}" if left else found["caps"]
    yield f"  writes: {writes}, {found['inFlight']} on their way; caps: {caps}"


def _quarantined(entry: dict[str, Any]) -> str:
    if "controller" in entry:
        return f"{entry['controller']} at {entry['at']}"
    name = f"{entry['namespace']}/{entry['name']}" if entry["namespace"] else entry["name"]
    return f"{entry['kind']} {name}"


def _age(seconds: float | None) -> str:
    return NONE if seconds is None else human_seconds(seconds)
