"""Expectations: what this controller's own calls will show in the cache, and whether it has.

Follows `ControllerExpectations` (`pkg/controller/controller_utils.go`). One record a key: pending
creates, pending deletes, and when they were set. A controller must not decide on a set again before
the cache shows what it did last; a record older than five minutes is given up.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

EXPECTATIONS_TIMEOUT_NS = 5 * 60 * 1_000_000_000


@dataclass
class ControlleeExpectations:
    """Pending creates (`adds`) and deletes of one key; both may fall below zero."""

    adds: int
    deletes: int
    timestamp_ns: int

    def fulfilled(self) -> bool:
        """True if nothing is pending."""
        return self.adds <= 0 and self.deletes <= 0

    def expired(self, now: int) -> bool:
        """True if the record is older than the time-out; exactly as old is not expired."""
        return now - self.timestamp_ns > EXPECTATIONS_TIMEOUT_NS


Key = tuple[str, str]


class ControllerExpectations:
    """The records of all keys. Follows upstream's type of the same name."""

    def __init__(self) -> None:
        self._records: dict[Key, ControlleeExpectations] = {}

    def fork(self) -> ControllerExpectations:
        """Others of which the same is expected."""
        other = ControllerExpectations()
        other._records = {key: copy(record) for key, record in self._records.items()}
        return other

    def get(self, key: Key) -> ControlleeExpectations | None:
        """The record of a key, or None."""
        return self._records.get(key)

    def satisfied(self, key: Key, now: int) -> bool:
        """True if a sync may act on the key: no record, all seen, or timed out."""
        record = self._records.get(key)
        return record is None or record.fulfilled() or record.expired(now)

    def expect(self, key: Key, adds: int, deletes: int, now: int) -> None:
        """Set what is pending, replacing what was there. Follows `SetExpectations`."""
        self._records[key] = ControlleeExpectations(adds, deletes, now)

    def lower(self, key: Key, adds: int = 0, deletes: int = 0) -> None:
        """Lower what is pending; a key without a record is left alone. `LowerExpectations`."""
        record = self._records.get(key)
        if record is not None:
            record.adds -= adds
            record.deletes -= deletes

    def creation_observed(self, key: Key) -> None:
        """A create that was expected showed itself, or failed."""
        self.lower(key, adds=1)

    def deletion_observed(self, key: Key) -> None:
        """A delete that was expected showed itself, or failed."""
        self.lower(key, deletes=1)

    def delete(self, key: Key) -> None:
        """Forget the key: its set is gone. Follows `DeleteExpectations`."""
        self._records.pop(key, None)
