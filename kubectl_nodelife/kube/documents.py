"""Splits the bytes of a file into its documents: one or many, JSON or YAML.

A JSON document stays undecoded: a dump of 150,000 pods must not become dictionaries first. YAML is
read as kubectl reads it: times stay text, and `12:30` is text rather than a number in base 60. It
comes from libyaml's events, a document or an item of a List at a time: an item is built when its
events are there, and forgotten before the next one is read, so that a List of any length costs the
memory of its longest item. What has an anchor, an alias, a tag or a merge goes through PyYAML's
composer.

Documents whose aliases expand to too much are refused, by `load_documents` too, which reads small
files whole. An alias costs a few bytes, and stands for all that its anchor holds: nine anchors of
nine aliases each are a gigabyte, and an anchor may hold itself. kubectl refuses such files
("document contains excessive aliasing", sigs.k8s.io/yaml) before any value is made, and so does
this.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from kubectl_nodelife.kube.unreadable import InputError

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
_read_raw = msgspec.json.Decoder(msgspec.Raw).decode


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
    start = json_starts(text, 0)
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
        return end_of_json(text, "")
    except InputError:
        return None


def _is_document(text: Json) -> bool:
    try:
        _read_raw(text)
    except msgspec.DecodeError:
        return False
    return True


def json_starts(text: bytes, position: int) -> int:
    """Where the next JSON document begins, at or after `position`; the length where none does."""
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


DEEPEST: Final = 500
"""So deep may collections be nested; no object is."""

ITEMS: Final = "items"
_MOST_REMEMBERED: Final = 50_000
_TAG: Final = "tag:yaml.org,2002:"

TakeItem = Callable[[dict[Any, Any], int, Any], None]
"""Receives an item of a List: the members of the List read so far, its number, the item."""

BeginsList = Callable[[dict[Any, Any]], bool]
"""True if `items` are those of a List, by the members of its document read so far."""

NO_VALUE: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""The errors of PyYAML's constructors for a scalar or key that they take for what it is not."""
MOST_ALIASED: Final = 100_000
"""So many values may stand behind aliases, and ten times what the file itself holds."""


