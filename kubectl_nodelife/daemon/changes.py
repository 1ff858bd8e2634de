"""A change: one record of what the daemon would do, or did, and the file in which the journal keeps
them.

The same records as a simulated run's timeline, with wall-clock time, how it ended, and the request.
The outcome `would` is open; `confirmed` (the cluster shows it, done by another) and `superseded`
(overtaken) are the ends of a dry run. Of a decision no object shows anything: where what it led to
is confirmed it is told as `decided`.

The file (`Store`) is SQLite in WAL mode, written by one thread of its own in batches. What a batch
has brought to it survives kill -9: the log is written before the answer, and the next opening takes
it in. `synchronous=NORMAL` may lose the last batches when the machine loses power, but never more,
and never the file. Bounds: rows older than the retention go, and the oldest when the file has grown
over its limit.

Each one-off act (`repair`, `daemonset undo`, `drain`) keeps a journal of writes of its own beside
it (`intents.py`), whose rows are shown as changes (`changes_of_acts`). Nothing is locked or changed
for that; a journal that cannot be read is left out.
"""

from __future__ import annotations

import glob
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from kubectl_nodelife.daemon.paths import file_inode, open_private, open_to_read
from kubectl_nodelife.engine.actions import Action, CreatePod, Detail, RecordEvent
from kubectl_nodelife.engine.actions.identity import action_identity, encode_action
from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.redaction import Digest, redact
from kubectl_nodelife.kube.times import HOUR_NS, format_micro_time
from kubectl_nodelife.outlook.replay import DECISIONS

WOULD: Final = "would"
HELD: Final = "held"
CONFIRMED: Final = "confirmed"
DECIDED: Final = "decided"
OUTCOMES: Final = (WOULD, "applied", CONFIRMED, "superseded", "failed", HELD)
ENFORCE: Final = "enforce"

API_VERSION: Final = "nodelife.dev/v1alpha1"

_OBJECTS: Final = ("manifest", "revision")
_STATUS: Final = "status"
"""Fields in which an action may hold a whole object, or its status."""

_json = msgspec.json.Encoder()


class ChangeRecord(msgspec.Struct, gc=False):
    """One record. Instants in ns since the epoch; `detail` and `patch` are JSON texts.

    `cause` is the id of the change that led to this one. `node`: where the pod was that it is
    about. `why`: what the outcome was seen by, or what holds it until `held_until_ns`. `error`:
    what the API server said. `attempts`: how many requests were sent. `data`: the action itself
    (`actions.data`), for as long as it is open. `earliest_ns`, `latest_ns`: between which instants
    it happens, where that cannot be seen from outside; `time_ns` is the middle. `identity`: the key
    by which another process recognises the action (`actions.identity`); "" in rows of releases that
    did not keep it.
    """

    id: int
    time_ns: int
    controller: str
    action: str
    kind: str
    namespace: str
    name: str
    uid: str
    node: str
    detail: str
    reason: str
    cause: int | None
    mode: str
    outcome: str = WOULD
    settled_ns: int | None = None
    why: str = ""
    error: str = ""
    patch: str = ""
    data: str = ""
    earliest_ns: int | None = None
    latest_ns: int | None = None
    attempts: int = 0
    held_until_ns: int | None = None
    identity: str = ""

    @property
    def told_outcome(self) -> str:
        """The outcome as it is told: nothing confirms that a timer is set or a node queued."""
        decided = self.outcome == CONFIRMED and self.action in DECISIONS
        return DECIDED if decided else self.outcome

    def place_within(self, earliest_ns: int, latest_ns: int) -> None:
        """It comes within that time; when cannot be seen from outside."""
        self.earliest_ns, self.latest_ns = earliest_ns, latest_ns
        self.time_ns = (earliest_ns + latest_ns) // 2


COLUMNS: Final = ChangeRecord.__struct_fields__


