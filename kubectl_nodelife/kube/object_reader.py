"""Reads documents into typed objects, one or many, and notes what they say of themselves.

A JSON List is split into undecoded items whose kind is read off their first bytes, even where one
item is no JSON at all, and each item goes straight to its type (`kube.codec`). Kinds that no
decision reads are counted, and an object that cannot be read is set aside: neither is an error.

Pods hold the equal parts of the pod before them in a list (`share_equal_parts`). A list is in order
of namespace and name, so the replicas of a workload stand next to each other, and a pod's labels,
owners, tolerations and containers nearly always equal those of the pod before it. That halves a big
cluster's memory, and costs less time than it saves in allocation. Comparing with one neighbour
needs no table that would have to forget. `live.source` does the same for pods that come in any
order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from kubectl_nodelife.kube import codec
from kubectl_nodelife.kube.documents import DUMP_AGAIN, Json, end_of_json, json_starts
from kubectl_nodelife.kube.kinds import Kind, find_kind, find_resource, group_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.unreadable import (
    InputError,
    NotKubernetes,
    Unreadable,
    identify,
    identify_plain,
    split_list,
    text_member,
)
from kubectl_nodelife.kube.wellknown import ANNOTATION_KINDS

_PROGRESS_STEP = 1000
_NAMESPACE = "default"  # where kubectl would have sent an object without one


Seen = Callable[[Kind, Json | msgspec.Raw | dict[str, Any]], None]
"""Receives objects as they came: JSON undecoded, YAML as plain Python objects."""

# kubectl prints members in alphabetical order, so these two come first but in hand-written JSON.
HEAD = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([\w./-]*)"\s*,\s*"kind"\s*:\s*"(\w*)"')


@dataclass(slots=True)
class Loaded:
    """Objects in the order read, and what the input says about its own completeness.

    `kinds_read`: kinds of which there is an object, an empty list, or the word of the annotation
    nodelife.dev/kinds; `all_kinds`: the annotation says that nothing is missing. `unknown_kinds`
    counts what was passed over. `single_node`: the last Node that stood outside a List.
    `left_out`: a sentence on each field that was left out, since nothing depends on it.
    `annotations`: those of Lists. `unreadable`: objects of a kind that is read, and which cannot be
    read or decided on.
    """

    objects: list[KubeObject] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    single_node: str = ""
    left_out: list[str] = field(default_factory=list)
    unknown_kinds: Counter[str] = field(default_factory=Counter)
    kinds_read: set[str] = field(default_factory=set)
    all_kinds: bool = False
    annotations: dict[str, str] = field(default_factory=dict)


class ObjectReader:
    """Reads documents into one `Loaded`, and counts them. Everything raises InputError.

    `kind`: of documents that say neither apiVersion nor kind, as far as their path shows.
    `seen` receives each object that is kept, undecoded. `items_before`: so many items of the
    present List were read already.
    """

    def __init__(
        self, source: str, progress: Callable[[int], None] | None, kind: Kind | None = None
    ) -> None:
        self.source = source
        self.seen: Seen | None = None
        self.kind = kind
        self.loaded = Loaded()
        self.documents = 0
        self.done = 0
        self.items_before = 0
        self._progress = progress
        self._heads: dict[bytes, Head | None] = {}
        self._pod: Pod | None = None
        self._reported = 0
        self._fault_found: InputError | None = None
        self._in_list = False

    def refuse_if_nothing_is_readable(self) -> None:
        """Raise what was wrong with the first object, where all are in vain."""
        if self._fault_found is not None and not self.loaded.objects:
            raise self._fault_found

    def report_done(self) -> None:
        """Report to the progress how many items there were in all."""
        if self._progress is not None:
            self._progress(self.done)

    def read_json(self, text: bytes) -> None:
        """Read one JSON document, or several one after another."""
        start, number = json_starts(text, 0), 0
        while start < len(text):
            end = self.read_json_document(text, start, document_path(number))
            start, number = json_starts(text, end), number + 1

    def read_json_document(self, text: bytes, start: int, path: str) -> int:
        """Read the document that begins at `start`; returns where it ends."""
        end = len(text)
        document: Json = memoryview(text)[start:] if start else text
        try:
            envelope = read_envelope(document)
        except codec.UNDECODABLE:
            try:
                end = end_of_json(text, self.source, start)
            except InputError:
                damaged = damaged_list(bytes(document))
                if damaged is None:
                    raise
                return self._read_envelope(damaged, document, path, end)
            document = memoryview(text)[start:end]
            try:
                envelope = read_envelope(document)
            except codec.UNDECODABLE:  # a bare array, or an object of a strange shape
                self._read_document(codec.plain(document, self.source, path), path)
                return end
        return self._read_envelope(envelope, document, path, end)

    def _read_envelope(self, envelope: Envelope, document: Json, path: str, end: int) -> int:
        self.documents += 1
        given = envelope.items is not msgspec.UNSET
        if not is_list(envelope.api_version, envelope.kind, given):
            if not self._read_run([document], 0):
                self._read_item(document, path, "", "")
            return end
        item_kind = self._note_list(
            envelope.api_version, envelope.kind, list_annotations(envelope.metadata)
        )
        if isinstance(envelope.items, list):
            self.read_items(envelope.items, path, envelope.api_version, item_kind)
        return end

    def read_items(
        self, items: Sequence[Json | msgspec.Raw], path: str, api_version: str, item_kind: str
    ) -> None:
        """Read a List's items; its own version and kind stand in where an item names none."""
        index, self._in_list = 0, True
        while index < len(items):
            read = self._read_run(items, index)
            if not read:
                where = item_path(path, self.items_before + index)
                self._read_item(items[index], where, api_version, item_kind)
                read = 1
            index += read

    def _read_item(
        self, item: Json | msgspec.Raw, path: str, api_version: str, item_kind: str
    ) -> None:
        """Read an item of a List that wants a closer look."""
        try:
            document = codec.plain(item, self.source, path)
        except InputError as error:
            raw = bytes(item)
            version = text_member(raw, b"apiVersion") or api_version
            kind = find_kind(version, text_member(raw, b"kind") or item_kind)
            unreadable = identify(kind, raw, error.what, _NAMESPACE) if kind is not None else None
            self._set_aside(unreadable, error)
            return
        self._read_member(document, path, api_version, item_kind)

    def read_plain_item(self, raw: Any, path: str, api_version: str, item_kind: str) -> None:
        """Read an item of a List that is plain Python objects, before the List itself is."""
        self._in_list = True
        self._read_member(raw, path, api_version, item_kind)

    def _read_member(self, raw: Any, path: str, api_version: str, item_kind: str) -> None:
        """Read one of several objects: one that cannot be read leaves the others as they are."""
        try:
            self._read_plain(raw, path, api_version, item_kind)
        except InputError as error:
            if not isinstance(raw, dict):
                raise
            names = raw.get("apiVersion") or api_version, raw.get("kind") or item_kind
            kind = find_kind(*names) if all(isinstance(name, str) for name in names) else None
            why = f"{error.path.removeprefix(path).removeprefix('.')}: {error.what}"
            unreadable = identify_plain(kind, raw, why, _NAMESPACE) if kind is not None else None
            self._set_aside(unreadable, error)

    def _set_aside(self, unreadable: Unreadable | None, error: InputError) -> None:
        """Note an object that cannot be read. Raises the error where it has no name."""
        if unreadable is None:
            raise error
        self._fault_found = self._fault_found or error
        self.loaded.unreadable.append(unreadable)
        self.loaded.kinds_read.add(unreadable.kind)
        self._advance(1)

    def _read_run(self, items: Sequence[Json | msgspec.Raw], start: int) -> int:
        """Read, the quick way, items from `start` on that begin with the same bytes as that one.

        Returns how many that were: none where the first wants a closer look.
        """
        head = self._head(items[start])
        if head is None:
            return 0
        if isinstance(head.kind, str):
            self.count_unknown(head.kind)
            return 1
        decode, begins, namespaced = (
            codec.DECODERS[head.kind.type],
            head.begins,
            head.kind.namespaced,
        )
        check = codec.CHECKS.get(head.kind.type)
        objects, previous = self.loaded.objects, self._pod
        for index in range(start, min(start + _PROGRESS_STEP, len(items))):
            item = items[index]
            if not begins(item):
                break
            try:
                obj = decode(item)
            except codec.UNDECODABLE:
                break
            if not obj.metadata.name or (namespaced and not obj.metadata.namespace):
                break
            if check is not None and codec.unfit(obj):
                break
            if type(obj) is Pod:
                if previous is not None:
                    share_equal_parts(obj, previous)
                previous = obj
            objects.append(obj)
        else:
            index += 1
        self._pod = previous
        if index > start:
            self.loaded.kinds_read.add(head.kind.name)
            if head.kind.name == "Node" and not self._in_list:
                self.loaded.single_node = objects[-1].name
            if self.seen is not None:
                for item in items[start:index]:
                    self.seen(head.kind, item)
            self._advance(index - start)
        return index - start

    def _head(self, raw: Json | msgspec.Raw) -> Head | None:
        """The facts that the object's first bytes give about it; None where they say too little."""
        match = HEAD.match(raw)
        if match is None:
            return None
        try:
            return self._heads[match[0]]
        except KeyError:
            kind = quick_kind(match[1].decode(), match[2].decode())
            head = Head(kind, re.compile(re.escape(match[0])).match) if kind is not None else None
            self._heads[match[0]] = head
            return head

    def read_documents(self, documents: Iterable[Any]) -> None:
        """Read documents of plain Python objects, as YAML gives them."""
        for number, document in enumerate(documents):
            if document is not None:  # there may be nothing between two separators
                self._read_document(document, document_path(number))

    def _read_document(self, document: Any, path: str) -> None:
        if isinstance(document, list):
            self.documents += 1
            version, kind = self._kind_by_path({"items": document})
            self._note_list(version, kind, None)
            kind = kind.removesuffix("List")
            for index, item in enumerate(document):
                self._read_member(item, f"{path}[{index}]", version, kind)
        elif isinstance(document, dict):
            self.documents += 1
            self._read_member(document, path, "", "")

    def _read_plain(self, raw: Any, path: str, api_version: str, item_kind: str) -> None:
        """Read an object, or a List, that is plain Python objects."""
        if not isinstance(raw, dict):
            raise self._stranger(f"expected an object, got {_json_type(raw)}", path)
        version, name = raw.get("apiVersion") or api_version, raw.get("kind") or item_kind
        if not version and not name:
            version, name = self._kind_by_path(raw)
        if not isinstance(version, str) or not isinstance(name, str):
            wrong = "kind" if isinstance(version, str) else "apiVersion"
            raise self._fault("expected text", join(path, wrong))
        if is_list(version, name, "items" in raw):
            self._read_plain_list(raw, path, version, name)
            return
        if version and not name and "items" in raw:  # in YAML the kind of a List follows its items
            what = "is missing: a List without its end is cut off"
            raise InputError(what, source=self.source, path=join(path, "kind"), remedy=DUMP_AGAIN)
        if not name:
            raise self._stranger("is missing: this is not a Kubernetes object", join(path, "kind"))
        kind = find_kind(version, name)
        if kind is None:
            self.count_unknown(unknown_name(version, name))
            return
        whole = codec.mended(version, kind, raw)
        obj, left_out = codec.without_undecided(whole, kind.type, self.source, path)
        named = f"{kind.name} {'/'.join(filter(None, obj.key))}"
        self.loaded.left_out += (f"{self.source}: {named}: {each}" for each in left_out)
        self._keep(obj, kind, path)
        if self.seen is not None:
            self.seen(kind, raw)

    def _read_plain_list(self, raw: dict[str, Any], path: str, version: str, name: str) -> None:
        metadata = raw.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        item_kind = self._note_list(version, name, annotations)
        items = raw.get("items") or []
        if not isinstance(items, list):
            raise self._fault(f"expected a list, got {_json_type(items)}", join(path, "items"))
        self._in_list = True
        for index, item in enumerate(items):
            self._read_member(item, item_path(path, index), version, item_kind)

    def _note_list(self, api_version: str, name: str, annotations: Any) -> str:
        """Take from a List which kinds it covers; returns the kind of items without one."""
        item_kind = name.removesuffix("List")
        kind = find_kind(api_version, item_kind) if item_kind else None
        if kind is not None:
            self.loaded.kinds_read.add(kind.name)
        if isinstance(annotations, dict):
            self.loaded.annotations |= {key: str(text) for key, text in annotations.items()}
        words = annotations.get(ANNOTATION_KINDS) if isinstance(annotations, dict) else None
        for word in str(words or "").split(","):
            named = find_resource(word.strip())
            if named is not None:
                self.loaded.kinds_read.add(named.name)
            elif word.strip().lower() == "all":
                self.loaded.all_kinds = True
        return item_kind

    def _keep(self, obj: KubeObject, kind: Kind, path: str) -> None:
        metadata = obj.metadata
        if not metadata.name:
            raise self._fault(
                f"is missing: a {kind.name} needs a name", join(path, "metadata.name")
            )
        if kind.namespaced and not metadata.namespace:
            named = msgspec.structs.replace(metadata, namespace=_NAMESPACE)
            obj = msgspec.structs.replace(obj, metadata=named)
        why = codec.unfit(obj)
        if why:
            fault = InputError(why, source=self.source, path=path, remedy="correct the value")
            self._set_aside(codec.as_unreadable(obj, why), fault)
            return
        if isinstance(obj, Pod):
            if self._pod is not None:
                share_equal_parts(obj, self._pod)
            self._pod = obj
        self.loaded.objects.append(obj)
        self.loaded.kinds_read.add(kind.name)
        if kind.name == "Node" and not self._in_list:
            self.loaded.single_node = obj.name
        self._advance(1)

    def count_unknown(self, name: str, count: int = 1) -> None:
        """Note objects of a kind that is not read."""
        if count:
            self.loaded.unknown_kinds[name] += count
        self._advance(count)

    def _advance(self, count: int) -> None:
        self.done += count
        if self._progress is not None and self.done >= self._reported + _PROGRESS_STEP:
            self._reported = self.done
            self._progress(self.done)

    def _kind_by_path(self, raw: dict[str, Any]) -> tuple[str, str]:
        """apiVersion and kind of what says neither, if its path does and it looks like objects."""
        items = raw.get("items")
        objects = items if isinstance(items, list) else [raw]
        if self.kind is None or not all(map(_is_named, objects)):
            return "", ""
        return self.kind.api_version, self.kind.name + ("List" if objects is items else "")

    def _stranger(self, what: str, path: str) -> InputError:
        """The fault of what is no object: among objects it is damage, else all is a stranger."""
        fault = self._fault(what, path)
        if self.done or self._in_list:
            return fault
        return NotKubernetes(what, source=self.source, path=path, remedy=fault.remedy)

    def _fault(self, what: str, path: str) -> InputError:
        return InputError(what, source=self.source, path=path, remedy="correct it or take it out")


