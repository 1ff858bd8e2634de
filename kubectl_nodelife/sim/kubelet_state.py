"""How a simulated kubelet behaves, and the data that it has on itself, on its machine and on pods
that start or stop.

A simulated kubelet reports of its machine what the Node shows, until an act on the machine
(`machines`) changes that: its next status post then shows the new facts.

Each kubelet has an API client with the token bucket of its release. That follows `kubeAPIQPS` and
`kubeAPIBurst` of the kubelet's configuration. Heartbeats have a client of their own without a
limit. Left out on purpose: Events, which have a third client, and the requests for tokens, secrets
and volumes of pods that start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.engine.pace import KUBELET, KUBELET_BEFORE, ClientLimits
from kubectl_nodelife.engine.settings import Profile
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.deletion import DEFAULT_GRACE_SECONDS
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeStatus, NodeSystemInfo
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus, Quantities, is_starting
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS, whole_seconds
from kubectl_nodelife.kube.wellknown import SILENT_REASONS
from kubectl_nodelife.kubelet.releases import rules_for

REPORT: Final = 2
LAST_REPORT: Final = 3
"""Requests of a report: the pod is read, then its status is patched; of the last one it is deleted
besides. Follows `syncPod` of the kubelet's status manager.
"""
LATE_STOP_NS: Final = 100 * MILLISECOND_NS
"""How long after its start a kubelet removes a pod whose grace period was over before."""


class KubeletClients:
    """Those of all kubelets, by node name."""

    def __init__(self, limits: ClientLimits | None) -> None:
        """`limits`: of each; None: none."""
        self._limits = limits
        self._buckets: dict[str, TokenBucket] = {}

    @classmethod
    def of(cls, profile: Profile) -> KubeletClients:
        """With the limits of that release by default."""
        return cls(KUBELET if rules_for(profile).fifty_requests else KUBELET_BEFORE)

    def fork(self) -> KubeletClients:
        """The same for a fork of the world."""
        other = copy(self)
        self._buckets, other._buckets = fork_dict(self._buckets, copy)
        return other

    def next_token(self, node: str, now_ns: int) -> int:
        """When the node's kubelet may make its next request, ns."""
        bucket = self._bucket(node)
        at_ns = bucket.next_accept(now_ns) if bucket is not None else None
        return now_ns if at_ns is None else at_ns

    def request(self, node: str, now_ns: int, requests: int = 1) -> int:
        """The kubelet makes so many requests, one after another: when it makes the last one, ns."""
        bucket, at_ns = self._bucket(node), now_ns
        if bucket is not None:
            for _ in range(requests):
                at_ns = bucket.reserve(now_ns)
        return at_ns

    def _bucket(self, node: str) -> TokenBucket | None:
        bucket = self._buckets.get(node)
        if bucket is None and self._limits is not None:
            bucket = self._buckets[node] = TokenBucket(*self._limits)
        return bucket


_RUNNING_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
_REPORT_INTERVAL_NS = 5 * MINUTE_NS
_RENEW_INTERVAL_NS = 10 * SECOND_NS
_UPDATE_FREQUENCY_NS = 10 * SECOND_NS

NOT_STARTED_NS: Final = 10 * MINUTE_NS
"""A pod that is bound is given so long until its first container: an image may be large. After that
nothing shows that it will start."""