class Settlement(NamedTuple):
    """How the change with that id ended, or that it is held, which leaves its `data` in place."""

    outcome: str
    settled_ns: int | None
    why: str
    error: str
    attempts: int
    held_until_ns: int | None
    id: int


def changes_of(
    action: Action,
    now_ns: int,
    first_id: int,
    node: str,
    cause: int | None,
    patch: str,
    digest: Digest,
) -> Iterator[ChangeRecord]:
    """The records of one action, numbered from `first_id` on."""
    kind, (namespace, name) = action.target
    is_kept = action.writes and not isinstance(action, RecordEvent)
    data = action_text(action, digest) if is_kept else ""
    identity = action_identity(action)
    for number, (word, detail) in enumerate(action.records(), first_id):
        yield ChangeRecord(
            id=number,
            time_ns=now_ns,
            controller=action.controller,
            action=word,
            kind=kind,
            namespace=namespace,
            name=zone_display(name) if kind == "Zone" else name,
            uid=action.uid,
            node=node,
            detail=_json.encode(_for_people(detail)).decode(),
            reason=action.because,
            cause=cause,
            mode="dry-run",
            patch=patch,
            data=data,
            identity=identity,
        )


def node_of(action: Action, shown: KubeObject | None) -> str:
    """The node that an action is about, or that its pod is on; "" for none. `shown`: the object."""
    if isinstance(action, CreatePod):
        return action.node
    if isinstance(shown, Pod):
        return shown.spec.node_name
    kind, (_, name) = action.target
    return name if kind == "Node" else ""


def action_text(action: Action, digest: Digest) -> str:
    """An action as JSON. Of an object that it creates only what decides is clear."""
    encoded = encode_action(action)
    if not any(hasattr(action, name) for name in (*_OBJECTS, _STATUS)):
        return encoded.decode()
    redacted = msgspec.json.decode(encoded)
    fields, kind = redacted["action"], action.target[0]
    held = [fields.get(name) for name in _OBJECTS]
    held += [{_STATUS: fields[_STATUS]}] if isinstance(fields.get(_STATUS), dict) else []
    for obj in held:
        if isinstance(obj, dict):
            redact(kind, obj, digest)
    return _json.encode(redacted).decode()


def patch_text(request: Request | None, digest: Digest) -> str:
    """A request as JSON, "" for none. Of an object that it sends only what decides is clear."""
    if request is None:
        return ""
    if request.method not in ("POST", "PUT") or "kind" not in request.body:
        return _json.encode(request).decode()
    redacted = msgspec.json.decode(_json.encode(request))  # a copy: the body is the action's own
    redact(redacted["body"]["kind"], redacted["body"], digest)
    return _json.encode(redacted).decode()


_OBJECT: Final = ("kind", "namespace", "name", "uid")


def document(change: ChangeRecord) -> dict[str, Any]:
    """The contract's Change, without apiVersion and kind."""
    item: dict[str, Any] = {
        "id": change.id,
        "time": format_micro_time(change.time_ns),
        "controller": change.controller,
        "action": change.action,
        "object": {key: value for key in _OBJECT if (value := getattr(change, key))},
        "detail": msgspec.json.decode(change.detail),
        "reason": change.reason,
        "cause": change.cause,
        "mode": change.mode,
        "outcome": change.told_outcome,
    }
    is_held = change.outcome == HELD
    more = {
        "earliestTime": _time(change.earliest_ns),
        "latestTime": _time(change.latest_ns),
        "node": change.node,
        "settledTime": _time(change.settled_ns),
        "heldBecause" if is_held else "settledBecause": change.why,
        "heldUntil": _time(change.held_until_ns) if is_held else "",
        "attempts": change.attempts,
        "error": change.error,
        "patch": msgspec.json.decode(change.patch or "{}"),
    }
    return item | {key: value for key, value in more.items() if value}


