"""Reading a document field by field, with errors that name the file, the path in it and the remedy.

Plain JSON values in, Python values out; every function raises BadInput. Unknown fields are refused,
since a field that is misspelt would otherwise silently do nothing. A table says what reads which
field (`Fields`): those of a mapping that may be left out are read by it (`given`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.selectors import parse_selector
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


Reader = Callable[[Any, FieldPath], Any]
"""Makes what is meant of a value. Raises BadInput."""

Fields = Mapping[str, tuple[str, Reader]]
"""A field's name in the document -> the name of what it gives, and what reads it."""


def given(document: Mapping[str, Any], at: FieldPath, fields: Fields) -> dict[str, Any]:
    """What those of the fields give that are there, by name, in the order of the table."""
    return {
        name: read(document[key], at.key(key))
        for key, (name, read) in fields.items()
        if key in document
    }


def struct(value: Any, at: FieldPath, fields: Fields) -> dict[str, Any]:
    """What a mapping gives that has none but these fields."""
    return given(mapping(value, at, tuple(fields)), at, fields)


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


def items(value: Any, at: FieldPath, read: Reader) -> tuple[Any, ...]:
    """What the items of a list give."""
    return tuple(read(item, at.item(i)) for i, item in enumerate(sequence(value, at)))


def text(value: Any, at: FieldPath) -> str:
    """The value as text, not empty."""
    if not isinstance(value, str):
        raise at.fault(f"expected text, found {describe(value)}", "put it in quotes")
    if not value:
        raise at.fault("is empty", "give a name")
    return value


def texts(value: Any, at: FieldPath) -> tuple[str, ...]:
    """The value as a list of texts, at least one."""
    if not sequence(value, at):
        raise at.fault("the list is empty", "name at least one, or leave the field out")
    return items(value, at, text)


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


def some_of(value: Any, at: FieldPath, words: Iterable[str]) -> tuple[str, ...]:
    """The known words that the value, a list, has; in the order in which they are known."""
    known = tuple(words)
    wanted = items(value, at, partial(one_of, words=known))
    return tuple(word for word in known if word in wanted)


def selector(value: Any, at: FieldPath) -> LabelSelector:
    """The value as a selector of labels, in kubectl's words."""
    try:
        return parse_selector(text(value, at))
    except ValueError as error:
        raise at.fault(str(error), "write it as for kubectl -l") from None


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
