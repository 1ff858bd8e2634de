"""Many names in a sentence: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def first_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b, c and 4 more`; all of them where there are at most `most`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
