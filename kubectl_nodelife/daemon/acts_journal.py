"""Reads what one-off acts have written (`repair`, `daemonset undo`, `drain`), as changes.

Each act keeps a journal of writes of its own beside the daemon's (`intents.py`). Nothing is locked
or changed here; a journal that cannot be read is left out.
"""

from __future__ import annotations

import glob
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from kubectl_nodelife.daemon.sqlite_file import open_to_read
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.kube.times import format_micro_time

PATTERN: Final = "acts-*.writes.db"
_ACT_COLUMNS: Final = (
    "id, time_ns, controller, action, kind, namespace, name, uid, state, code, message"
)
_DETAILS: Final = ("unschedulable", "grace_period_seconds", "revision", "status")
_NAMES: Final = {"grace_period_seconds": "gracePeriodSeconds"}


def changes_of_acts(
    folder: str,
    since_ns: int,
    outcome: str = "",
    node: str = "",
    pod: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The changes of all acts since then, as `changes` shows them, in order of time.

    `outcome`, `node`: "" does not restrict; `pod`: its namespace and name, None for all.
    """
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), PATTERN))):
        try:
            found += [
                item for item in _read(path, since_ns) if _is_asked_for(item, outcome, node, pod)
            ]
        except sqlite3.Error:
            continue
    return sorted(found, key=lambda item: str(item["time"]))


def _read(path: str, since_ns: int) -> Iterator[dict[str, Any]]:
    with closing(open_to_read(path, seconds=1)) as db:
        rows = db.execute(f"SELECT {_ACT_COLUMNS} FROM writes WHERE time_ns >= ?", (since_ns,))
        for row in rows.fetchall():
            yield from _changes(row)


def _changes(row: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """One change a write, of conditions one each."""
    change, action = _change(row)
    if action["type"] != "SetNodeConditions":
        yield change
        return
    for condition in action["conditions"]:
        detail = {key: condition[key] for key in ("type", "status", "reason")}
        yield {**change, "action": "SetNodeCondition", "detail": detail}


def _change(row: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    number, time_ns, controller, text, kind, namespace, name, uid, state, code, message = row
    action = json.loads(text)
    obj = {"kind": kind, "namespace": namespace, "name": name, "uid": uid}
    change: dict[str, Any] = {
        "id": number,
        "time": format_micro_time(time_ns),
        "controller": controller,
        "action": action["type"],
        "object": {key: value for key, value in obj.items() if value},
        "detail": {_NAMES.get(k, k): action[k] for k in _DETAILS if action.get(k) is not None},
        "reason": action.get("because", ""),
        "cause": None,
        "mode": "enforce",
        "outcome": _outcome(state, code),
    }
    if kind == "Node":
        change["node"] = name
    if message and state != "applied":
        change["error"] = f"{code}: {message}"
    return change, action


def _outcome(state: str, code: int) -> str:
    """A write that is on its way, or whose end is not known, is `sent`."""
    if state == "failed":
        return "held" if code == NOT_SENT else "failed"
    return state if state == "applied" else "sent"


def _is_asked_for(
    item: dict[str, Any], outcome: str, node: str, pod: tuple[str, str] | None
) -> bool:
    if outcome and item["outcome"] != outcome:
        return False
    if node:
        return bool(item.get("node") == node)
    obj = item["object"]
    return pod is None or (obj["kind"], obj.get("namespace"), obj["name"]) == ("Pod", *pod)
