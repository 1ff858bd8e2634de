"""Many things in a sentence: how many, the first few names, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def first_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b, c and 4 more`; all of them where there are at most `most`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """`1 pod`, `3 pods`: nouns with a plural in s alone, perhaps with a word before them."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
