"""What cannot be read: the error that says where and why, and what is known of it all the same.

A document that does not decode usually names itself. `identify` reads that much with a scanner of
its own, without recursion and without trust in the text: invalid UTF-8 and any depth of nesting are
no obstacle. What it relates to (a pod's node, the owner of a pod or revision) is kept, because
decisions on those may depend on it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.names import LONGEST_NAME

if TYPE_CHECKING:
    from kubectl_nodelife.kube.kinds import Kind


class InputError(ValueError):
    """A file, or an object in it, cannot be read.

    `source` names the file, `path` the place in its document (`items[3].metadata.name`, "" for the
    whole), `what` is a sentence without a full stop, `remedy` says what to do. All in one line.
    """

    def __init__(self, what: str, *, source: str, path: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.source = source
        self.path = path
        self.remedy = remedy

    @property
    def on(self) -> str:
        """The file and the place in it."""
        return ": ".join(part for part in (self.source, self.path) if part)

    def __str__(self) -> str:
        place = f"{self.on}: " if self.on else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return " ".join(f"{place}{self.what}{advice}".split())


class NotKubernetes(InputError):
    """The text is well-formed, and no Kubernetes object: a stranger among the files of a dump."""


def places_raised(error: BaseException) -> str:
    """The types of an exception and of those that led to it or are in it, and where each came from.

    As a traceback, but without their texts, which may quote a secret.
    """
    return "".join(_blocks(error, set()))


def _blocks(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen:
        yield from _blocks(before, seen)
        yield "\nwhich led to\n\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__name__}\n"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            if id(inner) not in seen:
                yield "\nwhich holds\n\n"
                yield from _blocks(inner, seen)


def where_raised(error: BaseException) -> str:
    """An exception's type and where it came from; its text may quote a secret."""
    places = traceback.extract_tb(error.__traceback__, limit=-1)
    where = f" at {places[0].name}:{places[0].lineno}" if places else ""
    return f"{type(error).__name__}{where}"


Ref = tuple[str, tuple[str, str]]
"""(kind, (namespace, name)) of an object."""

MOST_SENTENCES: Final = 20
"""So many are listed one by one where people read."""

_LONGEST_REASON: Final = 200
_LONGEST_SUBJECT = 80
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_QUOTED = re.compile(r"['\"].*['\"]")
_COLON = re.compile(rb"\s*:\s*")
_read = msgspec.json.Decoder().decode


NAMELESS: Final = ("", "")
"""The key of an object that does not even show its name; it may be any of its kind."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An object that is there and cannot be read, `why` in words. Also an event of the engine.

    `related`: its node and its owners, on which decisions may hang (`engine.quarantine`).
    """

    kind: str
    key: tuple[str, str]
    why: str
    uid: str = ""
    resource_version: str = ""
    related: tuple[Ref, ...] = ()

    @property
    def target(self) -> Ref:
        """Which object it is."""
        return self.kind, self.key

    def __str__(self) -> str:
        namespace, name = self.key
        if self.key == NAMELESS:
            return f"{self.kind} without a name"
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"


def identify(kind: Kind, document: bytes, why: object, namespace: str = "") -> Unreadable | None:
    """The identity of an object from its JSON; None where it does not even show its name.

    `namespace` stands in where the object names none.
    """
    members = dict(object_members(document))
    meta = _decoded(members.get(b"metadata", b""))
    node = text_member(members.get(b"spec", b""), b"nodeName")
    return _named(kind, meta, node, why, namespace)


def identify_plain(kind: Kind, document: Any, why: object, namespace: str) -> Unreadable | None:
    """The same for an object that is plain Python objects already."""
    spec = document.get("spec") if isinstance(document, dict) else None
    meta = document.get("metadata") if isinstance(document, dict) else None
    return _named(kind, meta, _text(spec, "nodeName"), why, namespace)


def _named(kind: Kind, meta: Any, node: str, why: object, default: str) -> Unreadable | None:
    name = _text(meta, "name")
    namespace = (_text(meta, "namespace") or default) if kind.namespaced else ""
    if not name or (kind.namespaced and not namespace):
        return None
    if len(name) > LONGEST_NAME or len(namespace) > LONGEST_NAME:
        return None
    node = node if kind.name == "Pod" else ""
    return Unreadable(
        kind.name,
        (namespace, name),
        reason(why),
        _text(meta, "uid"),
        _text(meta, "resourceVersion"),
        related(kind.name, (namespace, name), _owners(meta), node),
    )


