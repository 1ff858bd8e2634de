"""Remembers a node's signs of life, and says when the controller calls the node lost.

Follows `tryUpdateNodeHealth` of pkg/controller/nodelifecycle/node_lifecycle_controller.go. Upstream
looks at every node in every pass. Here a node is looked at when it changed or when its time could
be over, and the passes between two looks are folded: what they would have remembered follows from
when the heartbeats came. The naive model in the tests, full passes one by one, is the judge of
that.

Since 1.37 the controller reads the Lease from the API server before it calls a node lost (gate
NodeControllerLeaseCircuitBreaker), and leaves the node as it is where the answer is an error, or
another version than that of the renewal that it remembers. It compares for inequality, not for age:
a write to the Lease of a silent kubelet by any other client keeps the node for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import NOT_FOUND, OK
from kubectl_nodelife.engine.heartbeat import Heartbeat
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import NODE_STATUS_NEVER_UPDATED, NODE_STATUS_UNKNOWN

# What a silent kubelet's node gets as Unknown; NetworkUnavailable is not the kubelet's.
CONDITIONS_OF_A_KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
NEVER_UPDATED = (NODE_STATUS_NEVER_UPDATED, "Kubelet never posted node status.")
STOPPED = (NODE_STATUS_UNKNOWN, "Kubelet stopped posting node status.")


class Passes:
    """When the monitor passes began, in ns, oldest first; a day of them is kept."""

    _KEPT = 40_000

    def __init__(self) -> None:
        self._times: list[int] = []

    def fork(self) -> Passes:
        """The same passes, to which others may be added."""
        other = Passes()
        other._times = list(self._times)
        return other

    def begin(self, now_ns: int) -> None:
        """Another pass begins now."""
        self._times.append(now_ns)
        if len(self._times) > self._KEPT:
            del self._times[: self._KEPT // 2]

    def leave_out_last(self) -> None:
        """The last pass looked at no node."""
        self._times.pop()

    def that_saw_it(self, unseen_since_ns: int | None, now_ns: int) -> Passes:
        """The passes without those between the deletion of a Node object and the one at `now_ns`,
        which sees it again; all of them where it was not deleted.
        """
        if unseen_since_ns is None:
            return self
        other = Passes()
        other._times = [*self._times[: bisect_left(self._times, unseen_since_ns)], now_ns]
        return other

    def at_or_after(self, instant_ns: int, now_ns: int) -> int:
        """The first pass at or after the instant; `now_ns` where there is none."""
        i = bisect_left(self._times, instant_ns)
        return self._times[i] if i < len(self._times) else now_ns

    def after(self, pass_ns: int) -> int | None:
        """The pass that followed the one at `pass_ns`, or None."""
        i = bisect_right(self._times, pass_ns)
        return self._times[i] if i < len(self._times) else None

    def before(self, pass_ns: int) -> int | None:
        """The pass that came before the one at `pass_ns`, or None."""
        i = bisect_left(self._times, pass_ns)
        return self._times[i - 1] if i else None


def lost_after_ns(grace_ns: int, period_ns: int) -> int:
    """From the pass that noticed the last sign of life to the pass that calls the node lost.

    Whole periods: passes drift by some milliseconds each, so that a grace period of exactly so many
    is over in the last of them.
    """
    return -(-grace_ns // period_ns) * period_ns


class NodeHealth(msgspec.Struct):
    """The memory of one node: upstream's nodeHealthData, of whose status only Ready is ever read.

    `probe_ns`: the pass that noticed the last sign of life. `lease_saved`: whether a Lease is
    remembered; `lease_renew_ns` its renewTime, None where it has none; `lease_version` its
    version (`Heartbeat.version`). `posted_uid`: of the Node object of which a pass wrote the status
    last; the name may be another one's since.
    """

    ready: NodeCondition | None
    probe_ns: int
    ready_transition_ns: int
    lease_saved: bool = False
    lease_renew_ns: int | None = None
    lease_version: int = 0
    posts_until_ns: int = 0
    posted_uid: str = ""


class HealthUpdate(msgspec.Struct):
    """The findings of one look at a node.

    `observed`: Ready before this pass, a made-up Unknown where the node has none; `current`: Ready
    after it, None where there still is none. `write`: conditions to post, if any. `look_again`: the
    next pass must look whatever happens. `expires_ns`: the node is lost once a pass begins after
    that, None where nothing more can expire. `expired`: its time is over.
    """

    observed: NodeCondition
    current: NodeCondition | None
    write: tuple[NodeCondition, ...]
    look_again: bool
    expires_ns: int | None
    silent_ns: int
    grace_ns: int
    expired: bool


class LeaseDoubt(msgspec.Struct, frozen=True):
    """Why a node whose time is over is not called lost: what a GET of its Lease answered.

    `code`: the HTTP status code of the answer (`NO_ANSWER`: none came). `version`: that of the live
    Lease, where there was one; it is not the one that is remembered.
    """

    code: int
    version: int = 0


def doubt_loss(health: NodeHealth, answer: tuple[int, int]) -> LeaseDoubt | None:
    """Step D of 1.37 and later: None where the GET's `answer`, (code, version), leaves no doubt."""
    code, version = answer
    if code == NOT_FOUND:
        return None
    if code != OK:
        return LeaseDoubt(code)
    remembered = health.lease_version if health.lease_saved else 0
    return LeaseDoubt(code, version) if version != remembered else None


