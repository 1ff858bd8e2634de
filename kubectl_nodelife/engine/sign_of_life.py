"""When a node's kubelet last reported, and whether it is late: one rule for all callers.

`status` counts a late node down, and a play of the joined present leaves its kubelet silent. The
sign is the Lease's renewal, or the status post where Leases do not count (gate NodeLease off). A
kubelet renews every quarter of its Lease's length (pkg/kubelet/kubelet.go,
nodeLeaseRenewIntervalFraction); one renewal may be late without meaning much.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE

LATE_NS: Final = 15 * SECOND_NS
UPDATE_NS: Final = 10 * SECOND_NS
"""nodeStatusUpdateFrequency, and the interval at which a Lease of the default length is renewed."""


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


def sign_of_life(node: Node, cache: Cache, now_ns: int, leases_count: bool) -> LastSignOfLife:
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


def _renewal_interval_ns(cache: Cache, node: str) -> int:
    """A quarter of the Lease's length, at least a second."""
    lease = cache.get("Lease", (NAMESPACE_NODE_LEASE, node))
    seconds = lease.spec.lease_duration_seconds if isinstance(lease, Lease) else None
    return max(SECOND_NS, seconds * SECOND_NS // 4) if seconds else UPDATE_NS
