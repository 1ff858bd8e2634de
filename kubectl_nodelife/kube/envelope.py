"""Reads what surrounds objects in a document: a List with undecoded items, kinds, positions.

It takes a List apart even where one item is no JSON at all, and names places in a document for
error messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.kube.decode import UNDECODABLE, needs_mending
from kubectl_nodelife.kube.kinds import Kind, find_kind, group_of
from kubectl_nodelife.kube.unreadable import split_list


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
# kubectl prints members in alphabetical order, so these two come first but in hand-written JSON.
HEAD = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([\w./-]*)"\s*,\s*"kind"\s*:\s*"(\w*)"')


def damaged_list(document: bytes) -> Envelope | None:
    """A List of which only items are damaged; None where the damage is elsewhere."""
    split = split_list(document)
    try:
        around = read_envelope(split.skeleton)
    except UNDECODABLE:
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
    """What to call a kind that is not read: with its group where we read a kind of that name."""
    return name if find_kind("", name) is None else f"{name}.{group_of(api_version) or api_version}"


def list_annotations(metadata: msgspec.Raw) -> dict[str, str] | None:
    """The annotations in a List's metadata, None where there are none."""
    try:
        found = _read_list_meta(metadata)
    except UNDECODABLE:
        return None
    return found.annotations if found is not None else None


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
    return None if needs_mending(api_version, kind) else kind