def _time(instant_ns: int | None) -> str:
    return "" if instant_ns is None else format_micro_time(instant_ns)


def _for_people(detail: Detail) -> Detail:
    """Instants as text, zones by their names."""
    if "due_ns" in detail:
        due = format_micro_time(detail["due_ns"])
        detail = {"due" if k == "due_ns" else k: v for k, v in detail.items()} | {"due": due}
    if "zone" in detail:
        detail = {**detail, "zone": zone_display(detail["zone"])}
    return detail


RETENTION_NS: Final = 7 * 24 * HOUR_NS
MOST_BYTES: Final = 256 << 20
SCHEMA: Final = 5
ACTIONS_RESERVED: Final = 100_000
"""More actions than are decided between two batches."""

_PRUNED_AT_ONCE = 5_000
_PRAGMAS = (
    "auto_vacuum = INCREMENTAL",
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "wal_autocheckpoint = 1000",
)

_TYPES = {
    "id": "INTEGER PRIMARY KEY",
    "time_ns": "INTEGER NOT NULL",
    "cause": "INTEGER",
    "settled_ns": "INTEGER",
    "earliest_ns": "INTEGER",
    "latest_ns": "INTEGER",
    "attempts": "INTEGER NOT NULL",
    "held_until_ns": "INTEGER",
}
_ADDED: Final = {
    2: ("data TEXT NOT NULL DEFAULT ''",),
    3: ("earliest_ns INTEGER", "latest_ns INTEGER"),
    4: ("attempts INTEGER NOT NULL DEFAULT 0", "held_until_ns INTEGER"),
    5: ("identity TEXT NOT NULL DEFAULT ''",),
}
"""The columns that came with each version of the file."""

_TABLE = ", ".join(f"{name} {_TYPES.get(name, 'TEXT NOT NULL')}" for name in COLUMNS)
_DECISIONS = ", ".join(f"'{action}'" for action in sorted(DECISIONS))
_INSERT = f"INSERT INTO changes VALUES ({', '.join('?' * len(COLUMNS))})"
_SETTLE = (
    "UPDATE changes SET outcome = ?1, settled_ns = ?2, why = ?3, error = ?4, attempts = ?5, "
    f"held_until_ns = ?6, data = CASE ?1 WHEN '{HELD}' THEN data ELSE '' END WHERE id = ?7"
)


class ChangeFilter(NamedTuple):
    """Which changes: None and "" do not restrict. `node` means the node itself and its pods."""

    since_ns: int | None = None
    outcome: str = ""
    node: str = ""
    pod: tuple[str, str] | None = None
    until_ns: int | None = None

    def takes(self, change: ChangeRecord) -> bool:
        """The same choice as the query's, for one change."""
        if self.since_ns is not None and change.time_ns < self.since_ns:
            return False
        if self.until_ns is not None and change.time_ns > self.until_ns:
            return False
        if self.outcome and change.told_outcome != self.outcome:
            return False
        if self.node and self.node != (change.name if change.kind == "Node" else change.node):
            return False
        return not self.pod or (change.kind, change.namespace, change.name) == ("Pod", *self.pod)

    def condition(self) -> tuple[str, list[Any]]:
        """As SQL."""
        parts, values = ["1"], []  # type: tuple[list[str], list[Any]]
        if self.since_ns is not None:
            parts.append("time_ns >= ?")
            values.append(self.since_ns)
        if self.until_ns is not None:
            parts.append("time_ns <= ?")
            values.append(self.until_ns)
        if self.outcome:
            decided = self.outcome == DECIDED
            parts.append("outcome = ?")
            values.append(CONFIRMED if decided else self.outcome)
            if self.outcome in (CONFIRMED, DECIDED):
                parts.append(f"action {'' if decided else 'NOT '}IN ({_DECISIONS})")
        if self.node:
            parts.append("(kind = 'Node' AND name = ? OR kind <> 'Node' AND node = ?)")
            values += [self.node, self.node]
        if self.pod:
            parts.append("(kind = 'Pod' AND namespace = ? AND name = ?)")
            values += self.pod
        return " AND ".join(parts), values


