"""Compares two pod templates, path by path.

Lists of named things (containers, env, volumes, ports) are compared by name, so that a container
inserted in front does not make all that follow look changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

_IDENTITY = ("name", "containerPort", "mountPath", "key")


class TemplateChange(msgspec.Struct, frozen=True):
    """One path. `old` or `new` None: it was or is not there."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.path}: + {_short(self.new)}"
        if self.new is None:
            return f"{self.path}: - {_short(self.old)}"
        return f"{self.path}: {_short(self.old)} -> {_short(self.new)}"


def template_changes(old: dict[str, Any], new: dict[str, Any]) -> list[TemplateChange]:
    """The changes, in path order of the new template, what is gone last."""
    return list(_changes("", old, new))


def _changes(path: str, old: Any, new: Any) -> Iterator[TemplateChange]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            if key != "creationTimestamp":
                where = f"{path}.{key}" if path else key
                yield from _changes(where, old.get(key), new.get(key))
        return
    if isinstance(old, list) and isinstance(new, list):
        before, after = _by_identity(old), _by_identity(new)
        if before is not None and after is not None:
            for name in dict.fromkeys([*after, *before]):
                yield from _changes(f"{path}[{name}]", before.get(name), after.get(name))
            return
    yield TemplateChange(path, old, new)


def _by_identity(items: list[Any]) -> dict[str, Any] | None:
    """The items by name, or None where they have none, or not all different ones."""
    for field in _IDENTITY:
        if all(isinstance(item, dict) and field in item for item in items):
            found = {str(item[field]): item for item in items}
            if len(found) == len(items):
                return found
    return {} if not items else None


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
