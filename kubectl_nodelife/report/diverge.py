"""The page of `diverge`: the verdict, then what differs, what others did, and likely settings.

Made from the document that the daemon sends; it imports nothing but the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.screen import this_screen
from kubectl_nodelife.report.table import Table, Widths, columns

_COLUMNS = columns(
    "finding | object | expected | seen:2 | by:3 | sure:4 | controller* | action* | "
    "detail* | count* | message | expected because*"
)
_SETTINGS = columns("setting | assumed | likely | sure:4 | seen:2 | origin*")


class DivergencePage:
    """A Divergence document as an answer."""

    def __init__(self, made: dict[str, Any]) -> None:
        self._made = made

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The sentence, the findings, and what the settings look like; `wide` shows all guesses."""
        made = self._made
        yield f"{made['verdict']}: {made['because']}"
        yield Table(_COLUMNS, [_row(item) for item in made["items"]])
        shown = [s for s in made["settings"] if wide or not s["agrees"]]
        yield Table(_SETTINGS, [_setting(s) for s in shown])

    def document(self) -> object:
        """The Divergence document."""
        return self._made

    def names(self) -> Iterable[str]:
        """kind/name of each object with a finding, once."""
        return dict.fromkeys(_object(item).lower() for item in self._made["items"])


def lines(
    items: Sequence[dict[str, Any]], widths: Widths, *, wide: bool, headers: bool
) -> list[str]:
    """The rows alone, to stand below what was printed with these widths before."""
    table = Table(_COLUMNS, [_row(i) for i in items])
    return table.lines(widths, wide=wide, headers=headers, screen=this_screen())


def same(item: dict[str, Any]) -> tuple[object, ...]:
    """The identity of a finding a moment later."""
    by = item.get("by", {}).get("manager", "")
    words = (item.get(key) for key in ("action", "detail", "seenTime", "sure"))
    return (item["kind"], _object(item), by, item["count"], *words)


def _row(item: dict[str, Any]) -> list[object]:
    return [
        item["kind"],
        _object(item),
        _clock(item.get("expectedTime", "")),
        _clock(item.get("seenTime", "")),
        item.get("by", {}).get("manager", ""),
        item["sure"],
        item.get("controller", ""),
        item.get("action", ""),
        item.get("detail", ""),
        item["count"],
        item["message"],
        item.get("expectedBecause", ""),
    ]


def _setting(setting: dict[str, Any]) -> list[object]:
    assumed, likely = setting["assumed"], setting["likely"]
    words = ("sure", "seen", "origin")
    return [setting["flag"], assumed, likely, *(setting[word] for word in words)]


def _object(item: dict[str, Any]) -> str:
    obj = item["object"]
    inside = f"{obj['namespace']}/" if obj.get("namespace") else ""
    return f"{obj['kind']}/{inside}{obj['name']}"


def _clock(time: str) -> str:
    """The time of day to the second: `14:43:50Z`; the document has the whole."""
    return f"{time[11:19]}Z" if time else ""
