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

from kubectl_nodelife.daemon.changes import ENFORCE, ChangeFilter, ChangeRecord, document
from kubectl_nodelife.daemon.sqlite_file import open_to_read
from kubectl_nodelife.engine.events import NOT_SENT

PATTERN: Final = "acts-*.writes.db"
_SAME: Final = ("id", "time_ns", "controller", "kind", "namespace", "name", "uid")
"""The columns that a change has, too."""
_DETAILS: Final = ("unschedulable", "grace_period_seconds", "revision", "status")
_KEYS: Final = {"grace_period_seconds": "gracePeriodSeconds"}


def changes_of_acts(folder: str, wanted: ChangeFilter) -> list[dict[str, Any]]:
    """The changes of all acts, as `changes` shows them, in order of time."""
    found: list[ChangeRecord] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), PATTERN))):
        try:
            found += filter(wanted.takes, _read(path))
        except sqlite3.Error:
            continue
    return [document(change) for change in sorted(found, key=lambda change: change.time_ns)]


def _read(path: str) -> list[ChangeRecord]:
    """One change a write, of conditions one each."""
    with closing(open_to_read(path, seconds=1)) as db:
        same = ", ".join(_SAME)
        rows = db.execute(f"SELECT action, state, code, message, {same} FROM writes").fetchall()
    return [change for row in rows for change in _changes(*row)]


def _changes(text: str, state: str, code: int, message: str, *same: Any) -> Iterator[ChangeRecord]:
    columns = dict(zip(_SAME, same, strict=True))
    action = json.loads(text)
    details = [{_KEYS.get(key, key): action[key] for key in _DETAILS if key in action}]
    word = action["type"]
    if word == "SetNodeConditions":
        word = "SetNodeCondition"
        details = [{k: c[k] for k in ("type", "status", "reason")} for c in action["conditions"]]
    for detail in details:
        yield ChangeRecord(
            **columns,
            action=word,
            node=columns["name"] if columns["kind"] == "Node" else "",
            detail=json.dumps(detail),
            reason=action.get("because", ""),
            cause=None,
            mode=ENFORCE,
            outcome=_outcome(state, code),
            error=f"{code}: {message}" if message and state != "applied" else "",
        )


def _outcome(state: str, code: int) -> str:
    """A write that is on its way, or whose end is not known, is `sent`."""
    if state == "failed":
        return "held" if code == NOT_SENT else "failed"
    return state if state == "applied" else "sent"