def _is_named(raw: Any) -> bool:
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("name"))


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def share_equal_parts(pod: Pod, other: Pod) -> None:
    """Let `pod` hold the very objects of `other` where they are equal.

    Only for a pod that nothing else refers to yet. Values stay the same, so it is as frozen as
    ever. `other` may be its neighbour in a list, or the version of it that came before.
    """
    ours, theirs = pod.metadata, other.metadata
    if ours.labels == theirs.labels:
        force_setattr(ours, "labels", theirs.labels)
    if ours.owner_references == theirs.owner_references:
        force_setattr(ours, "owner_references", theirs.owner_references)
    if ours.namespace == theirs.namespace:
        force_setattr(ours, "namespace", theirs.namespace)
    spec, their_spec = pod.spec, other.spec
    if spec.tolerations == their_spec.tolerations:
        force_setattr(spec, "tolerations", their_spec.tolerations)
    if spec.containers == their_spec.containers:
        force_setattr(spec, "containers", their_spec.containers)


class Envelope(msgspec.Struct, rename="camel", gc=False):
    """The outside of a JSON document: a List with its items undecoded, or some object."""

    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"null")  # a Raw in a union would take nulls only
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _EnvelopeMeta(msgspec.Struct, gc=False):
    annotations: dict[str, str] | None = None


