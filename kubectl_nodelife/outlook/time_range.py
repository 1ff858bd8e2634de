"""A span of time within which something happens."""

from __future__ import annotations

import msgspec


class Range(msgspec.Struct, frozen=True):
    """Some time from now, in ns: at the earliest and at the latest."""

    low_ns: int
    high_ns: int

    @property
    def middle_ns(self) -> int:
        """Where to place it if one instant is asked for."""
        return (self.low_ns + self.high_ns) // 2
