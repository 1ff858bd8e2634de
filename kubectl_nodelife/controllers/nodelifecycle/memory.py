"""The node lifecycle controller's memory between two passes. Nothing of it is persisted.

`join` fills it with what the writes of a running controller imply, so that ours goes on beside it.
There is no upstream to follow. Nodes already there are known, taints in place are done work, an
Unknown node keeps its state, and zone states are taken over without a transition. What cannot be
seen from outside (tokens, the order of the queue, the phase of the passes) starts at its most
likely value; reports give it as a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from copy import copy
from heapq import heappush
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.health import (
    LeaseDoubt,
    NodeHealth,
    Passes,
    doubt_loss,
)
from kubectl_nodelife.controllers.nodelifecycle.taints import NO_EXECUTE_TAINTS
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    Zones,
    compute_zone_state,
    eviction_rate,
)
from kubectl_nodelife.copy_on_write import fork_dict, made_later
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache, ListFailed
from kubectl_nodelife.engine.heartbeat import Heartbeat
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import Timers
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import NODE_LOST

NODE_WORKERS: Final = 8
"""Upstream's `nodeUpdateWorkerSize`: of a monitor pass, and of the queue of changed nodes."""

PHASE_HOLDS_NS: Final = 10 * MINUTE_NS
"""Passes begin up to some 10 ms late each: 1.2 s in all by then, with the default period."""


class OpenPass(msgspec.Struct):
    """A monitor pass that has begun: the nodes as they were then, new ones that it is yet to
    register, the names that it is yet to look at, in order, and the nodes of which writes are on
    their way. `ended`: all are looked at, and the zones are being judged. `held_up_from`: the node
    after which none is looked at, `""` for none at all; `only_read`: how many Leases of
    nodes that are not looked at each worker is yet to read. `owing`: the version of the Lease that
    a busy worker reads, which the watch has yet to show: it counts once the answer is there.
    `over`: names that came once their turn was over.
    """

    nodes: dict[str, Node]
    added: list[str]
    names: list[str]
    busy: set[str] = set()
    looked_at: str = ""
    taken: int = -1
    ended: bool = False
    held_up_from: str | None = None
    only_read: list[int] = []
    owing: dict[str, int] = {}
    over: set[str] = set()

    def fork(self) -> OpenPass:
        """The same for another controller."""
        return replace(
            self,
            added=list(self.added),
            names=list(self.names),
            busy=set(self.busy),
            only_read=list(self.only_read),
            owing=dict(self.owing),
            over=set(self.over),
        )

    def include(self, names: Set[str]) -> set[str]:
        """Look at these too, unless their turn is over: then the next pass does. Returns them."""
        later = names - self.over
        fresh = {name for name in later if name > self.looked_at and name in self.nodes}
        self.over |= later - fresh
        for name in fresh.difference(self.names) if fresh else ():
            heappush(self.names, name)
        return fresh