class KubeletTerms(msgspec.Struct, frozen=True):
    """How the kubelets of a scenario behave; ns.

    `lease_renew_interval_ns` None: 10 s, or as the Lease of a kubelet that was joined says;
    `lease_renew_phase_ns` None: at the start, or when the Lease of one that was joined is due.
    `node_status_report_interval_ns` None: as the kubelets of that release do by default.
    `pod_stop_ns` None: a pod uses all of its grace period. `pods_listed`: a client lists the
    kubelet's pods between any two batches, as metrics agents do; None: in releases where that hides
    other clients' changes from the kubelet (1.15 to 1.17).
    """

    lease_renew_interval_ns: int | None = None
    lease_renew_phase_ns: int | None = None
    node_status_report_interval_ns: int | None = None
    pod_start_ns: int = 2 * SECOND_NS
    pod_stop_ns: int | None = None
    pods_listed: bool | None = None
    keep_terminated_pod_volumes: bool = False
    cgroups_per_qos: bool = True

    @property
    def renew_every_ns(self) -> int:
        """How long after a renewal of its Lease a kubelet makes the next one."""
        return self.lease_renew_interval_ns or _RENEW_INTERVAL_NS

    @property
    def post_every_ns(self) -> int:
        """How long after a status post the next one comes, if nothing changes."""
        return self.node_status_report_interval_ns or _REPORT_INTERVAL_NS

    def awaits(self, pod: Pod) -> bool:
        """True if a pod that is there at t=0 and not Ready becomes Ready."""
        return is_starting(pod)

    def starts_after(self, pod: Pod) -> int | None:
        """How long after it was bound a pod is Ready; None: never."""
        return self.pod_start_ns

    def gates_are_set(self) -> bool:
        """True if other controllers set a pod's readiness gates by the time it starts."""
        return False

    def goes_on_for(self, pod: Pod, now_ns: int) -> int | None:
        """How much longer a pod that was bound before now takes until it is Ready; None: never, as
        one that should have been long ago: nothing shows that it will be."""
        bound = pod.status.condition("PodScheduled")
        since_ns = bound.last_transition_time if bound is not None else None
        age_ns = now_ns - since_ns if since_ns else 0
        if age_ns > max(self.pod_start_ns, NOT_STARTED_NS):
            return None
        return max(0, self.pod_start_ns - age_ns)

    def stops_after(self, pod: Pod, grace_ns: int) -> int | None:
        """How long after its deletion a pod's object is removed; None: it is held for ever."""
        return grace_ns if self.pod_stop_ns is None else min(grace_ns, self.pod_stop_ns)

    def for_leases(self, leases_count: bool) -> KubeletTerms:
        """Without Leases a kubelet posts its status each time it has computed it.

        Follows `tryUpdateNodeStatus` of v1.16, where only the gate NodeLease lets it leave out a
        status that did not change.
        """
        if leases_count or self.node_status_report_interval_ns is not None:
            return self
        return replace(self, node_status_report_interval_ns=_UPDATE_FREQUENCY_NS)


class MachineFacts(msgspec.Struct, frozen=True):
    """A machine's system info and allocatable, as they are now."""

    node_info: NodeSystemInfo
    allocatable: Quantities | None

    @classmethod
    def of(cls, node: Node) -> MachineFacts:
        """The facts that the Node object shows."""
        return cls(node.status.node_info, node.status.allocatable)

    def written(self, status: NodeStatus) -> NodeStatus:
        """The status with these facts in it."""
        if MachineFacts(status.node_info, status.allocatable) == self:
            return status
        return replace(status, node_info=self.node_info, allocatable=self.allocatable)


@dataclass(slots=True, eq=False)
class Kubelet:
    """One kubelet: whether it is alive, since when and how often it renews, when it posts next, and
    the conditions that it sees. `facts`: what it reports of its machine; None: what the Node shows.
    `renewed_before`: its Lease is there before its first renewal, which follows an earlier one.
    """

    name: str
    conditions: dict[str, NodeCondition]
    every_ns: int
    facts: MachineFacts | None = None
    alive: bool = False
    first_ns: int = 0
    post_ns: int = 0
    renewed_before: bool = False

    @classmethod
    def joined(
        cls,
        name: str,
        conditions: dict[str, NodeCondition],
        every_ns: int,
        beats: HeartbeatSchedule | None,
    ) -> Kubelet:
        """One that goes on as it was; `beats` None: it is silent."""
        kubelet = cls(name, conditions, every_ns)
        if beats is not None:
            kubelet.alive, kubelet.first_ns = True, beats.first_ns
            kubelet.every_ns, kubelet.post_ns = beats.every_ns, beats.post_ns
        return kubelet

    def last_renewal(self, now_ns: int) -> tuple[int, int] | None:
        """Between which instants the last one before this instant comes, by the present schedule;
        None: there was none. Each interval is up to 4 % longer (`JitterUntil` of the Lease's
        controller, k8s.io/component-helpers/apimachinery/lease), so that one that is close may
        not have come.
        """
        renewing_ns = now_ns - 1 - self.first_ns
        if renewing_ns < 0:
            return None
        count = renewing_ns // self.every_ns
        last_ns = self.first_ns + count * self.every_ns
        late_ns = (count + 1) * self.every_ns // 25
        may_be_missing = last_ns + late_ns >= now_ns
        return last_ns - self.every_ns * may_be_missing, min(now_ns, last_ns + late_ns)

    def copy(self) -> Kubelet:
        """A copy with the same state."""
        other = copy(self)
        other.conditions = dict(self.conditions)
        return other


