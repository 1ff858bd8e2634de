"""Reading a document field by field, with errors that name the file, the path in it and the remedy.

Plain JSON values in, Python values out; every function raises BadInput. Unknown fields are refused,
since a field that is misspelt would otherwise silently do nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import format_duration, parse_duration

_MOST_KNOWN = 20

_TYPE_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "nothing",
}


class FieldPath(NamedTuple):
    """A place in a document: its file and the path, such as `spec.events[2].at`."""

    file: str
    path: str = ""

    def key(self, name: str) -> FieldPath:
        """The field `name` of what is here."""
        return FieldPath(self.file, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> FieldPath:
        """An item of the list that is here."""
        return FieldPath(self.file, f"{self.path}[{index}]")

    def fault(self, what: str, remedy: str = "") -> BadInput:
        """The error to raise about what is here."""
        return BadInput(
            what, on=f"{self.file}: {self.path}" if self.path else self.file, remedy=remedy
        )


def mapping(value: Any, at: FieldPath, fields: Sequence[str] = ()) -> dict[str, Any]:
    """The value as a mapping; where `known` fields are given, with no other ones."""
    if not isinstance(value, dict):
        raise at.fault(f"expected a mapping, found {describe(value)}")
    for key in value:
        if not isinstance(key, str):
            raise at.fault(f"the key {key!r} is not text", "put it in quotes")
        if fields and key not in fields:
            raise at.key(key).fault("unknown field", nearest(key, fields))
    return value


def sequence(value: Any, at: FieldPath) -> list[Any]:
    """The value as a list."""
    if not isinstance(value, list):
        raise at.fault(f"expected a list, found {describe(value)}")
    return value


def text(value: Any, at: FieldPath) -> str:
    """The value as text, not empty."""
    if not isinstance(value, str):
        raise at.fault(f"expected text, found {describe(value)}", "put it in quotes")
    if not value:
        raise at.fault("is empty", "give a name")
    return value


def texts(value: Any, at: FieldPath) -> tuple[str, ...]:
    """The value as a list of texts, at least one."""
    items = sequence(value, at)
    if not items:
        raise at.fault("the list is empty", "name at least one, or leave the field out")
    return tuple(text(item, at.item(i)) for i, item in enumerate(items))


def count(value: Any, at: FieldPath, *, least: int = 0, most: int) -> int:
    """The value as a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise at.fault(f"expected a whole number, found {describe(value)}")
    if not least <= value <= most:
        raise at.fault(f"{value} is out of range", f"give a number from {least} to {most}")
    return value


def switch(value: Any, at: FieldPath) -> bool:
    """The value as true or false."""
    if not isinstance(value, bool):
        raise at.fault(f"found {describe(value)}", "give true or false")
    return value


def duration_ns(value: Any, at: FieldPath, *, least_ns: int = 0, most_ns: int | None = None) -> int:
    """The value, a Go duration such as `1m30s`, in ns."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value != 0:
        raise at.fault(f"{value} lacks a unit", f"write {value}s for seconds")
    try:
        ns = parse_duration(str(value) if value == 0 else text(value, at))
    except ValueError as error:
        raise at.fault(str(error), "write a Go duration: 500ms, 40s, 1m30s") from None
    if ns < least_ns:
        what = "must not be negative" if ns < 0 else f"must be at least {format_duration(least_ns)}"
        raise at.fault(f"{value} {what}")
    if most_ns is not None and ns > most_ns:
        raise at.fault(f"{value} must be at most {format_duration(most_ns)}")
    return ns


def one_of(value: Any, at: FieldPath, words: Sequence[str]) -> str:
    """The value as one of the known words."""
    word = text(value, at)
    if word not in words:
        raise at.fault(f"unknown value {word!r}", nearest(word, words))
    return word


def nearest(word: str, words: Iterable[str]) -> str:
    """The known word that may have been meant, or some of them."""
    words = list(words)
    near = difflib.get_close_matches(word, words, 1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    more = ", ..." if len(words) > _MOST_KNOWN else ""
    return f"known here: {', '.join(words[:_MOST_KNOWN])}{more}" if words else ""


def describe(value: Any) -> str:
    """A value's type, and a short value itself, for an error."""
    kind = _TYPE_NAMES.get(type(value), type(value).__name__)
    return f"{kind} ({value!r})" if isinstance(value, (str, int, float)) and value != "" else kind
