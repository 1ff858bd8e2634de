"""A change: one record of what the daemon would do, or did, as the journal keeps it.

The same records as a simulated run's timeline, with wall-clock time, how it ended, and the request.
The outcome `would` is open; `confirmed` (the cluster shows it, done by another) and `superseded`
(overtaken) are the ends of a dry run. Of a decision no object shows anything: where what it led to
is confirmed it is told as `decided`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.actions import Action, Detail, RecordEvent
from kubectl_nodelife.engine.actions.identity import action_identity, encode_action
from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.redaction import Digest, redact
from kubectl_nodelife.kube.times import format_micro_time
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
    kept = action.writes and not isinstance(action, RecordEvent)
    data = action_text(action, digest) if kept else ""
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


def action_text(action: Action, digest: Digest) -> str:
    """An action as JSON. Of an object that it creates only what decides is clear."""
    encoded = encode_action(action)
    if not any(hasattr(action, name) for name in (*_OBJECTS, _STATUS)):
        return encoded.decode()
    made = msgspec.json.decode(encoded)
    fields, kind = made["action"], action.target[0]
    held = [fields.get(name) for name in _OBJECTS]
    held += [{_STATUS: fields[_STATUS]}] if isinstance(fields.get(_STATUS), dict) else []
    for obj in held:
        if isinstance(obj, dict):
            redact(kind, obj, digest)
    return _json.encode(made).decode()


def patch_text(request: Request | None, digest: Digest) -> str:
    """A request as JSON, "" for none. Of an object that it sends only what decides is clear."""
    if request is None:
        return ""
    if request.method not in ("POST", "PUT") or "kind" not in request.body:
        return _json.encode(request).decode()
    made = msgspec.json.decode(_json.encode(request))  # a copy: the body is the action's own
    redact(made["body"]["kind"], made["body"], digest)
    return _json.encode(made).decode()


def document(change: ChangeRecord) -> dict[str, Any]:
    """The contract's Change, without apiVersion and kind."""
    obj = {"kind": change.kind, "namespace": change.namespace, "name": change.name}
    obj["uid"] = change.uid
    made: dict[str, Any] = {
        "id": change.id,
        "time": format_micro_time(change.time_ns),
        "controller": change.controller,
        "action": change.action,
        "object": {key: value for key, value in obj.items() if value},
        "detail": msgspec.json.decode(change.detail),
        "reason": change.reason,
        "cause": change.cause,
        "mode": change.mode,
        "outcome": change.told_outcome,
    }
    if change.earliest_ns is not None and change.latest_ns is not None:
        made["earliestTime"] = format_micro_time(change.earliest_ns)
        made["latestTime"] = format_micro_time(change.latest_ns)
    if change.node:
        made["node"] = change.node
    if change.settled_ns is not None:
        made["settledTime"] = format_micro_time(change.settled_ns)
    if change.outcome == HELD:
        made["heldBecause"] = change.why
        if change.held_until_ns is not None:
            made["heldUntil"] = format_micro_time(change.held_until_ns)
    elif change.why:
        made["settledBecause"] = change.why
    if change.attempts:
        made["attempts"] = change.attempts
    if change.error:
        made["error"] = change.error
    if change.patch:
        made["patch"] = msgspec.json.decode(change.patch)
    return made


def _for_people(detail: Detail) -> Detail:
    """Instants as text, zones by their names."""
    if "due_ns" in detail:
        due = format_micro_time(detail["due_ns"])
        detail = {"due" if k == "due_ns" else k: v for k, v in detail.items()} | {"due": due}
    if "zone" in detail:
        detail = {**detail, "zone": zone_display(detail["zone"])}
    return detail