def alike(a: NodeCondition, b: NodeCondition) -> bool:
    """True if they are equal, their times aside."""
    return (a.status, a.reason, a.message) == (b.status, b.reason, b.message)


def may_be_overwritten(node: Node) -> bool:
    """False if the node shows a Ready, and no condition that the monitor wrote."""
    reasons = [condition.reason for condition in node.status.conditions]
    return node.ready() is None or not SILENT_REASONS.isdisjoint(reasons)


def overwritten(seen: Mapping[str, NodeCondition], node: Node) -> bool:
    """True if the Node shows other conditions than its kubelet sees."""
    shown = {c.type: c.status for c in node.status.conditions}
    return any(shown.get(own.type) != own.status for own in seen.values())


class RunningStatuses:
    """Pods' statuses with everything running. Pods that start together share one."""

    def __init__(self) -> None:
        self._last = (PodStatus(), -1, PodStatus())

    def of(self, status: PodStatus, at_ns: int) -> PodStatus:
        """The status after `status` if the containers run from that instant on."""
        before, since_ns, after = self._last
        if since_ns == at_ns and before == status:
            return after
        now = whole_seconds(at_ns)
        conditions = {c.type: c for c in status.conditions}
        for type_ in _RUNNING_CONDITIONS:
            old = conditions.get(type_)
            if old is None or old.status != "True":
                conditions[type_] = PodCondition(
                    type=type_, status="True", last_transition_time=now
                )
        after = replace(
            status, phase="Running", conditions=tuple(conditions.values()), start_time=now
        )
        self._last = (status, at_ns, after)
        return after


class HeartbeatSchedule(msgspec.Struct, frozen=True):
    """A kubelet that is alive already at t=0, and goes on: its next renewal and the interval of
    them, and its next status post without a change; ns.
    """

    first_ns: int
    every_ns: int
    post_ns: int

    def announced(self, name: str, post_every_ns: int) -> Heartbeats:
        """The same as the controllers see it, of a kubelet that posts so often."""
        return Heartbeats(name, self.first_ns, self.every_ns, None, self.post_ns, post_every_ns)


class JoinedKubelets(Mapping[str, HeartbeatSchedule]):
    """Those that go on at t=0, by node name. `every_ns`: how often each renews; the rest of its
    schedule is made when it is asked for, in a cluster of thousands of few.
    """

    def __init__(
        self, every_ns: Mapping[str, int], schedule: Callable[[str], HeartbeatSchedule]
    ) -> None:
        self.every_ns = every_ns
        self._schedule = schedule

    def __getitem__(self, name: str) -> HeartbeatSchedule:
        if name not in self.every_ns:
            raise KeyError(name)
        return self._schedule(name)

    def __contains__(self, name: object) -> bool:
        return name in self.every_ns

    def __iter__(self) -> Iterator[str]:
        return iter(self.every_ns)

    def __len__(self) -> int:
        return len(self.every_ns)


class Ending(msgspec.Struct, frozen=True, gc=False):
    """A pod that is being stopped: which, when it will be gone, what deleted it, and whether its
    kubelet was alive then.
    """

    uid: str
    at_ns: int
    cause: Action | None
    noticed: bool


class Start(msgspec.Struct, frozen=True, gc=False):
    """A pod that is bound and does not run yet: which one, when it will run, and what made it."""

    uid: str
    at_ns: int
    cause: Action | None


def deletion_times(pod: Pod) -> tuple[int, int]:
    """(grace period, instant of the delete) in ns; the latter to the second."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return -1, -1
    grace = meta.deletion_grace_period_seconds
    grace_ns = (DEFAULT_GRACE_SECONDS if grace is None else grace) * SECOND_NS
    return grace_ns, meta.deletion_timestamp - grace_ns
