"""Lease renewals and status posts in real time.

The simulator only says on which schedule a kubelet renews (`Heartbeats`), because on virtual time
that is enough. Here somebody watches: each renewal is a write of the node's Lease, and each status
post one of the Node. Kubelets that begin together renew together once and then each at its own
phase, as the jitter of real ones spreads them.
"""

from __future__ import annotations

import zlib
from typing import cast

from msgspec.structs import replace

from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.engine.timers import Timers
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.sandbox.resources import BY_KIND
from kubectl_nodelife.sandbox.served import ServedApi, renewed_lease

_LEASE, _STATUS = "lease", "status"


class LeaseRenewals:
    """Keeps the schedule of every living kubelet, and writes what is due."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api
        self._timers = Timers()
        self._schedules: dict[str, Heartbeats] = {}

    def follow(self, schedule: Heartbeats) -> None:
        """Take over a kubelet's schedule, or its end."""
        node = schedule.node
        if schedule.stop_ns is not None:
            self._schedules.pop(node, None)
            self._timers.drop((_LEASE, node))
            self._timers.drop((_STATUS, node))
            return
        before = self._schedules.get(node)
        self._schedules[node] = schedule
        if before is None or before.first_ns != schedule.first_ns:
            self._timers.set((_LEASE, node), schedule.first_ns)
        if schedule.status_first_ns is not None:
            self._timers.set((_STATUS, node), schedule.status_first_ns)

    def next_due(self) -> int | None:
        """When the next write is due."""
        return self._timers.next_due()

    def run(self, now_ns: int) -> None:
        """Write what is due."""
        for key in self._timers.pop_due(now_ns):
            what, node = cast("tuple[str, str]", key)
            schedule = self._schedules[node]
            if what == _LEASE:
                self._renew(node, schedule, now_ns)
                self._timers.set(key, _next_renewal(schedule, now_ns))
            else:
                self._post(node, now_ns)
                every_ns = schedule.status_every_ns
                missed = (now_ns - (schedule.status_first_ns or 0)) // every_ns + 1
                self._timers.set(key, (schedule.status_first_ns or 0) + missed * every_ns)

    def _renew(self, node: str, schedule: Heartbeats, now_ns: int) -> None:
        present = self._api.served.get("Lease", ("kube-node-lease", node))
        known = self._api.store.nodes.get(node)
        # As the kubelet's default: four renewals may be missed.
        seconds = max(1, 4 * schedule.every_ns // 1_000_000_000)
        uid = known.uid if known is not None else ""
        self._api.write(BY_KIND["Lease"], renewed_lease(present, node, uid, now_ns, seconds))

    def _post(self, name: str, now_ns: int) -> None:
        """A post that changes nothing but the heartbeat's time."""
        node = self._api.store.nodes.get(name)
        if not isinstance(node, Node):
            return
        now = whole_seconds(now_ns)
        conditions = tuple(replace(c, last_heartbeat_time=now) for c in node.status.conditions)
        self._api.put(
            kind_named("Node").name,
            replace(node, status=replace(node.status, conditions=conditions)),
        )


def _next_renewal(schedule: Heartbeats, now_ns: int) -> int:
    """The next instant of the kubelet's own phase, which its name decides."""
    every_ns = schedule.every_ns
    phase_ns = zlib.crc32(schedule.node.encode()) % 1000 * every_ns // 1000
    first_ns = schedule.first_ns + phase_ns
    if first_ns > now_ns:
        return first_ns
    return first_ns + ((now_ns - first_ns) // every_ns + 1) * every_ns