read_envelope = msgspec.json.Decoder(Envelope).decode
_read_list_meta = msgspec.json.Decoder(_EnvelopeMeta | None).decode


def damaged_list(document: bytes) -> Envelope | None:
    """A List of which only items are damaged; None where the damage is elsewhere."""
    split = split_list(document)
    try:
        around = read_envelope(split.skeleton)
    except codec.UNDECODABLE:
        return None
    if not split.items or not is_list(around.api_version, around.kind, True):
        return None
    around.items = [msgspec.Raw(item) for item in split.items]
    return around


def is_list(api_version: str, name: str, has_items: bool) -> bool:
    """True if an object of this kind is a list of others."""
    if name == "List":
        return True
    if not name.endswith("List"):
        return False
    return has_items or find_kind(api_version, name.removesuffix("List")) is not None


def unknown_name(api_version: str, name: str) -> str:
    """The name of a kind that is not read: with its group where we read a kind of that name."""
    return name if find_kind("", name) is None else f"{name}.{group_of(api_version) or api_version}"


def list_annotations(metadata: msgspec.Raw) -> dict[str, str] | None:
    """The annotations in a List's metadata, None where there are none."""
    try:
        list_meta = _read_list_meta(metadata)
    except codec.UNDECODABLE:
        return None
    return list_meta.annotations if list_meta is not None else None


def document_path(number: int) -> str:
    """The name of a document within its file, "" for the first."""
    return f"document {number + 1}" if number else ""


def item_path(path: str, index: int) -> str:
    """The name of an item of a List."""
    return join(path, f"items[{index}]")


def join(path: str, member: str) -> str:
    """The name of a member of what `path` names."""
    separator = "" if not path else ": " if path.rpartition(" ")[2].isdigit() else "."
    return f"{path}{separator}{member}"


class Head(NamedTuple):
    """The first bytes of an object: its kind, or the name of one that is not read."""

    kind: Kind | str
    begins: Callable[[Any], Any]


def quick_kind(api_version: str, name: str) -> Kind | str | None:
    """The kind of an object with this head, or the name of an unknown one.

    None where it wants a closer look.
    """
    if not name or is_list(api_version, name, False):
        return None
    kind = find_kind(api_version, name)
    if kind is None:
        return None if name.endswith("List") else unknown_name(api_version, name)
    return None if codec.needs_mending(api_version, kind) else kind
