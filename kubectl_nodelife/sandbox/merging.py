"""A changed slice put back onto the whole object that it is a slice of.

Controllers and kubelets change slices; the API serves whole objects. What differs between the slice
before and after is written onto the object, and everything that no slice holds stays as it was.
"""

from __future__ import annotations

from typing import Any

_MISSING: Any = object()

# Fields by one of which the members of a list are told apart.
_MEMBER_KEYS = (("key", "effect"), ("type",), ("name",), ("uid",))


def merge_back(raw: Any, before: Any, after: Any) -> Any:
    """`raw` with what changed from `before` to `after`, all plain JSON; raw stays as it is."""
    if before == after:
        return raw
    if isinstance(raw, dict) and isinstance(before, dict) and isinstance(after, dict):
        return _merge_object(raw, before, after)
    if isinstance(raw, list) and isinstance(before, list) and isinstance(after, list):
        return _merge_list(raw, before, after)
    return after


def overlay(base: Any, over: Any) -> Any:
    """`base` with all that `over` says on top: for an object that is made from a template."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {
            key: overlay(base[key], over[key]) if key in base and key in over else either
            for key, either in {**base, **over}.items()
        }
    if isinstance(base, list) and isinstance(over, list):
        known = {_member_key(member): member for member in base}
        known.pop(None, None)
        return [overlay(known.get(_member_key(member), member), member) for member in over]
    return over


def _merge_object(raw: dict[str, Any], before: Any, after: Any) -> dict[str, Any]:
    merged = dict(raw)
    for key in before.keys() | after.keys():
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old == new:
            continue
        if new is _MISSING:
            merged.pop(key, None)
        else:
            merged[key] = merge_back(raw.get(key), old, new)
    return merged


def _merge_list(raw: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Members keep what no slice holds, found again by position if unchanged, else by their key."""
    if len(raw) != len(before):
        return after
    merged = []
    for new in after:
        for whole, old in zip(raw, before, strict=True):
            if old == new or (
                _member_key(old) is not None and _member_key(old) == _member_key(new)
            ):
                merged.append(merge_back(whole, old, new))
                break
        else:
            merged.append(new)
    return merged


def _member_key(member: Any) -> tuple[Any, ...] | None:
    if isinstance(member, dict):
        for fields in _MEMBER_KEYS:
            if all(field in member for field in fields):
                return (fields, *(member[field] for field in fields))
    return None
