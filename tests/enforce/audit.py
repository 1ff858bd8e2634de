"""The audit log of a sandbox, in the form of a real API server's, which the observer judges.

Requests of clients are noted by whoever carries them out; what the cluster's own parts (kubelets,
scheduler, owners) changed meanwhile is found in the store's log of changes.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.sandbox.server import read_path
from kubectl_nodelife.sandbox.store import DELETED, ObjectStore

Json = dict[str, Any]
_LEASES = "kube-node-lease"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class AuditLog:
    """`entries`: see the module. `now_ns`: the clock, since the epoch."""

    def __init__(self, store: ObjectStore, now_ns: Callable[[], int]) -> None:
        self.entries: list[Json] = []
        self._store = store
        self._now_ns = now_ns
        self._last_us = 0
        self._seen = 0

    def note_request(
        self, method: str, path: str, agent: str, content: bytes | None, code: int, answer: Json
    ) -> bool:
        """Note a write of a client, and what else has changed; true if anything has by now."""
        target = read_path(method, path, {}).target
        of_status = answer.get("kind") == "Status"
        about = (target.resource.plural, target.subresource, target.namespace, target.name)
        asked = msgspec.json.decode(content) if content else None
        self._note(agent, _VERBS[method], about, asked, code, {} if of_status else answer)
        version = (answer.get("metadata") or {}).get("resourceVersion", "0")
        return self.note_changes(int(version) if version and method != "DELETE" else 0)

    def note_changes(self, skip: int = 0) -> bool:
        """Note what the cluster's own parts changed, without the change of version `skip`. True if
        anything has changed since the last time.
        """
        store = self._store
        if store.version == self._seen:
            return False
        changes = [
            (change, kind)
            for kind, collection in store.collections.items()
            if collection.log and collection.log[-1].version > self._seen and kind != "Event"
            for change in collection.since(self._seen)
        ]
        self._seen = store.version
        for change, kind in sorted(changes, key=lambda one: one[0].version):
            if change.version == skip:
                continue
            namespace, name = change.entry.obj.key
            verb = "delete" if change.type == DELETED else "update"
            plural = store.collections[kind].resource.plural
            silent = verb == "delete" or namespace == _LEASES
            answer = {} if silent else change.entry.document()
            self._note("cluster", verb, (plural, "", namespace, name), None, 200, answer)
        return True

    def note_all(self, kind: str) -> None:
        """Note every object of a kind as it is now, whoever changed it."""
        collection = self._store.collections[kind]
        for (namespace, name), entry in collection.entries.items():
            about = (collection.resource.plural, "", namespace, name)
            self._note("cluster", "update", about, None, 200, entry.document())

    def overlook(self) -> None:
        """What has changed by now is nobody's write: the store was restored."""
        self._seen = self._store.version

    def _note(
        self,
        agent: str,
        verb: str,
        ref: tuple[str, str, str, str],
        sent: Any,
        code: int,
        answer: Any,
    ) -> None:
        self._last_us = max(self._last_us + 1, self._now_ns() // 1000)
        at = datetime.fromtimestamp(self._last_us / 1e6, UTC)
        resource, subresource, namespace, name = ref
        self.entries.append(
            {
                "requestReceivedTimestamp": at.isoformat(timespec="microseconds"),
                "userAgent": agent,
                "verb": verb,
                "objectRef": {
                    "resource": resource,
                    "subresource": subresource,
                    "namespace": namespace,
                    "name": name,
                },
                "requestObject": sent,
                "responseStatus": {"code": code},
                "responseObject": answer,
            }
        )


def on_the_true_clock(entries: list[Json]) -> list[Json]:
    """The entries, where taints are dated by when they were seen first: the daemon dates them by
    the clock of the API server, which jumps.
    """
    first: dict[tuple[str, str, str], str] = {}
    for entry in entries:
        if entry["objectRef"]["resource"] != "nodes":
            continue
        at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        for taint in (entry["responseObject"].get("spec") or {}).get("taints") or []:
            if dated := taint.get("timeAdded"):
                key = entry["objectRef"]["name"], taint["key"], dated
                taint["timeAdded"] = first.setdefault(key, format_micro_time(round(at * 1e9)))
    return entries
