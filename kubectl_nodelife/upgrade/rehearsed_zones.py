"""The zones of a rehearsed run as the node lifecycle controller will count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kubectl_nodelife.controllers.upgrade.zone_brake import ZoneCounts, zone_hold


class RehearsedZones:
    """How many nodes of each zone are out by the run, and how many by themselves.

    `zone_of`: the zone of each node that counts; `not_ready`: those that are not Ready at the
    start, and stay so.
    """

    def __init__(
        self,
        zone_of: Mapping[str, str],
        not_ready: Collection[str],
        threshold: float,
        *,
        allow_dark: bool,
    ) -> None:
        self._zone_of = zone_of
        self._not_ready = frozenset(not_ready)
        self._threshold = threshold
        self._allow_dark = allow_dark
        self._sizes = Counter(zone_of.values())
        self._sick = Counter(zone_of[name] for name in self._not_ready if name in zone_of)
        self._out: set[str] = set()
        self._gone: set[str] = set()
        self._ours: Counter[str] = Counter()

    def hold(self, name: str) -> str:
        """Why one node more of its zone must not go; "" where it may."""
        zone = self._zone_of.get(name)
        if zone is None:
            return ""
        sick = self._sick[zone] - (name in self._not_ready)
        counts = ZoneCounts(self._sizes[zone], sick, self._ours[zone])
        return zone_hold(counts, self._threshold, allow_dark=self._allow_dark)

    def take(self, name: str) -> None:
        """The node is out of service, and counts as ours."""
        if name in self._zone_of and name not in self._out:
            self._out.add(name)
            self._ours[self._zone_of[name]] += 1
            self._sick[self._zone_of[name]] -= name in self._not_ready

    def leave(self, name: str) -> None:
        """The node's object goes: its zone is smaller until `come_back`."""
        if name in self._out:
            self.give_back(name)
            self._sizes[self._zone_of[name]] -= 1
            self._gone.add(name)

    def come_back(self, name: str) -> None:
        """Its newcomer is there, and not yet well."""
        if name in self._gone:
            self._gone.remove(name)
            self._sizes[self._zone_of[name]] += 1
            self.take(name)

    def give_back(self, name: str) -> None:
        """The node is well."""
        if name in self._out:
            self._out.remove(name)
            self._ours[self._zone_of[name]] -= 1
