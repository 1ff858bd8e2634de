"""From text to slices: what `kubectl get -o json` or `-o yaml` prints, in whatever pieces it comes.

Pure: bytes in, objects out; reading files, and switching the garbage collector off while a big dump
is read, belong to callers. What is read, and how, is `kube.object_reader`'s; a dump that is too
long to be held in memory goes there in parts (`kube.large_file`).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from kubectl_nodelife.kube.decode import decode, decode_json
from kubectl_nodelife.kube.documents import json_starts, looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.envelope import unknown_name
from kubectl_nodelife.kube.errors import InputError, NotKubernetes
from kubectl_nodelife.kube.kinds import Kind, find_kind
from kubectl_nodelife.kube.large_file import LargeJson, read_yaml
from kubectl_nodelife.kube.object_reader import Loaded, ObjectReader, Seen

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
"""What is no longer is read as a whole."""


def load_objects(
    data: bytes,
    source: str,
    progress: Callable[[int], None] | None = None,
    kind: Kind | None = None,
    seen: Seen | None = None,
) -> Loaded:
    """The objects in a file: one object, a List, or many documents, JSON or YAML.

    `source` names the file in errors; `progress` is told the number of items done so far, now and
    then; `kind`: of documents that say neither apiVersion nor kind; `seen` is shown each object as
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
    told = {name: value.decode() for name, value in heads}
    if len(heads) != 2 or len(told) != 2:
        return False
    version, kind = told[b"apiVersion"], told[b"kind"]
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
    reader.tell_done()
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