class _Events(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's events."""


class _Scalars(Resolver):
    """The plain scalars that kubectl knows: text, numbers, booleans, null."""

    yaml_implicit_resolvers: Any = {}


_SCALARS = {
    "bool": (
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        "yYnNtTfFoO",
    ),
    "null": (r"~|null|Null|NULL|", "~nN"),
    "merge": (r"<<", "<"),
    "int": (r"[-+]?(?:0b[01]+|0x[0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
for _name, (_pattern, _first) in _SCALARS.items():
    _Scalars.add_implicit_resolver(
        f"{_TAG}{_name}",
        re.compile(rf"(?:{_pattern})\Z"),
        [*_first, ""] if _name == "null" else list(_first),
    )
_FIRST: Final = frozenset(_Scalars.yaml_implicit_resolvers)


class _FromEvents(Composer, SafeConstructor, _Scalars):
    """Composes what stands in a list of events, as PyYAML does it. `anchors` are the document's."""

    def __init__(self, anchors: dict[str, yaml.Node]) -> None:
        SafeConstructor.__init__(self)
        _Scalars.__init__(self)
        self.anchors = anchors
        self._waiting: list[Any] = []

    def value(self, events: list[Any], budget: AliasBudget) -> Any:
        """The value. Raises yaml.YAMLError."""
        self._waiting = events[::-1]
        node: Any = self.compose_node(None, 0)
        budget.check(node)
        try:
            return self.construct_document(node)
        except NO_VALUE as error:
            raise refusal(node, f"it holds a value that is none: {error}") from None

    def check_event(self, *kinds: Any) -> bool:
        """True if the next event is one of these."""
        return isinstance(self._waiting[-1], kinds)

    def peek_event(self) -> Any:
        """The next event."""
        return self._waiting[-1]

    def get_event(self) -> Any:
        """The next event, taken."""
        return self._waiting.pop()


class _Pieces:
    """Bytes that come in pieces, as a file of which libyaml reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.failed: Exception | None = None  # libyaml would report another one in its place
        self._pieces = pieces
        self._piece = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        while not self._piece:
            try:
                piece = next(self._pieces, None)
            except Exception as error:
                self.failed, piece = error, None
            if piece is None:
                return b""
            self._piece = memoryview(piece)
        head, self._piece = self._piece[:size], self._piece[size:]
        return bytes(head)


class TooDeep(yaml.YAMLError):
    """Nested deeper than any object is."""


class YamlStream:
    """The documents of YAML that comes in pieces. All raises yaml.YAMLError."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = _Pieces(pieces)
        self._events = _Events(self._pieces)
        self._next = self._events.get_event
        self._budget = AliasBudget()
        self._composer = _FromEvents({})
        self._scalars: dict[str, Any] = {}
        self._resolve: Callable[..., str] = _Scalars().resolve

    def documents(
        self, take_item: TakeItem | None = None, begins_list: BeginsList = lambda members: True
    ) -> Iterator[Any]:
        """Each document as plain objects. With `take_item` the items of a List are passed to it as
        they come, and left out of the document.
        """
        try:
            while not isinstance(event := self._next(), yaml.StreamEndEvent):
                if isinstance(event, yaml.DocumentStartEvent):
                    self._composer = _FromEvents({})
                    document = self._document(take_item, begins_list)
                    if self._pieces.failed is not None:  # it ended there for libyaml
                        raise self._pieces.failed
                    yield document
        except RecursionError:
            raise TooDeep from None
        except yaml.YAMLError:
            if self._pieces.failed is None:
                raise
        finally:
            self._events.dispose()
        if self._pieces.failed is not None:
            raise self._pieces.failed

    def _document(self, take_item: TakeItem | None, begins_list: BeginsList) -> Any:
        begin = self._next()
        is_mapping = isinstance(begin, yaml.MappingStartEvent)
        if take_item is None or not is_mapping or begin.anchor or begin.tag:
            return self._value(begin)
        members: dict[Any, Any] = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            events = [begin, *self._gather(key)]
            value = self._next()
            if _are_items(key, value) and ITEMS not in members and begins_list(members):
                members[ITEMS] = []
                number = 0
                while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                    take_item(members, number, self._value(item))
                    number += 1
                continue
            member = self._built([*events, *self._gather(value), _END])
            members = {**member, **members} if _is_merge(key) else {**members, **member}
        return members

    def _value(self, begin: Any) -> Any:
        """The value that begins with this event."""
        return self._built(self._gather(begin))

    def _gather(self, begin: Any) -> list[Any]:
        """The events of the value that begins with this one."""
        events = [begin]
        depth = _DEPTHS.get(type(begin), 0)
        while depth:
            event = self._next()
            events.append(event)
            depth += _DEPTHS.get(type(event), 0)
            if depth > DEEPEST:
                raise TooDeep
        return events

    def _built(self, events: list[Any]) -> Any:
        """The value of these events."""
        holders: list[Any] = []
        holder: Any = []  # a list, or [mapping, key that waits for its value]
        key: Any = _NO_KEY
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                if event.anchor is not None or event.tag is not None:
                    break
                value = event.value
                if event.implicit[0] and value[:1] in _FIRST:
                    try:
                        value = self._scalars[value]
                    except KeyError:
                        value = self._plain(value)
                        if value is _MERGE:
                            break
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if event.anchor is not None or event.tag is not None:
                    break
                if key is _NO_KEY and type(holder) is dict:
                    break  # a key that is a collection
                holders.append((holder, key))
                holder, key = ({} if kind is yaml.MappingStartEvent else []), _NO_KEY
                continue
            elif kind is yaml.AliasEvent:
                break
            else:
                value = holder
                holder, key = holders.pop()
            if type(holder) is list:
                holder.append(value)
            elif key is _NO_KEY:
                key = value
            else:
                holder[key] = value
                key = _NO_KEY
        else:
            return holder[0]
        return self._composer.value(events, self._budget)

    def _plain(self, text: str) -> Any:
        """The value of a scalar without quotes; _MERGE for what is no value by itself."""
        tag = self._resolve(yaml.ScalarNode, text, (True, False))
        value: Any = text
        if tag == f"{_TAG}merge":
            value = _MERGE
        elif tag != f"{_TAG}str":
            try:
                value = self._composer.construct_document(yaml.ScalarNode(tag, text))
            except NO_VALUE:
                value = _MERGE  # composed, it is refused with its place
        if len(self._scalars) >= _MOST_REMEMBERED:
            self._scalars.clear()
        if value is not _MERGE:
            self._scalars[text] = value
        return value


def _are_items(key: Any, value: Any) -> bool:
    return (
        isinstance(key, yaml.ScalarEvent)
        and isinstance(value, yaml.SequenceStartEvent)
        and key.value == ITEMS
        and not (key.anchor or key.tag or value.anchor or value.tag)
    )


def _is_merge(key: Any) -> bool:
    return isinstance(key, yaml.ScalarEvent) and key.implicit[0] and key.value == "<<"


_NO_KEY: Final = object()
_MERGE: Final = object()
_END: Final = yaml.MappingEndEvent()
_DEPTHS: Final[dict[type, int]] = {
    yaml.MappingStartEvent: 1,
    yaml.SequenceStartEvent: 1,
    yaml.MappingEndEvent: -1,
    yaml.SequenceEndEvent: -1,
}


def load_documents(text: bytes | str, loader_class: Any) -> Iterator[Any]:
    """Each document as plain objects. Raises yaml.YAMLError, also for too many aliases, and for a
    value that looks like another than it is (`2026-13-01` is no date, `!!timestamp x` no time).
    """
    loader = loader_class(text)
    aliased = (b"*" in text) if isinstance(text, bytes) else ("*" in text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if aliased:
                AliasBudget().check(node)
            try:
                document = loader.construct_document(node)
            except NO_VALUE as error:
                raise refusal(node, f"it holds a value that is none: {error}") from None
            yield document
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    finally:
        loader.dispose()


class AliasBudget:
    """How much stands behind the aliases of one text, and how much it holds itself."""

    def __init__(self) -> None:
        self._written_out = 0
        self._held = 0

    def check(self, root: yaml.Node) -> None:
        """Raise for a node that holds itself, or where with this one there are more values than
        there may be, with aliases written out.
        """
        sizes: dict[int, int] = {}
        open_nodes: set[int] = set()
        stack = [root]
        while stack:
            node = stack[-1]
            key = id(node)
            children = _children(node)
            if key in sizes:
                stack.pop()
            elif key in open_nodes:
                sizes[key] = 1 + sum(sizes[id(child)] for child in children)
                open_nodes.discard(key)
                stack.pop()
            else:
                open_nodes.add(key)
                for child in children:
                    if id(child) in open_nodes:
                        raise refusal(child, "an alias refers to what holds it")
                stack += [child for child in children if id(child) not in sizes]
        self._written_out += sizes[id(root)]
        self._held += len(sizes)
        if self._written_out > MOST_ALIASED + 10 * self._held:
            what = f"its aliases stand for {self._written_out:,} values"
            raise refusal(root, what if self._written_out < 1 << 60 else "its aliases multiply")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def refusal(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    """The error at a node."""
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
