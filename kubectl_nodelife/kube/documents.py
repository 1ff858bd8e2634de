"""Splits the bytes of a file into its documents: one or many, JSON or YAML.

A JSON document stays undecoded: a dump of 150,000 pods must not become dictionaries first. YAML is
read as kubectl reads it: times stay text, and `12:30` is text rather than a number in base 60.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.yaml_stream import BeginsList, TakeItem, TooDeep, YamlStream

Json = bytes | memoryview

_SPACE = re.compile(rb"[ \t\r\n\x1e]*")
_AT_BYTE = re.compile(r"(?P<what>.*) \(byte (?P<byte>\d+)\)")
_UNPACK = "unpack it first"
_MAGIC = {
    b"\x1f\x8b": ("is compressed with gzip", _UNPACK),
    b"PK\x03\x04": ("is a zip archive", _UNPACK),
    b"BZh": ("is compressed with bzip2", _UNPACK),
    b"\xfd7zXZ": ("is compressed with xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("is compressed with zstd", _UNPACK),
}
DUMP_AGAIN = "write it again with 'kubectl get ... -o json'"


def utf8(data: bytes, source: str) -> bytes:
    """The text without its byte order mark, UTF-16 turned into UTF-8 (PowerShell's `>` writes it).

    Raises InputError for what is no text.
    """
    for magic, (what, remedy) in _MAGIC.items():
        if data.startswith(magic):
            raise InputError(what, source=source, remedy=remedy)
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16").encode()
    except UnicodeError:
        raise _not_text(source) from None
    return data.removeprefix(codecs.BOM_UTF8)


def looks_like_json(text: bytes) -> bool:
    """True if the first character that counts opens a JSON object or array."""
    start = _skip_space(text, 0)
    return text[start : start + 1] in (b"{", b"[")


def end_of_json(text: bytes, source: str, start: int = 0) -> int:
    """Where the JSON document that begins at `start` ends. Raises InputError for a fault."""
    rest = memoryview(text)[start:]
    try:
        _read_raw(rest)
    except msgspec.DecodeError as error:
        match = _AT_BYTE.fullmatch(str(error))
        if match is None:
            what = "the JSON is cut off in the middle"
            raise InputError(what, source=source, remedy=DUMP_AGAIN) from None
        at = int(match["byte"])
        what = match["what"].removeprefix("JSON is malformed: ")
        if what == "trailing characters":
            # msgspec has read one character past the end to find that there is more.
            return start + (at - 1 if _is_document(rest[: at - 1]) else at)
        line = text.count(b"\n", 0, start + at) + 1
        what = f"is not JSON: {what} at byte {start + at + 1} (line {line})"
        raise InputError(what, source=source, remedy=DUMP_AGAIN) from None
    except RecursionError:
        raise InputError("is nested too deeply", source=source, remedy="correct it") from None
    return len(text)


def end_of_first_json(text: bytes) -> int | None:
    """Where the JSON value that the text begins with ends; None where it is cut off or is none."""
    try:
        _read_raw(text)
    except msgspec.DecodeError as error:
        match = _AT_BYTE.fullmatch(str(error))
        if match is None or "trailing characters" not in match["what"]:
            return None
        at = int(match["byte"])
        return at - 1 if _is_document(memoryview(text)[: at - 1]) else at
    except RecursionError:
        return None
    return len(text)


def _is_document(text: Json) -> bool:
    try:
        _read_raw(text)
    except msgspec.DecodeError:
        return False
    return True


def json_starts(text: bytes, position: int) -> int:
    """Where the next JSON document begins, at or after `position`; the length where none does."""
    return _skip_space(text, position)


_read_raw = msgspec.json.Decoder(msgspec.Raw).decode


def _skip_space(text: bytes, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def yaml_documents(
    text: bytes | Iterator[bytes],
    source: str,
    take_item: TakeItem | None = None,
    begins_list: BeginsList = lambda members: True,
) -> Iterator[Any]:
    """Each YAML document as plain objects, without the items of a List if these are taken one by
    one. The text may come in pieces. Raises InputError, with line and column.
    """
    pieces = iter((text,)) if isinstance(text, bytes) else text
    try:
        yield from YamlStream(pieces).documents(take_item, begins_list)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = error.problem or error.context or "unreadable"
        raise InputError(
            f"is not YAML: {what}{where}", source=source, remedy="correct that line"
        ) from None
    except yaml.reader.ReaderError:
        raise _not_text(source) from None
    except TooDeep:
        raise InputError("is nested too deeply", source=source, remedy="correct it") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"is not YAML: {error}", source=source) from None


def _not_text(source: str) -> InputError:
    return InputError(
        "is not text, but binary",
        source=source,
        remedy="name a file that 'kubectl get ... -o json' or '-o yaml' wrote",
    )
