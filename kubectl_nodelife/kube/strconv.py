"""Numbers in labels and taints, read as Go's strconv reads them."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"[+-]?\d{1,40}", re.ASCII)


def parse_int64(text: str) -> int | None:
    """The signed 64-bit decimal that `text` is, or None. Follows `strconv.ParseInt`."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
