"""The error of reading objects: which file, where in it, what is wrong, what to do."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


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
