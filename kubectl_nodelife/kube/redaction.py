"""Decides which strings of an object may be written to a file; all others become digests.

A string stays where the slice of its kind has a field for it, since some decision reads it there;
every other string becomes a digest, wherever it stands, known field or not. Numbers, booleans and
the names of members stay, so that a document keeps its shape. A message is free text, which may
quote anything, and is a digest even where a slice holds it; but for those of a pod's conditions,
which the pod status manager compares, and of Events.

Digests are keyed: equal stays equal under one key (a template still equals its revision's data),
and without the key nothing can be looked up or guessed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, ClassVar, Final, get_args, get_origin, get_type_hints

import msgspec

from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import NodeAddress, NodeMeta, NodeSpec
from kubectl_nodelife.kube.pod import PodCondition, PodSpec, VolumePresence
from kubectl_nodelife.kube.workload import Event

DIGEST: Final = "digest:"
"""The beginning of every digest."""

KEY_BYTES: Final = 32

Document = dict[str, Any]
Digest = Callable[[str], str]

_KEPT: Final = "kept"
_NOTHING: Final[Mapping[Any, Any]] = {}
_FREE_TEXT: Final = frozenset({"message"})
_MESSAGES_DECIDE: Final = (PodCondition, Event)
_Shape = Any
"""_KEPT, a dict of the shapes of members, a list of the shape of all items, None for "digest"."""


class Digests:
    """Keyed digests of text: 96 bits, so that two texts of a cluster never share one."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, text: str) -> str:
        """The text's digest."""
        data = text.encode("utf-8", "surrogatepass")
        return DIGEST + blake2b(data, key=self._key, digest_size=12).hexdigest()


class RememberedDigests(dict[str, str]):
    """Digests by their text, the short ones of late: images, names and values recur in a cluster.

    `remembered[text]` is `digest(text)`, made once for as long as it is remembered.
    """

    MOST: ClassVar = 1 << 14
    LONGEST: ClassVar = 256

    def __init__(self, digest: Digest) -> None:
        self._digest = digest

    def __missing__(self, text: str) -> str:
        digest = self._digest(text)
        if len(text) <= self.LONGEST:
            if len(self) >= self.MOST:
                self.clear()
            self[text] = digest
        return digest


def redact(kind: str, document: Document, digest: Digest) -> None:
    """Put digests in place of all strings that no decision reads. Changes the document.

    What is kept whole is not looked at. No calls but the digests': this is done for each value of a
    cluster.
    """
    waiting: list[tuple[Any, _Shape]] = [(document, _shape_of_kind(kind))]
    while waiting:
        value, shape = waiting.pop()
        of_members: Mapping[Any, _Shape]
        items: Iterable[tuple[Any, Any]]
        if type(value) is dict:
            of_members, of_items = shape if type(shape) is dict else _NOTHING, None
            items = value.items()
        else:
            of_members, of_items = _NOTHING, shape[0] if type(shape) is list else None
            items = enumerate(value)
        for place, inner in items:
            type_ = type(inner)
            if type_ is str or type_ is dict or type_ is list:
                of_inner = of_members.get(place, of_items)
                if of_inner is _KEPT:
                    continue
                if type_ is str:
                    value[place] = digest(inner)
                else:
                    waiting.append((inner, of_inner))


@cache
def _shape_of_kind(kind: str) -> _Shape:
    try:
        shape = dict(_shape(kind_named(kind).type))
    except KeyError:  # of a kind that is not read only what every object has is known
        shape = {"metadata": _shape(ObjectMeta)}
    template = {"metadata": _shape(ObjectMeta), "spec": _shape(PodSpec), "$patch": _KEPT}
    if isinstance(shape.get("spec"), dict) and "template" in shape["spec"]:
        shape["spec"] = {**shape["spec"], "template": template}
    if kind == "ControllerRevision":
        shape["data"] = {"spec": {"template": template, "$patch": _KEPT}}
    return {**shape, "apiVersion": _KEPT, "kind": _KEPT}


@cache
def _shape(type_: Any) -> _Shape:
    """The shape of a value of a slice's field."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is types.UnionType:
        inner = [argument for argument in arguments if argument is not type(None)]
        shapes = [_shape(one) for one in inner]
        return next((shape for shape in shapes if shape != _KEPT), _KEPT) if shapes else None
    if origin is tuple or origin is list:
        return [_shape(arguments[0])]
    if origin is dict:  # of names to names, quantities or times; JSON of any shape is not known
        return None if arguments[1] is Any else _KEPT
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return _KEPT
    hints = get_type_hints(type_)
    members: dict[str, _Shape] = {
        field.encode_name: _shape(hints[field.name])
        for field in msgspec.structs.fields(type_)
        if field.encode_name not in _FREE_TEXT or type_ in _MESSAGES_DECIDE
    }
    hidden = _HIDDEN.get(type_)
    if hidden is not None:
        del members[hidden]
    return members


_HIDDEN: Final[dict[type, str]] = {
    VolumePresence: "path",  # of a file system
    ObjectMeta: "annotations",  # they may hold anything
    NodeMeta: "annotations",
    NodeSpec: "providerID",  # read only where work on a machine is started
    NodeAddress: "address",
}
"""Fields that a slice has and a file does not need."""