class Store:
    """The file. All methods raise sqlite3.Error; call them from one thread.

    `unreadable`: how many rows the last `select` has left out because they make no sense.
    """

    def __init__(
        self, path: str, retention_ns: int = RETENTION_NS, most_bytes: int = MOST_BYTES
    ) -> None:
        """`path` ":memory:" keeps everything in memory."""
        self.path = path
        self._retention_ns = retention_ns
        self._most_bytes = most_bytes
        self.unreadable = 0
        self._db = open_private(path, _PRAGMAS, _make_tables)
        self._inode = file_inode(path)

    def replaced(self) -> bool:
        """True if the file has been deleted, or another one put in its place."""
        return self.path != ":memory:" and file_inode(self.path) != self._inode

    def write(
        self,
        changes: Iterable[ChangeRecord],
        settlements: Iterable[Settlement],
        next_action: int = 1,
    ) -> None:
        """Bring a batch to the file, all of it or nothing. `next_action`: none has that number."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(_INSERT, map(astuple, changes))
            self._db.executemany(_SETTLE, settlements)
            self._reserve_actions(next_action)

    def select(self, wanted: ChangeFilter, limit: int | None = None) -> list[ChangeRecord]:
        """The changes in the order of their ids; with a limit the newest."""
        condition, values = wanted.condition()
        query = f"SELECT * FROM changes WHERE {condition} ORDER BY id DESC LIMIT ?"
        rows = self._db.execute(query, [*values, -1 if limit is None else limit]).fetchall()
        changes = [_change(row) for row in reversed(rows)]
        self.unreadable = changes.count(None)
        return [change for change in changes if change is not None]

    def requests(self, ids: Iterable[int]) -> dict[int, str]:
        """The texts of the requests (`patch`) of those changes that are there, by id."""
        by_number: dict[int, str] = {}
        for number in ids:
            by_number.update(
                self._db.execute("SELECT id, patch FROM changes WHERE id = ?", (number,))
            )
        return by_number

    def next_id(self) -> int:
        """One more than the highest id that was ever used."""
        (highest,) = self._db.execute("SELECT value FROM marks WHERE name = 'next_id'").fetchone()
        (present,) = self._db.execute("SELECT max(id) + 1 FROM changes").fetchone()
        return max(int(highest), int(present or 0))

    def next_action(self) -> int:
        """One more than the number of any action so far, even of those that a crash has lost."""
        rows = self._db.execute("SELECT value FROM marks WHERE name = 'next_action'").fetchall()
        number = int(rows[0][0]) if rows else 1
        self._reserve_actions(number)
        return number

    def _reserve_actions(self, number: int) -> None:
        self._db.execute(
            "INSERT INTO marks VALUES ('next_action', ?) "
            "ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            (number + ACTIONS_RESERVED,),
        )

    def still_open(self) -> list[ChangeRecord]:
        """The changes that a daemon before this one has planned and not settled."""
        return [*self.select(ChangeFilter(outcome=WOULD)), *self.select(ChangeFilter(outcome=HELD))]

    def prune(self, now_ns: int) -> int:
        """Drop what is too old or too much, a few thousand rows at a time. How many went."""
        gone = self._delete("time_ns < ?", now_ns - self._retention_ns)
        if not gone and self.size_bytes() > self._most_bytes:
            gone = self._delete("id >= ?", 0)
        return gone

    def size_bytes(self) -> int:
        """The size of the file without its log and without free pages."""
        page, count, free = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        return int(page * (count - free))

    def close(self) -> None:
        """Take the log in and close the file."""
        self._db.close()

    def _delete(self, condition: str, value: int) -> int:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "UPDATE marks SET value = "
                "max(value, coalesce((SELECT max(id) + 1 FROM changes), 0))"
            )
            cursor = self._db.execute(
                f"DELETE FROM changes WHERE id IN "
                f"(SELECT id FROM changes WHERE {condition} ORDER BY id LIMIT ?)",
                (value, _PRUNED_AT_ONCE),
            )
        self._db.execute("PRAGMA incremental_vacuum").fetchall()
        return cursor.rowcount


def _change(row: tuple[Any, ...]) -> ChangeRecord | None:
    """A row as it was written; None for one that makes no sense."""
    try:
        change = msgspec.convert(dict(zip(COLUMNS, row, strict=True)), ChangeRecord)
        msgspec.json.decode(change.detail)
        msgspec.json.decode(change.patch or "null")
    except (msgspec.MsgspecError, ValueError):
        return None
    return change


def _make_tables(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if 1 <= version < SCHEMA:
        db.execute("BEGIN IMMEDIATE")
        for column in (c for v in range(version + 1, SCHEMA + 1) for c in _ADDED[v]):
            db.execute(f"ALTER TABLE changes ADD COLUMN {column}")
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("COMMIT")
    elif version not in (0, SCHEMA):
        raise sqlite3.OperationalError(f"schema {version} is not ours ({SCHEMA})")
    db.execute(f"CREATE TABLE IF NOT EXISTS changes ({_TABLE})")
    db.execute("CREATE INDEX IF NOT EXISTS changes_by_time ON changes (time_ns)")
    db.execute("CREATE INDEX IF NOT EXISTS changes_open ON changes (id) WHERE outcome = 'would'")
    db.execute("CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
    db.execute("INSERT OR IGNORE INTO marks VALUES ('next_id', 0)")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    _check_tables(db)


def _check_tables(db: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError for tables that are not as we make them."""
    columns = tuple(row[1] for row in db.execute("PRAGMA table_info(changes)"))
    (mark,) = db.execute("SELECT typeof(value) FROM marks WHERE name = 'next_id'").fetchone()
    if columns != COLUMNS or mark != "integer":
        raise sqlite3.DatabaseError("its tables are not ours")


