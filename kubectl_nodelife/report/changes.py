"""The page of `changes`: what the daemon would do, or what was done, in order of time.

Made from the documents that the daemon sends. A quick verb: only the table is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubectl_nodelife.answers.changes import change_list
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import Column, Table, Widths, columns

_COLUMNS = columns(
    "time | outcome | settled* | controller* | action | object | detail:3 | reason | id* | cause*"
)
_BY = Column("by")
_PREFIX = "node.kubernetes.io/"


class ChangesPage:
    """A list of changes as an answer."""

    def __init__(self, items: Sequence[dict[str, Any]], source: dict[str, Any]) -> None:
        self._items = items
        self._source = source

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """One table; of writes that were seen, with whose they are."""
        if any("by" in item for item in self._items):
            rows = [[*_row(item)[:2], item["by"]["name"], *_row(item)[2:]] for item in self._items]
            yield Table((*_COLUMNS[:2], _BY, *_COLUMNS[2:]), rows)
        else:
            yield Table(_COLUMNS, [_row(item) for item in self._items])

    def document(self) -> object:
        """The contract's ChangeList."""
        return change_list(self._items, self._source)

    def names(self) -> Iterable[str]:
        """kind/name of each object, as often as it changed."""
        for item in self._items:
            yield _object(item).lower()


def lines(
    items: Sequence[dict[str, Any]], widths: Widths, *, wide: bool, headers: bool
) -> list[str]:
    """The rows alone, to stand below what was printed with these widths before."""
    return Table(_COLUMNS, [_row(i) for i in items]).lines(widths, wide=wide, headers=headers)


def _row(item: dict[str, Any]) -> list[object]:
    return [
        _clock(item["time"]),
        item["outcome"],
        _clock(item.get("settledTime", "")),
        item["controller"],
        item["action"],
        _object(item),
        ",".join(_detail(item["action"], item["detail"])),
        item["reason"],
        item["id"],
        item["cause"],
    ]


def _object(item: dict[str, Any]) -> str:
    obj = item["object"]
    inside = f"{obj['namespace']}/" if obj.get("namespace") else ""
    return f"{obj['kind']}/{inside}{obj['name']}"


def _clock(time: str) -> str:
    """The instant to the millisecond: `2026-11-21T14:43:50.123Z`."""
    whole, dot, fraction = time.partition(".")
    return f"{whole}.{fraction[:3]}Z" if dot else time


def _detail(action: str, detail: dict[str, Any]) -> Iterable[str]:
    """The detail in as few words as tell it."""
    if action in ("AddTaint", "RemoveTaint"):
        value = f"={detail['value']}" if detail.get("value") else ""
        yield f"{detail['key'].removeprefix(_PREFIX)}{value}:{detail['effect']}"
    elif action in ("SetNodeCondition", "SetPodCondition", "MarkPodNotReady"):
        reason = f" ({detail['reason']})" if detail.get("reason") else ""
        yield f"{detail['type']}={detail['status']}{reason}"
    elif action == "SetZoneState":
        yield f"{detail['from']} to {detail['to']} at {detail['rate']:g}/s"
    else:
        for key, value in detail.items():
            if key == "due":
                yield f"due {_clock(value)}"
            elif key == "told":
                yield value
            elif not isinstance(value, (list, dict)):
                yield f"{key}={value}"