class Memory:
    """The controller's maps, by node name.

    `known`: the set of nodes registered, as first seen. `look_at`: nodes that the next pass must
    look at. `ready_cause`, `queued_cause`, `last_loss`: the actions that led to what comes next,
    for the records. `evicted_nodes`: upstream's node eviction map (classic mode of some releases);
    `evicting`: the node whose pods the loop deletes, until a write of it fails.
    `retry`: nodes of which a pod could not be marked. `unconfirmed`: nodes that a write of ours, or
    of an earlier controller, may have called lost although no answer said so: if they are,
    their pods are yet to be marked.
    `unworked`: nodes of which a taint that mirrors its state, or a label, could not be written.
    `taken_off`: (node, key) of the NoExecute taints that this pass takes off.
    `unseen_since`: when a Node object was deleted, until a pass looks at one of its name again.
    `phase_seen_ns`: when a pass of the controller that was joined was last seen to begin.
    `joined_pass_ns`: when that one begins the pass that follows a join, if that is known.
    `doubts`: the nodes that the last pass skipped, since a GET of the Lease cast doubt on their
    silence. `owed`: the version of a Lease that the watch has yet to show; no node is looked at
    before. `silent`: the nodes whose time is over. `lease_reads`: how many Leases were read, one of
    each node whose time is over in each pass.
    `slack_ns`: where signs of life without an end come sooner than in a grace period less that, no
    pass calls the node lost.
    `begins_cold`: a join must not call a node lost for silence before it (see `watch_afresh`).
    `stays_beside`: the controller that was joined goes on, and for it silence before a cold join
    (at `afresh_ns`) counts; `noticed_by_it`: when it noticed the last sign of life of each node.
    """

    def __init__(self, settings: Settings, pass_drift_ns: int = 0) -> None:
        self.zones = Zones(settings)
        self.health: dict[str, NodeHealth] = {}
        self.known: dict[str, Node] = {}
        self.passes = Passes()
        self.look_at: set[str] = set()
        self.ready_cause: dict[str, Action] = {}
        self.queued_cause: dict[str, Action] = {}
        self.last_loss: Action | None = None
        self.evicted_nodes: set[str] = set()
        self.evicting = ""
        self.gone: set[str] = set()
        self.retry: set[str] = set()
        self.unconfirmed: set[str] = set()
        self.unworked: set[str] = set()
        self.unseen_since: dict[str, int] = {}
        self.taken_off: set[tuple[str, str]] = set()
        self.doubts: dict[str, LeaseDoubt] = {}
        self.owed: int | None = None
        self.silent: set[str] = set()
        self.lease_reads = 0
        self.expiry = Timers()
        self.open_pass: OpenPass | None = None
        self.loop_zone: str | None = None
        self.drift_ns = pass_drift_ns
        self._follow(settings)
        self.begins_cold = self.stays_beside = False
        self.noticed_by_it: dict[str, int] = {}
        self.afresh_ns = 0
        self.phase_seen_ns: int | None = None
        self.joined_pass_ns: int | None = None
        profile = settings.profile
        self.leases_count = settings.leases_count
        self.decides_on_current = profile.has("decide_on_current")
        self.requeues_untainted = profile.has("requeue_untainted")
        self.retries_pods = profile.has("pod_retry")
        self.reads_leases = profile.has("lease_circuit_breaker")
        self.forgets_deleted = profile.has("health_follows_node")
        self.workers = NODE_WORKERS if profile.has("monitor_workers") else 1

    def fork(self) -> Memory:
        """Another memory of the same."""
        other = copy(self)
        other.zones = self.zones.fork()
        self.health, other.health = fork_dict(self.health, copy)
        self.known, other.known = fork_dict(self.known)
        self.ready_cause, other.ready_cause = fork_dict(self.ready_cause)
        self.queued_cause, other.queued_cause = fork_dict(self.queued_cause)
        other.passes, other.expiry = self.passes.fork(), self.expiry.fork()
        other.look_at, other.gone = set(self.look_at), set(self.gone)
        other.evicted_nodes, other.retry = set(self.evicted_nodes), set(self.retry)
        other.unworked, other.unconfirmed = set(self.unworked), set(self.unconfirmed)
        other.open_pass = self.open_pass.fork() if self.open_pass is not None else None
        other.unseen_since, other.taken_off = dict(self.unseen_since), set(self.taken_off)
        other.doubts, other.silent = dict(self.doubts), set(self.silent)
        return other

    @property
    def rests(self) -> bool:
        """True if passes have no node to look at, now or when some time is over."""
        if self.open_pass is not None:
            return False
        marked = self.look_at or self.gone or self.retry or self.unworked or self.unconfirmed
        return not (marked or self.expiry or self.zones.nodes_of_stateless())

    def is_held_up(self, cache: Cache) -> bool:
        """True if no node may be looked at, since the watch of Leases is older than a GET showed.

        Follows `EnsureReady` of pkg/controller/util/consistency/consistency.go.
        """
        if self.owed is None:
            return False
        until = cache.leases_seen_until()
        if until is not None and until < self.owed:
            return True
        self.owed = None
        return False

    def owe(self, versions: Iterable[int]) -> None:
        """Leases of these versions were read: the watch has yet to show them."""
        self.owed = max((*versions, self.owed or 0), default=0) or None

    def confirm_silence(self, node: str, health: NodeHealth, cache: Cache, now_ns: int) -> bool:
        """Read the Lease of a node whose time is over. True if the node may be called lost; if not,
        the pass skips it.
        """
        self.silent.add(node)
        if not self.reads_leases:
            return True
        self.lease_reads += 1
        doubt = doubt_loss(health, cache.read_lease(node, now_ns))
        if doubt is None:
            return True
        self.doubts[node] = doubt
        if doubt.version and self.open_pass is not None:
            self.open_pass.owing[node] = doubt.version
        self.zones.leave_out(node)
        self.look_at.add(node)
        return False

    def eviction_rate(self, state: str, size: int) -> float:
        """Nodes a second for a zone of that state and size, while not all zones are dark."""
        return eviction_rate(state, size, self.settings)

    def states_of_counts(self) -> dict[str, str]:
        """The state that each zone's nodes give it, as they are counted by now."""
        threshold = self.settings.unhealthy_zone_threshold
        counts = self.zones.counts()
        return {zone: compute_zone_state(*count, threshold) for zone, count in counts.items()}

    def passes_that_saw(self, node: str, now_ns: int) -> Passes:
        """Those in which the node was there, of which the one at `now_ns` sees it."""
        if not self.unseen_since:  # as nearly always
            return self.passes
        return self.passes.that_saw_it(self.unseen_since.pop(node, None), now_ns)

    def knows_phase(self, now_ns: int) -> bool:
        """True if passes begin when those of the controller that was joined do: its drift makes
        that unknown again after some minutes.
        """
        return self.phase_seen_ns is not None and now_ns - self.phase_seen_ns < PHASE_HOLDS_NS

    def watch_afresh(self, now_ns: int) -> None:
        """The cluster was not watched: silence of nodes that are not lost already counts from now.

        There is no upstream to follow; a controller-manager does not sleep as a laptop does.
        """
        self.noticed_by_it, self.afresh_ns = {}, now_ns
        for name, health in self.health.items():
            if health.ready is None or health.ready.status != "Unknown":
                health.probe_ns = max(health.probe_ns, now_ns)
                self.look_at.add(name)

    def noticed_ns(self, name: str, health: NodeHealth) -> int:
        """When the controller whose word counts noticed the node's last sign of life: the one that
        was joined, if it goes on, until this one has noticed another; else this one."""
        noticed_ns = self.noticed_by_it.get(name)
        if noticed_ns is None or health.probe_ns > self.afresh_ns:
            return health.probe_ns
        return noticed_ns

    def tainted_by_another(self, node: Node, now_ns: int) -> bool:
        """The controller that was joined gave the node its NoExecute taint: that is done work, and
        it cost the zone's token. False where the zone is not known yet.
        """
        queue = self.zones.queues.get(self.zones.place(node))
        if queue is None:
            return False
        queue.add(node.name, node.uid, now_ns)
        queue.remove_from_queue(node.name)
        queue.limiter.spend(now_ns)
        return True

    def change_settings(self, settings: Settings, now_ns: int) -> None:
        """Go on with other periods, rates and thresholds, and with all clocks and queues as they
        are. The profile and the gates must be the same.
        """
        self._follow(settings)
        self.zones.change_settings(settings, now_ns)
        self.look_at.update(self.health)

    def _follow(self, settings: Settings) -> None:
        self.settings = settings
        self.slack_ns = 2 * (settings.node_monitor_period_ns + self.drift_ns)