def update_node_health(
    node: Node,
    health: NodeHealth | None,
    heartbeat: Heartbeat | None,
    passes: Passes,
    now_ns: int,
    grace_ns: int,
    startup_grace_ns: int,
    *,
    leases_count: bool = True,
) -> tuple[NodeHealth, HealthUpdate]:
    """Look at one node in the pass that began at `now_ns`: steps A to E of `tryUpdateNodeHealth`.

    `leases_count` False: the gate NodeLease is off, so that only status posts are signs of life.
    `passes`: those in which the node was there (`that_saw_it`).
    Changes `health` in place, or makes one.
    """
    created = node.metadata.creation_timestamp or Time(0)
    ready = node.ready()
    observed = ready
    if observed is None:
        observed = NodeCondition("Ready", "Unknown", "", "", created, created)
        grace_ns = startup_grace_ns
        if health is None:
            health = NodeHealth(None, created, created)
        else:
            health.ready = None
    saved_lease = health is not None and health.lease_saved
    health, dropped = _compare_status(ready, health, now_ns)
    look_again = False
    if leases_count:
        noticed = _fold_status_posts(health, heartbeat, passes, now_ns)
        dropped = dropped or noticed == now_ns
        # The pass before dropped the lease, and saw no new one: this one takes it for new.
        saved_lease = saved_lease and (noticed is None or passes.after(noticed) != now_ns)
        look_again = _take_lease(health, heartbeat, passes, now_ns, saved_lease, dropped)
    else:
        _take_status_post(health, heartbeat, passes, now_ns)
    expired = now_ns > health.probe_ns + grace_ns
    write: tuple[NodeCondition, ...] = ()
    current = ready
    expires = None if expired else health.probe_ns + grace_ns
    if expired:
        lost = _lost_conditions(node, created, now_ns)
        current = next((c for c in lost if c.type == "Ready"), ready)
        write = lost if current != observed else ()
    verdict = HealthUpdate(
        observed, current, write, look_again, expires, now_ns - health.probe_ns, grace_ns, expired
    )
    return health, verdict


def posted(
    health: NodeHealth,
    node: Node,
    current: NodeCondition | None,
    heartbeat: Heartbeat | None,
    now_ns: int,
) -> None:
    """The conditions were written: remember what a successful UpdateStatus leaves behind, with the
    Lease as it is seen now.
    """
    if health.lease_saved and heartbeat is not None:
        health.lease_version = heartbeat.version(now_ns)
    health.ready = current
    health.posted_uid = node.uid
    health.ready_transition_ns = now_ns


def _compare_status(
    ready: NodeCondition | None, health: NodeHealth | None, now_ns: int
) -> tuple[NodeHealth, bool]:
    """Step B. The entry, and whether the remembered lease was dropped with it."""
    if health is None:
        return NodeHealth(ready, now_ns, now_ns), True
    saved = health.ready
    if ready is None:
        return health, False
    if saved is not None and saved.last_heartbeat_time == ready.last_heartbeat_time:
        return health, False
    if saved is None or saved.last_transition_time != ready.last_transition_time:
        health.ready_transition_ns = now_ns
    health.ready = ready
    health.probe_ns = now_ns
    health.lease_saved = False
    return health, True


def _new_post(health: NodeHealth, heartbeat: Heartbeat | None, now_ns: int) -> int | None:
    """When the newest scheduled status post came, if no look has taken it in; None: there is none.

    From then on it is taken in.
    """
    post = heartbeat.status_post(now_ns) if heartbeat is not None else None
    if post is None or post <= health.posts_until_ns:
        return None
    health.posts_until_ns = post
    return post


