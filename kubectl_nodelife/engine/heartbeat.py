"""The signs of life of a node's kubelet: when its Lease was renewed, by a write that was seen or by
a schedule, and when the next renewal is late.

What counts about a Lease is when a renewal was seen, and that may be known in closed form
(`events.Heartbeats`), so that the renewals of healthy nodes need no events.

When a kubelet counts as late is one rule for all callers: `status` counts a late node down, and a
play of the joined present leaves its kubelet silent. The sign is the Lease's renewal, or the status
post where Leases do not count (gate NodeLease off). A kubelet renews every quarter of its Lease's
length (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction); one renewal may be late without
meaning much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import made_later
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE

_LOOKED_AT_AFTER_NS = 600 * SECOND_NS
"""A node is looked at within a monitor period after its Lease went, and no period is so long."""

LATE_NS: Final = 15 * SECOND_NS
UPDATE_NS: Final = 10 * SECOND_NS
"""nodeStatusUpdateFrequency, and the interval at which a Lease of the default length is renewed."""


class Heartbeat:
    """The renewals of one node's Lease: the last that was seen, and a schedule if one is known.

    A write has a version: the Lease's resourceVersion, or where there is none (a renewal on
    schedule, an object of a scenario) the instant in ns, which is larger than any of these.
    `touched_ns`: when a write was seen that did not move renewTime forward, since the last renewal.
    `deleted_ns`: when the Lease before this one went, and `before` its own renewals, with those of
    the Leases before it: more than one may go between two looks at a node.
    """

    __slots__ = (
        "_from_ns", "_posted_ns", "_renew_ns", "_seen_ns", "_touch_version", "_version",
        "before", "cause", "deleted_ns", "schedule", "touched_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self._from_ns = 0
        self._renew_ns: int | None = None
        self._seen_ns: int | None = None
        self._version: int | str = 0
        self._touch_version: int | str = 0
        self.touched_ns: int | None = None
        self.schedule: Heartbeats | None = None
        self._posted_ns: int | None = None
        self.cause: Action | None = None
        self.before: Heartbeat | None = None
        self.deleted_ns = 0

    def __copy__(self) -> Heartbeat:
        """As `copy` makes it, a multiple sooner: there is one for each node."""
        other = Heartbeat.__new__(Heartbeat)
        other._from_ns, other._renew_ns = self._from_ns, self._renew_ns
        other._seen_ns, other.touched_ns = self._seen_ns, self.touched_ns
        other._posted_ns = self._posted_ns
        other._touch_version, other._version = self._touch_version, self._version
        other.before, other.cause, other.deleted_ns = self.before, self.cause, self.deleted_ns
        other.schedule = self.schedule
        return other

    def observe(self, renew_ns: int | None, now_ns: int, version: str = "") -> bool:
        """A Lease object was seen. False where that needs no look: a later renewal than the last,
        or the same object again.

        `version`: its resourceVersion; "": it has none, and only a renewal counts as a write.
        """
        last_ns, plain = self._renew_ns, self._seen_ns is not None
        if self.schedule is not None and (last := self.renewal(now_ns)) is not None:
            last_ns, plain = last[0], True
        if not plain or (renew_ns is not None and (last_ns is None or renew_ns > last_ns)):
            self._renew_ns, self._seen_ns = renew_ns, now_ns
            self._version, self.touched_ns = version or now_ns, None
            return not plain or last_ns is None
        last_seen = self._version if self.touched_ns is None else self._touch_version
        if version and version != last_seen:
            self.touched_ns, self._touch_version = now_ns, version
            return True
        return renew_ns != last_ns

    def first_seen(self, lease: Lease) -> None:
        """The Lease that was observed is the first: it may have been written to since its last
        renewal.
        """
        write = lease.touched()
        if write is not None:
            self.touched_ns = int(parse_time(write.time))
            self._touch_version, self._version = self._version, 0

    def version(self, now_ns: int) -> int:
        """The version of the Lease that was there at that instant; 0: there was none."""
        touched_ns, last_ns = self.touched_ns, self._last_scheduled(now_ns)
        if touched_ns is not None and (last_ns or 0) < touched_ns <= now_ns:
            return _number(self._touch_version)
        return self.renewal_version(now_ns)

    def renewal_version(self, now_ns: int) -> int:
        """The version that the newest renewal at `now_ns` made; 0: there is no Lease."""
        last = self._last_scheduled(now_ns)
        if last is None or (self._seen_ns is not None and self._seen_ns > last):
            return _number(self._version)
        return last

    def caught_up(self, before: Heartbeat | None, now_ns: int) -> Heartbeat:
        """The same, where a watch that showed `before` shows only now what happened since."""
        new = copy(self)
        if before is not None and self.deleted_ns > before.deleted_ns:  # shown only now as well
            new._begin_after(before, now_ns)
        renewal, shown = self.renewal(now_ns), before.renewal(now_ns) if before else None
        if renewal is None:
            return new
        new._version = self.renewal_version(now_ns)
        new._renew_ns, new._seen_ns = renewal
        if self.touched_ns is None or self.version(now_ns) != _number(self._touch_version):
            new.touched_ns = None
        if shown is None or shown[0] != renewal[0]:
            new._seen_ns = now_ns
        new._from_ns = now_ns + 1
        return new

    def deleted(self, now_ns: int) -> Heartbeat:
        """The same once the Lease is deleted: a kubelet that renews on schedule makes another."""
        new, s = Heartbeat(), self.schedule
        if s is not None and (s.stop_ns is None or s.stop_ns > now_ns):
            new.schedule, new.cause, new._from_ns = s, self.cause, now_ns + 1
        new._posted_ns = self._posted_ns
        new._begin_after(self, now_ns)
        return new

    def _begin_after(self, before: Heartbeat, now_ns: int) -> None:
        """The Lease with these renewals is seen to go now."""
        self.before, self.deleted_ns = copy(before), now_ns
        if before.deleted_ns < now_ns - _LOOKED_AT_AFTER_NS:
            self.before.before = None

    def freeze(self, since_ns: int) -> None:
        """A watch of Leases that stands still since then shows no renewal on schedule any more."""
        if self.schedule is not None:
            self.schedule = replace(self.schedule, unseen_ns=since_ns)

    def follow(self, schedule: Heartbeats, now_ns: int) -> None:
        """Take over a schedule; what the one before has renewed and posted by now stays known, but
        not what it would have at the very instant at which the new one stops.
        """
        stop_ns = schedule.stop_ns
        until_ns = now_ns if stop_ns is None else min(now_ns, stop_ns - 1)
        before = self.renewal(until_ns)
        if before is not None:
            self._version = self.renewal_version(until_ns)
            self._renew_ns, self._seen_ns = before
        self._posted_ns = self.status_post(until_ns)
        self.schedule = schedule
        self.cause = schedule.cause
        if stop_ns is not None and stop_ns < now_ns:  # as after a gap: all of it is seen now
            last = self._last_scheduled(now_ns)
            if last is not None and (self._renew_ns is None or last > self._renew_ns):
                self._renew_ns, self._seen_ns = last, now_ns

    def renewal(self, now_ns: int) -> tuple[int | None, int] | None:
        """(renewTime or None, when it was seen) of the newest renewal at `now_ns`.

        None: there is no Lease.
        """
        last = self._last_scheduled(now_ns)
        if last is not None and (self._seen_ns is None or self._seen_ns <= last):
            return last, last
        if self._seen_ns is None:
            return None
        return self._renew_ns, self._seen_ns

    def status_post(self, now_ns: int) -> int | None:
        """When the newest scheduled status post came, or None."""
        s = self.schedule
        if s is None or s.status_first_ns is None or s.status_every_ns <= 0:
            return self._posted_ns
        last = _last_of(s.status_first_ns, s.status_every_ns, s.stop_ns, now_ns)
        return self._posted_ns if last is None else last

    def beats_for_ever(self, leases_count: bool) -> int | None:
        """The interval, in ns, of signs of life on a schedule without an end; None: there is none.

        `leases_count`: whether renewals are signs of life, or status posts alone.
        """
        s = self.schedule
        if s is None or s.stop_ns is not None:
            return None
        if leases_count:
            return s.every_ns if s.unseen_ns is None else None
        return s.status_every_ns if s.status_first_ns is not None else None

    def _last_scheduled(self, now_ns: int) -> int | None:
        s = self.schedule
        if s is None:
            return None
        stop_ns = s.stop_ns
        if s.unseen_ns is not None:
            stop_ns = s.unseen_ns if stop_ns is None else min(stop_ns, s.unseen_ns)
        last = _last_of(s.first_ns, s.every_ns, stop_ns, now_ns)
        return last if last is not None and last >= self._from_ns else None


def first_heartbeats(leases: dict[tuple[str, str], Lease], now_ns: int) -> dict[str, Heartbeat]:
    """The heartbeats of all nodes when these Leases are listed first, at that instant: each is made
    when it is first asked for.
    """

    def of_lease(lease: Lease) -> Heartbeat:
        heartbeat = Heartbeat()
        heartbeat.observe(lease.spec.renew_time, now_ns, lease.metadata.resource_version)
        heartbeat.first_seen(lease)
        return heartbeat

    of_nodes = {key[1]: lease for key, lease in leases.items() if key[0] == NAMESPACE_NODE_LEASE}
    return made_later(of_nodes, of_lease, copy)


def followed(
    before: Mapping[str, Heartbeat],
    nodes: Collection[str],
    schedule: Callable[[str], Heartbeats],
    now_ns: int,
) -> dict[str, Heartbeat]:
    """The heartbeats of all nodes, those of `nodes` with another schedule: each is made when it is
    first asked for.
    """

    def of_node(name: str) -> Heartbeat:
        heartbeat = copy(before[name]) if name in before else Heartbeat()
        if name in nodes:
            heartbeat.follow(schedule(name), now_ns)
        return heartbeat

    return made_later({name: name for name in (*before, *nodes)}, of_node, copy)


class Leases(Protocol):
    """What a cache shows of Leases."""

    def heartbeat(self, node: str) -> Heartbeat | None:
        """The node's heartbeat, or None where no Lease was ever seen."""

    def get(self, kind: str, key: tuple[str, str]) -> KubeObject | None:
        """The object of that kind and (namespace, name), or None."""