def take_over(memory: Memory, cache: Cache, now_ns: int) -> None:
    """Fill the controller's memory from the cache. What it remembers of nodes that the first pass
    need not look at is made when it is asked for.
    """
    zones, at_rest = memory.zones, dict[str, tuple[str, Node]]()
    every_ns = cache.renew_for_ever() if memory.leases_count else {}
    for name, node in sorted(cache.nodes.items()):
        memory.known[name] = node
        if _is_at_rest(memory, node, every_ns.get(name), cache):
            zone = zones.key(node)
            zones.ensure(zone)
            at_rest[name] = zone, node
            continue
        memory.look_at.add(name)
        ready = node.ready()
        zone = zones.count(node, ready)
        zones.ensure(zone)
        memory.health[name] = _health(node, cache.heartbeat(name), now_ns, memory)
        if ready is not None and memory.settings.taint_mode:
            taints = NO_EXECUTE_TAINTS.get(ready.status)
            if taints is not None and node.has_taint(taints[0].key, taints[0].effect):
                _turn_has_come(memory, zone, node, now_ns)
        elif ready is not None and ready.status != "True" and _is_evicted(name, cache):
            _turn_has_come(memory, zone, node, now_ns)
            if memory.settings.profile.has("evicted_node_map"):
                memory.evicted_nodes.add(name)
    if at_rest:
        beats = cache.heartbeats_now()

        def health_of(placed: tuple[str, Node]) -> NodeHealth:
            return _health(placed[1], beats.get(placed[1].name), now_ns, memory)

        zones.take_over(at_rest)
        memory.health = made_later(at_rest, health_of, copy, memory.health)
    _take_over_states(memory, now_ns)
    if memory.begins_cold:
        noticed = {name: health.probe_ns for name, health in memory.health.items()}
        memory.watch_afresh(now_ns)
        memory.noticed_by_it = noticed if memory.stays_beside else {}


