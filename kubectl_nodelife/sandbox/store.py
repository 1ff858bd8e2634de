"""The API server's store: raw objects with versions, and a log of changes for watchers.

Objects are kept as the JSON that is served, whole, with the slice that decisions read beside it.
One counter gives every change its version, as etcd does. The log of each kind is of limited length;
a watcher that asks for what is no longer in it must list again (410).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.codec import convert, decode_hook, encode_part
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.sandbox.discovery import RESOURCES

Key = tuple[str, str]

LOG_LENGTH = 20_000
"""Of the changes of a kind at least so many are kept."""

_encode = msgspec.json.Encoder(enc_hook=encode_part).encode

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class StoredObject:
    """One object at one version: its JSON, its slice."""

    __slots__ = ("obj", "raw", "version")

    def __init__(self, raw: bytes, obj: KubeObject, version: int) -> None:
        self.raw = raw
        self.obj = obj
        self.version = version

    def document(self) -> dict[str, Any]:
        """The object as plain Python objects, a fresh copy."""
        document: dict[str, Any] = msgspec.json.decode(self.raw)
        return document


class StoreChange:
    """One entry of the log.

    `entry` is the new state; of a deletion, the last one with its version.
    """

    __slots__ = ("_lines", "entry", "old", "type", "version")

    def __init__(
        self, type_: str, version: int, entry: StoredObject, old: StoredObject | None
    ) -> None:
        self.type = type_
        self.version = version
        self.entry = entry
        self.old = old
        self._lines: dict[str, bytes] = {}

    def line(self, type_: str) -> bytes:
        """The watch event's line, made once for all watchers."""
        line = self._lines.get(type_)
        if line is None:
            line = self._lines[type_] = event_line(type_, self.entry.raw)
        return line


def event_line(type_: str, raw: bytes) -> bytes:
    """A watch event as it goes over the wire."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), raw)


class Collection:
    """All objects of one kind, and the log of their changes."""

    def __init__(self, resource: Kind) -> None:
        self.resource = resource
        self.entries: dict[Key, StoredObject] = {}
        self.log: list[StoreChange] = []
        self.oldest = 0  # changes after this version are all in the log
        self.changed = asyncio.Event()
        self._sorted: list[Key] | None = None  # made when first asked for, then kept
        hook = decode_hook(resource.type)
        self._decode = msgspec.json.Decoder(resource.type, dec_hook=hook).decode

    def to_slice(self, raw: bytes) -> KubeObject:
        """The slice of an object's JSON. Raises InputError."""
        try:
            obj: KubeObject = self._decode(raw)
        except msgspec.ValidationError:
            obj = convert(msgspec.json.decode(raw), self.resource.type, "", self.resource.name)
        return obj

    def keys(self) -> list[Key]:
        """All keys in order."""
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        return self._sorted

    def page(self, after: Key | None, limit: int, namespace: str) -> tuple[list[Key], int]:
        """(up to `limit` keys behind `after`, how many come behind those); a limit of 0: all."""
        keys = self.keys()
        first = bisect_right(keys, after) if after is not None else 0
        last = len(keys)
        if namespace:
            first = max(first, bisect_left(keys, (namespace, "")))
            last = bisect_left(keys, (namespace + "\0", ""))
        end = min(first + limit, last) if limit else last
        return keys[first:end], max(0, last - end)

    def record(
        self, type_: str, version: int, entry: StoredObject, old: StoredObject | None
    ) -> None:
        """Note a change and wake the watchers."""
        key = entry.obj.key
        if type_ == DELETED:
            del self.entries[key]
            if self._sorted is not None:
                del self._sorted[bisect_left(self._sorted, key)]
        else:
            if self._sorted is not None and key not in self.entries:
                insort(self._sorted, key)
            self.entries[key] = entry
        self.log.append(StoreChange(type_, version, entry, old))
        if len(self.log) > 2 * LOG_LENGTH:
            self.compact(LOG_LENGTH)
        self.changed.set()
        self.changed = asyncio.Event()

    def compact(self, keep: int) -> None:
        """Forget all but the newest `keep` changes."""
        cut = len(self.log) - keep
        if cut > 0:
            self.oldest = self.log[cut - 1].version
            del self.log[:cut]

    def since(self, version: int) -> Iterator[StoreChange]:
        """The changes after a version, oldest first."""
        start = bisect_right(self.log, version, key=lambda change: change.version)
        return iter(self.log[start:])


class ObjectStore:
    """All collections, with one counter of versions."""

    def __init__(self) -> None:
        self.version = 1
        self.collections = {r.name: Collection(r) for r in RESOURCES}

    def get(self, kind: str, key: Key) -> StoredObject | None:
        """The object, or None."""
        return self.collections[kind].entries.get(key)

    def put(self, kind: str, document: dict[str, Any]) -> StoredObject:
        """Store an object as it now is; its resourceVersion is set in place. Raises InputError."""
        collection = self.collections[kind]
        document["metadata"]["resourceVersion"] = str(self.version + 1)
        return self._stored(collection, msgspec.json.encode(document))

    def load(self, kind: str, obj: KubeObject) -> StoredObject:
        """Store an object of which only the slice is known; five times faster than `put`."""
        collection = self.collections[kind]
        meta = replace(obj.metadata, resource_version=str(self.version + 1))
        body = _encode(replace(obj, metadata=meta))
        raw = b'{"apiVersion":"%s","kind":"%s",%s' % (
            collection.resource.api_version.encode(),
            kind.encode(),
            body[1:],
        )
        return self._stored(collection, raw)

    def _stored(self, collection: Collection, raw: bytes) -> StoredObject:
        """The object of the next version, which its JSON names already. Raises InputError."""
        entry = StoredObject(raw, collection.to_slice(raw), self.version + 1)
        self.version = entry.version
        old = collection.entries.get(entry.obj.key)
        collection.record(ADDED if old is None else MODIFIED, entry.version, entry, old)
        return entry

    def drop(self, kind: str, key: Key) -> StoredObject | None:
        """Take an object out; returns its last state, with the version of the deletion."""
        collection = self.collections[kind]
        old = collection.entries.get(key)
        if old is None:
            return None
        self.version += 1
        document = old.document()
        document["metadata"]["resourceVersion"] = str(self.version)
        raw = msgspec.json.encode(document)
        entry = StoredObject(raw, collection.to_slice(raw), self.version)
        collection.record(DELETED, self.version, entry, old)
        return entry