def related(
    kind: str, key: tuple[str, str], owners: list[tuple[str, str]], node: str
) -> tuple[Ref, ...]:
    """The node of a pod or Lease, and the (kind, name) of owners in the same namespace."""
    refs: list[Ref] = [(owner, (key[0], name)) for owner, name in owners]
    if kind == "Lease":
        refs.append(("Node", ("", key[1])))
    elif node:
        refs.append(("Node", ("", node)))
    return tuple(refs)


def version_of(document: bytes) -> str:
    """The resourceVersion of an object that may not even show its name, or ""."""
    return text_member(dict(object_members(document)).get(b"metadata", b""), b"resourceVersion")


def unreadable_sentences(unreadable: Iterable[Unreadable]) -> list[str]:
    """A sentence about each for people, and a last one for those that are too many to list."""
    lines = [
        f"{_bounded(str(each), _LONGEST_SUBJECT)} cannot be read ({each.why}): decisions about it"
        " and what depends on it are off"
        for each in unreadable
    ]
    more = len(lines) - MOST_SENTENCES
    return lines if more <= 0 else [*lines[:MOST_SENTENCES], f"{more} more objects cannot be read"]


def reason(why: object) -> str:
    """The words of an error in one line of bounded length.

    What stands in quotes is left out: it is a value of the object, and may be a secret.
    """
    text = _QUOTED.sub("...", " ".join(str(why).split())) or type(why).__name__
    return _bounded(text, _LONGEST_REASON)


def _bounded(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def object_members(document: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The members of a JSON object that are objects themselves: name and text, of any depth."""
    depth, start, name, last = 0, 0, b"", b""
    for match in _TOKEN.finditer(document):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == 2:
                name, start = (last if token == b"{" else b""), match.start()
        elif token in b"]}":
            depth -= 1
            if depth == 1 and name:
                yield name, document[start : match.end()]
            if depth <= 1:
                last = b""
        elif depth == 1:
            last = token[1:-1]


class Split(NamedTuple):
    """A List in pieces: its document with a 0 in place of each item, and the items undecoded."""

    skeleton: bytes
    items: list[bytes]


def split_list(document: bytes) -> Split:
    """Take the objects out of a List's `items`; what is around them can then be decoded alone."""
    depth, start, end, last, within = 0, 0, 0, b"", False
    gaps: list[bytes] = []
    items: list[bytes] = []
    for match in _TOKEN.finditer(document):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == 2:
                within = token == b"[" and last == b"items"
            elif depth == 3 and within:
                start = match.start()
        elif token in b"]}":
            depth -= 1
            if depth == 2 and within:
                gaps.append(document[end:start])
                end = match.end()
                items.append(document[start:end])
        elif depth == 1:
            last = token[1:-1]
    return Split(b"0".join([*gaps, document[end:]]), items)


def text_member(document: bytes, name: bytes) -> str:
    """A member of a JSON object that is text, or ""."""
    depth = 0
    for match in _TOKEN.finditer(document):
        token = match[0]
        if token in b"[{":
            depth += 1
        elif token in b"]}":
            depth -= 1
        elif depth == 1 and token[1:-1] == name:
            colon = _COLON.match(document, match.end())
            value = _TOKEN.match(document, colon.end()) if colon is not None else None
            if value is not None and value[0][:1] == b'"':
                member = _decoded(value[0])
                return member if isinstance(member, str) else ""
    return ""


def _decoded(text: bytes) -> Any:
    """JSON as plain objects, whatever its bytes; None where it is none."""
    try:
        return _read(text.decode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _text(document: Any, name: str) -> str:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _owners(meta: Any) -> list[tuple[str, str]]:
    references = meta.get("ownerReferences") if isinstance(meta, dict) else None
    return [
        (_text(owner, "kind"), _text(owner, "name"))
        for owner in (references if isinstance(references, list) else ())
        if isinstance(owner, dict) and owner.get("controller") is True
    ]