def read_only(path: str, wanted: ChangeFilter) -> Sequence[ChangeRecord]:
    """The changes in the file of a daemon that does not run. Raises sqlite3.Error, OSError."""
    os.stat(path)
    with closing(Store(path)) as store:
        return store.select(wanted)


ACTS_PATTERN: Final = "acts-*.writes.db"
"""The names of the journals of acts."""
_SAME: Final = ("id", "time_ns", "controller", "kind", "namespace", "name", "uid")
"""The columns that a change has, too."""
_DETAILS: Final = ("unschedulable", "grace_period_seconds", "revision", "status")
_KEYS: Final = {"grace_period_seconds": "gracePeriodSeconds"}


def changes_of_acts(folder: str, wanted: ChangeFilter) -> list[dict[str, Any]]:
    """The changes of all acts, as `changes` shows them, in order of time."""
    changes: list[ChangeRecord] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), ACTS_PATTERN))):
        try:
            changes += filter(wanted.takes, _read_acts(path))
        except sqlite3.Error:
            continue
    return [document(change) for change in sorted(changes, key=lambda change: change.time_ns)]


def _read_acts(path: str) -> list[ChangeRecord]:
    """One change a write, of conditions one each."""
    with closing(open_to_read(path, seconds=1)) as db:
        same = ", ".join(_SAME)
        rows = db.execute(f"SELECT action, state, code, message, {same} FROM writes").fetchall()
    return [change for row in rows for change in _changes_of_act(*row)]


def _changes_of_act(
    text: str, state: str, code: int, message: str, *same: Any
) -> Iterator[ChangeRecord]:
    columns = dict(zip(_SAME, same, strict=True))
    action = msgspec.json.decode(text)
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
            detail=_json.encode(detail).decode(),
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
