"""From text to slices: what `kubectl get -o json` or `-o yaml` prints, in whatever pieces it comes.

Pure: bytes in, objects out; reading files, and switching the garbage collector off while a big dump
is read, belong to callers. What is read, and how, is `kube.object_reader`'s.

A dump that is too long to be held in memory is read piece by piece (`LargeJson`). Of a JSON List
the items that have come are taken out, decoded and forgotten, so that no more is held than a few
pieces and the objects themselves. Where an item ends is guessed by what stands between the first
two, and the guess is proved by decoding: text that begins at an item and is a JSON array in
brackets holds whole items only. Where there is no proof (an item that is no JSON), a scanner finds
the ends. Of YAML the items of a List are read one by one (`documents`).
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.codec import UNDECODABLE, decode, decode_json
from kubectl_nodelife.kube.documents import (
    Json,
    end_of_first_json,
    json_starts,
    looks_like_json,
    utf8,
    yaml_documents,
)
from kubectl_nodelife.kube.kinds import Kind, find_kind
from kubectl_nodelife.kube.object_reader import (
    HEAD,
    Envelope,
    Loaded,
    ObjectReader,
    Seen,
    document_path,
    is_list,
    item_path,
    read_envelope,
    unknown_name,
)
from kubectl_nodelife.kube.unreadable import InputError, NotKubernetes

__all__ = [
    "InputError",
    "Loaded",
    "decode",
    "decode_json",
    "load_documents",
    "load_objects",
    "load_pieces",
]

_YAML_HEAD = re.compile(rb"^(apiVersion|kind):[ \t]*([\w./-]+)[ \t]*\r?$", re.MULTILINE)
_MORE_YAML = re.compile(rb"^(?:---|\.\.\.)", re.MULTILINE)
_LARGEST_FLOW_YAML = 1 << 20  # a bigger file that begins like JSON was meant to be JSON
_NAME_A_DUMP = "name a file that 'kubectl get ... -o json' or '-o yaml' wrote"

WHOLE_BYTES = 16 << 20
"""A file that is no longer is read as a whole."""

_MOST_HEAD: Final = 1 << 20
"""So early the items of a List begin."""
_GUESSES: Final = 2
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_BETWEEN: Final = re.compile(
    rb'\s*,\s*\{\s*(?:"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,\s*)?(?:"[^"\\]*"\s*:)?'
)
"""With the first keys of the second item, since `},{` stands within an item, too, where a List is
in one line; managedFields begin with an apiVersion, which no kind follows.
"""
_COMMA: Final = re.compile(rb"\s*,?\s*")
_read_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


def load_objects(
    data: bytes,
    source: str,
    progress: Callable[[int], None] | None = None,
    kind: Kind | None = None,
    seen: Seen | None = None,
) -> Loaded:
    """The objects in a file: one object, a List, or many documents, JSON or YAML.

    `source` names the file in errors; `progress` receives the number of items done so far, now and
    then; `kind`: of documents that say neither apiVersion nor kind; `seen` receives each object as
    it came. Raises InputError, and NotKubernetes where the file is whole and holds none.
    """
    reader = ObjectReader(source, progress, kind)
    reader.seen = seen
    _read_text(reader, utf8(data, source))
    return _finished(reader)


def load_pieces(
    pieces: Iterator[bytes],
    source: str,
    progress: Callable[[int], None] | None = None,
    whole_bytes: int = WHOLE_BYTES,
    kind: Kind | None = None,
    seen: Seen | None = None,
) -> Loaded:
    """The same of a file that comes in pieces, none of them empty, and may be very long.

    What is no longer than `whole_bytes` is read at once.
    """
    begun = b""
    for piece in pieces:
        begun = begun + piece if begun else piece
        if len(begun) > whole_bytes:
            break
    else:
        return load_objects(begun, source, progress, kind, seen)
    reader = ObjectReader(source, progress, kind)
    reader.seen = seen
    if begun.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        _read_text(reader, utf8(b"".join((begun, *pieces)), source))
    elif looks_like_json(text := utf8(begun, source)):
        LargeJson(reader, text, pieces).read(_read_json)
    else:
        read_yaml(reader, chain((text,), pieces))
    return _finished(reader)


def _read_text(reader: ObjectReader, text: bytes) -> None:
    source = reader.source
    if json_starts(text, 0) == len(text):
        raise NotKubernetes("is empty", source=source, remedy=_NAME_A_DUMP)
    if looks_like_json(text):
        _read_json(reader, text)
    elif not _passed_over(reader, text):
        read_yaml(reader, text)


def _passed_over(reader: ObjectReader, text: bytes) -> bool:
    """True if YAML is one object, or one List, of a kind that is not read; if so, it is counted.

    What begins at the first column belongs to the outermost mapping, so that its kind is known
    without reading the rest: must-gather has a hundred megabytes of such YAML.
    """
    if _MORE_YAML.search(text, 1):
        return False
    heads = _YAML_HEAD.findall(text)
    members = {name: value.decode() for name, value in heads}
    if len(heads) != 2 or len(members) != 2:
        return False
    version, kind = members[b"apiVersion"], members[b"kind"]
    of_items = kind.removesuffix("List")
    if not of_items or find_kind(version, kind) or find_kind(version, of_items):
        return False
    count = 1 if kind == of_items else text.count(b"\n- ")
    reader.documents += 1
    reader.count_unknown(unknown_name(version, of_items), count)
    return True


def _finished(reader: ObjectReader) -> Loaded:
    if not reader.documents:
        what = "holds no Kubernetes object"
        raise NotKubernetes(what, source=reader.source, remedy=_NAME_A_DUMP)
    reader.refuse_if_nothing_is_readable()
    reader.report_done()
    return reader.loaded


def _read_json(reader: ObjectReader, text: bytes) -> None:
    """Read JSON, or YAML that begins like it: `{kind: Node}`."""
    try:
        reader.read_json(text)
    except InputError:
        if reader.documents or len(text) > _LARGEST_FLOW_YAML:
            raise
        try:
            documents = list(yaml_documents(text, reader.source))
        except InputError:
            documents = []
        if not documents:
            raise
        reader.read_documents(documents)


def load_documents(documents: Iterable[Any], source: str) -> Loaded:
    """The objects in documents that are plain Python objects already. Raises InputError."""
    reader = ObjectReader(source, None)
    reader.read_documents(documents)
    reader.refuse_if_nothing_is_readable()
    return reader.loaded


class _Named(msgspec.Struct, gc=False):
    kind: str = ""


_read_kind = msgspec.json.Decoder(_Named).decode


class _Found(NamedTuple):
    """Items at the beginning of a text, where the last one ends, and whether the List ends."""

    items: Sequence[Json | msgspec.Raw]
    end: int
    closed: bool = False


class LargeJson:
    """JSON documents that come in pieces, one after another."""

    def __init__(self, reader: ObjectReader, begun: bytes, pieces: Iterator[bytes]) -> None:
        self._reader = reader
        self._text = begun
        self._pieces = pieces
        self._ended = False

    def read(self, read_whole: Callable[[ObjectReader, bytes], None]) -> None:
        """Read all of it; `read_whole` reads what is no List. Raises InputError."""
        number = 0
        while self._begins_document():
            head = _head_of_list(self._text)
            if head is None:
                self._more(sys.maxsize)
                read_whole(self._reader, self._text)
                return
            self._read_list(self._text[:head], document_path(number))
            number += 1

    def _begins_document(self) -> bool:
        while True:
            self._text = self._text[json_starts(self._text, 0) :]
            if len(self._text) < _MOST_HEAD and self._more():
                continue
            return bool(self._text)

    def _read_list(self, head: bytes, path: str) -> None:
        """Read a document that begins with these bytes, the last of which opens its items."""
        reader = self._reader
        around = _read_around(head)
        kind = around.kind.removesuffix("List")
        self._text = self._text[len(head) :]
        late: list[bytes] = []
        while (batch := self._next_items()) is not None:
            items = batch.items
            if not around.kind:  # it follows the items, and some of them may rely on it
                late += [bytes(item) for item in items if not _has_kind(item)]
                items = [item for item in items if _has_kind(item)] if late else items
            reader.read_items(items, path, around.api_version, kind)
            reader.items_before += len(items)
            self._text = self._text[_after_comma(self._text, batch.end) :]
            if batch.closed:
                break
        self._read_rest(head, late, path)

    def _read_rest(self, head: bytes, late: list[bytes], path: str) -> None:
        """Read what is left of the document, as one with the items that are left."""
        reader = self._reader
        if late:
            head += b",".join(late)
            head += b"" if self._text[:1] == b"]" else b","
        while True:
            text = head + self._text
            end = end_of_first_json(text)
            if end is not None or not self._double():
                break
        end = reader.read_json_document(text, 0, path)
        reader.items_before = 0
        self._text = text[end:]

    def _next_items(self) -> _Found | None:
        """The items that have come whole; None where the rest of the document is at hand."""
        while True:
            if self._ended:
                return None
            batch = _whole_items(self._text)
            if batch is None:
                batch = _scanned_items(self._text)
            if batch.items or batch.closed:
                return batch
            self._double()

    def _double(self) -> bool:
        """Take in as much again, so that one long item is not read again and again."""
        return self._more(len(self._text))

    def _more(self, least: int = 1) -> bool:
        """Take in so many bytes more; whether there were any."""
        pieces = [self._text]
        while least > 0 and not self._ended:
            pieces.append(next(self._pieces, b""))
            self._ended = not pieces[-1]
            least -= len(pieces[-1])
        self._text = b"".join(pieces)
        return len(pieces) > 1 and bool(pieces[1])


def _head_of_list(text: bytes) -> int | None:
    """Where the first item of a List stands; None where there is none so early."""
    depth, last = 0, b""
    for match in _TOKEN.finditer(text, 0, _MOST_HEAD):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == 1 and token == b"[":
                return None
            if depth == 2 and token == b"[" and last == b'"items"':
                return match.end()
        elif token in b"]}":
            depth -= 1
            if depth == 0:
                return None
        elif depth == 1:
            last = token
    return None


def _read_around(head: bytes) -> Envelope:
    """The fields of a List before its items."""
    try:
        return read_envelope(head + b"]}")
    except UNDECODABLE:
        return Envelope()


def _after_comma(text: bytes, end: int) -> int:
    match = _COMMA.match(text, end)
    return match.end() if match is not None else end


def _has_kind(item: Json | msgspec.Raw) -> bool:
    if HEAD.match(item) is not None:
        return True
    try:
        return bool(_read_kind(item).kind)
    except UNDECODABLE:
        return True  # it is set aside, whatever it is


def _whole_items(text: bytes) -> _Found | None:
    """The items up to the last place that looks like the end of one, if they are items."""
    end = end_of_first_json(text)
    between = _BETWEEN.match(text, end) if end else None
    if end is None or between is None:
        return None
    mark = text[end - 1 : between.end()]
    at = len(text)
    for _ in range(_GUESSES):
        at = text.rfind(mark, 0, at)
        if at < 0:
            return None
        try:
            return _Found(_read_array(b"".join((b"[", memoryview(text)[: at + 1], b"]"))), at + 1)
        except UNDECODABLE:
            continue
    return None


def _scanned_items(text: bytes) -> _Found:
    """The items that end in the text, by their brackets alone."""
    depth, start, end = 0, 0, 0
    items: list[bytes] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == 1:
                start = match.start()
        elif token in b"]}":
            depth -= 1
            if depth < 0:
                return _Found(items, end, closed=True)
            if depth == 0:
                end = match.end()
                items.append(text[start:end])
    return _Found(items, end)


def read_yaml(reader: ObjectReader, text: bytes | Iterator[bytes]) -> None:
    """Read YAML documents, Lists item by item. Raises InputError."""
    items = _YamlItems(reader)
    documents = yaml_documents(text, reader.source, items.take, items.begin)
    reader.read_documents(map(items.complete, documents))


class _YamlItems:
    """The items of YAML Lists. Those that wait for their kind, which kubectl prints after them, are
    kept encoded.
    """

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._documents = 0
        self._late: list[Any] = []

    def begin(self, members: dict[Any, Any]) -> bool:
        """True if what has these members before its items is a List."""
        version, kind = (members.get(key) or "" for key in ("apiVersion", "kind"))
        return not kind or (isinstance(kind, str) and is_list(str(version), kind, True))

    def take(self, members: dict[Any, Any], number: int, item: Any) -> None:
        """Read one, or keep it."""
        version, kind = (members.get(key) or "" for key in ("apiVersion", "kind"))
        if self._late or not (kind or (isinstance(item, dict) and item.get("kind"))):
            self._late.append(_packed(item))
            return
        path = item_path(document_path(self._documents), number)
        self._reader.read_plain_item(item, path, str(version), str(kind).removesuffix("List"))

    def complete(self, document: Any) -> Any:
        """The document with the items that were kept."""
        late, self._late = self._late, []
        self._documents += 1
        if late:
            document["items"] = [_unpack(i) if isinstance(i, bytes) else i for i in late]
        return document


def _packed(item: Any) -> Any:
    """The item encoded, which takes a tenth of the memory, or as it is where that cannot be."""
    try:
        return _pack(item)
    except (TypeError, OverflowError, ValueError):
        return item