class LastSignOfLife(NamedTuple):
    """The newest one of a node at an instant.

    `at_ns`: when it came, ns since the epoch; None where none was read. `every_ns`: how far apart
    they come.
    """

    at_ns: int | None
    every_ns: int = UPDATE_NS

    def age_ns(self, now_ns: int) -> int | None:
        """How old it is; None where none was read."""
        return None if self.at_ns is None else max(0, now_ns - self.at_ns)

    @property
    def late_after_ns(self) -> int:
        """At which age the next one should have come: half an interval more is nothing unusual."""
        return min(LATE_NS, self.every_ns * 3 // 2)

    def is_late(self, now_ns: int) -> bool:
        """True if the next one should have come."""
        age_ns = self.age_ns(now_ns)
        return age_ns is not None and age_ns > self.late_after_ns


def sign_of_life(node: Node, cache: Leases, now_ns: int, leases_count: bool) -> LastSignOfLife:
    """The node's newest sign of life. `leases_count`: its Lease's renewals, else status posts."""
    if not leases_count:
        ready = node.ready()
        return LastSignOfLife(ready.last_heartbeat_time if ready is not None else None)
    heartbeat = cache.heartbeat(node.name)
    renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
    if heartbeat is None or renewal is None or renewal[0] is None:
        return LastSignOfLife(None)
    if heartbeat.schedule is not None:
        return LastSignOfLife(renewal[0], heartbeat.schedule.every_ns)
    return LastSignOfLife(renewal[0], _renewal_interval_ns(cache, node.name))


def _renewal_interval_ns(cache: Leases, node: str) -> int:
    """A quarter of the Lease's length, at least a second."""
    lease = cache.get("Lease", (NAMESPACE_NODE_LEASE, node))
    seconds = lease.spec.lease_duration_seconds if isinstance(lease, Lease) else None
    return max(SECOND_NS, seconds * SECOND_NS // 4) if seconds else UPDATE_NS


def _number(version: int | str) -> int:
    """A resourceVersion as a number; one that is none, as of a foreign server, as a number of its
    own.
    """
    if isinstance(version, str) and not version.isdecimal():
        return int.from_bytes(version.encode(), "big")
    return int(version)


def _last_of(first_ns: int, every_ns: int, stop_ns: int | None, now_ns: int) -> int | None:
    """The last of first + k x every that is at or before now and before stop."""
    end = now_ns if stop_ns is None or stop_ns > now_ns else stop_ns - 1
    if end < first_ns:
        return None
    return first_ns + (end - first_ns) // every_ns * every_ns