def _is_at_rest(memory: Memory, node: Node, every_ns: int | None, cache: Cache) -> bool:
    """True if a pass finds nothing to decide about the node while it is as it is: it is Ready, has
    no taints, and its kubelet renews so often, for ever.
    """
    if every_ns is None or node.spec.taints or not node.is_ready:
        return False
    in_time = every_ns + memory.slack_ns < memory.settings.node_monitor_grace_period_ns
    return in_time and not cache.is_quarantined("Node", ("", node.name))


def _turn_has_come(memory: Memory, zone: str, node: Node, now_ns: int) -> None:
    """The zone's queue remembers the node, and does not hold it."""
    memory.zones.queues[zone].add(node.name, node.uid, now_ns)
    memory.zones.queues[zone].remove_from_queue(node.name)


def _is_evicted(name: str, cache: Cache) -> bool:
    """The classic eviction gives every pod of a node this reason, those of DaemonSets too."""
    try:
        return any(pod.status.reason == NODE_LOST for pod in cache.pods_on(name))
    except ListFailed:
        return False


def _health(node: Node, heartbeat: Heartbeat | None, now_ns: int, memory: Memory) -> NodeHealth:
    """The entry that a controller which saw every heartbeat in time would hold, if one of its
    passes began now, or then when it is known to begin.
    """
    period_ns = memory.settings.node_monitor_period_ns
    ready = node.ready()
    created = int(node.metadata.creation_timestamp or 0)
    pass_ns = now_ns if memory.joined_pass_ns is None else memory.joined_pass_ns
    if ready is None:
        return NodeHealth(None, created, created)
    renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
    transition = int(ready.last_transition_time or created)
    posted = ready.last_heartbeat_time
    probe = created if posted is None else int(posted)
    if not memory.leases_count:
        return NodeHealth(ready, _noticed_ns(probe, pass_ns, period_ns), transition)
    if renewal is None:
        # Without a lease nothing says how old the last sign of life is: it may be this moment's.
        return NodeHealth(ready, now_ns, transition)
    renew_ns = renewal[0]
    if renew_ns is not None:
        renewed = min(renew_ns, now_ns)
        probe = renewed if posted is None else max(probe, renewed)
    probe = _noticed_ns(probe, pass_ns, period_ns)
    version = heartbeat.version(now_ns) if heartbeat is not None else 0
    looked_ns = max(int(posted or 0), transition if ready.status == "Unknown" else 0)
    if heartbeat is not None and (heartbeat.touched_ns or 0) > looked_ns:
        version = heartbeat.renewal_version(now_ns)
    return NodeHealth(ready, probe, transition, True, renew_ns, version)


def _noticed_ns(sign_ns: int, pass_ns: int, period_ns: int) -> int:
    """When the first pass begins that notices a sign of life: periods before `pass_ns`, or then."""
    return pass_ns - max(0, pass_ns - sign_ns) // period_ns * period_ns


def _take_over_states(memory: Memory, now_ns: int) -> None:
    """Zone states as the conditions show them, limiters to match."""
    zones = memory.zones
    counts, states = zones.counts(), memory.states_of_counts()
    dark = bool(states) and all(state == FULL for state in states.values())
    for zone, state in states.items():
        zones.states[zone] = state
        rate = 0.0 if dark else memory.eviction_rate(state, sum(counts[zone]))
        zones.queues[zone].swap_limiter(rate, now_ns)