def _take_status_post(
    health: NodeHealth, heartbeat: Heartbeat | None, passes: Passes, now_ns: int
) -> None:
    """Status posts that come on schedule, where they are the only signs of life."""
    post = _new_post(health, heartbeat, now_ns)
    if post is not None:
        health.probe_ns = max(health.probe_ns, passes.at_or_after(post, now_ns))


def _fold_status_posts(
    health: NodeHealth, heartbeat: Heartbeat | None, passes: Passes, now_ns: int
) -> int | None:
    """Status posts that come on schedule.

    The pass that noticed the newest, dropped the lease and saw no new one; None: there is none.
    """
    post = _new_post(health, heartbeat, now_ns)
    if post is None:
        return None
    noticed = passes.at_or_after(post, now_ns)
    health.probe_ns = max(health.probe_ns, noticed)
    if noticed == now_ns:
        health.lease_saved = False
        return noticed
    # That pass dropped the lease; unless it saw a new one too, the next took it for a sign of life.
    renewal = heartbeat.renewal(noticed) if heartbeat is not None else None
    before = passes.before(noticed)
    advanced = renewal is not None and (before is None or renewal[1] > before)
    if advanced:
        return None
    refreshed = passes.after(noticed)
    if renewal is not None and refreshed is not None:
        health.probe_ns = max(health.probe_ns, refreshed)
    return noticed


def _take_lease(
    health: NodeHealth,
    heartbeat: Heartbeat | None,
    passes: Passes,
    now_ns: int,
    saved_lease: bool,
    dropped: bool,
) -> bool:
    """Step C. True where a lease is there but not remembered: the next pass takes it for new."""
    if heartbeat is not None:
        _take_deleted_leases(health, heartbeat, passes, now_ns)
    renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
    if heartbeat is None or renewal is None:
        return False
    renew_ns, seen_ns = renewal
    if not saved_lease:
        health.lease_saved, health.lease_renew_ns = True, renew_ns
        health.lease_version = heartbeat.version(now_ns)
        health.probe_ns = now_ns
        return False
    later = renew_ns is not None and (
        health.lease_renew_ns is None or health.lease_renew_ns < renew_ns
    )
    noticed = passes.at_or_after(seen_ns, now_ns)
    if later and not (dropped and noticed < now_ns):
        health.lease_saved, health.lease_renew_ns = True, renew_ns
        health.lease_version = heartbeat.version(noticed)
        health.probe_ns = max(health.probe_ns, noticed)
    elif later:
        health.lease_renew_ns = renew_ns
    return not health.lease_saved


def _take_deleted_leases(
    health: NodeHealth, heartbeat: Heartbeat, passes: Passes, now_ns: int
) -> None:
    """What passes saw of Leases before they were deleted, since the last look."""
    if heartbeat.before is None or not health.lease_saved:
        return
    gone: list[tuple[Heartbeat, int]] = []
    while heartbeat.before is not None:
        gone.append((heartbeat.before, heartbeat.deleted_ns))
        heartbeat = heartbeat.before
    for before, deleted_ns in reversed(gone):
        last_ns = passes.before(deleted_ns + 1)
        renewal = before.renewal(last_ns) if last_ns is not None else None
        if last_ns is None or renewal is None:
            continue
        renew_ns, seen_ns = renewal
        if renew_ns is not None and (health.lease_renew_ns or 0) < renew_ns:
            noticed = min(passes.at_or_after(seen_ns, now_ns), last_ns)
            health.lease_renew_ns, health.lease_version = renew_ns, before.version(noticed)
            health.probe_ns = max(health.probe_ns, noticed)


def _lost_conditions(node: Node, created: Time, now_ns: int) -> tuple[NodeCondition, ...]:
    """Step E: the conditions of a lost node that are not Unknown yet, as Unknown."""
    now = whole_seconds(now_ns)
    lost = []
    for type_ in CONDITIONS_OF_A_KUBELET:
        present = node.status.condition(type_)
        if present is None:
            reason, message = NEVER_UPDATED
            lost.append(NodeCondition(type_, "Unknown", reason, message, created, now))
        elif present.status != "Unknown":
            reason, message = STOPPED
            lost.append(
                replace(
                    present,
                    status="Unknown",
                    reason=reason,
                    message=message,
                    last_transition_time=now,
                )
            )
    return tuple(lost)
