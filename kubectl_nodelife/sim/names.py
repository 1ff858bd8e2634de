"""Names and uids for objects that the simulated cluster makes: unlike any other, and the same in
every run.
"""

from __future__ import annotations

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIXES = len(_LETTERS) ** 5
_PAIRS = [one + other for other in _LETTERS for one in _LETTERS]
_PAIR_COUNT = len(_PAIRS)
_STIR = 5_915_587  # coprime to _SUFFIXES: no suffix comes twice before all were used


def name_suffix(number: int) -> str:
    """Five letters such as `generateName` gets, for the number-th object made."""
    rest, first = divmod(number * _STIR % _SUFFIXES, _PAIR_COUNT)
    last, second = divmod(rest, _PAIR_COUNT)
    return _PAIRS[first] + _PAIRS[second] + _LETTERS[last]


def made_uid(number: int, kind: int = 0x51ED) -> str:
    """A uid for the number-th object made; `kind` keeps several countings apart."""
    return f"{number:08x}-{kind & 0xFFFF:04x}-4000-8000-000000000000"
