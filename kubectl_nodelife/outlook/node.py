"""One node's outlook: age of its heartbeats, time until it is Unknown, tainted, its pods deleted.

All numbers come from the controllers' memory, which copies of the running controllers get from what
these wrote to the cluster (`join_controllers`); nothing is simulated. Some are ranges: a pass comes
at most one period after a grace period is over, and a token at most 1/rate after the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth, lost_after_ns
from kubectl_nodelife.controllers.nodelifecycle.zones import is_excluded
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.heartbeat import sign_of_life
from kubectl_nodelife.engine.pace import FASTER_QPS, pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Lease, Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import (
    NAMESPACE_NODE_LEASE,
    SILENT_REASONS,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_UNREACHABLE,
    UNKNOWN,
)
from kubectl_nodelife.outlook import taint_turns
from kubectl_nodelife.outlook.eviction_forecast import (
    PACED_NS,
    ClassicEviction,
    EvictionForecast,
    EvictionTimer,
    PacedDeletions,
    Range,
    classic_eviction,
    clock_time,
    eviction_due,
    eviction_forecast,
    paced_deletions,
)
from kubectl_nodelife.outlook.taint_turns import Foretold, TaintQueuePosition, ZoneAfterLoss

CLOCKS_APART_NS: Final = 20 * SECOND_NS
"""Clocks that are right differ by the interval of their signs, 10 s, and by a list's duration."""

OVERDUE_NS: Final = 10 * SECOND_NS
"""So long after its time a write may come without being called overdue: objects of one look are
read one kind after another."""

LOST_NODE_TAINTS: Final = (TAINT_NODE_UNREACHABLE, TAINT_NODE_NOT_READY)


class PodsOn(Sequence[Pod]):
    """The pods on a node, fetched when they are asked for: a line of status only counts them."""

    __slots__ = ("_cache", "_node", "_pods")

    def __init__(self, cache: Cache, node: str) -> None:
        self._cache = cache
        self._node = node
        self._pods: list[Pod] | None = None

    def __len__(self) -> int:
        return self._cache.count_on(self._node) if self._pods is None else len(self._pods)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._fetched())

    def __getitem__(self, index: Any) -> Any:
        return self._fetched()[index]

    def _fetched(self) -> list[Pod]:
        if self._pods is None:
            self._pods = self._cache.pods_on(self._node)
        return self._pods


_BROKEN: Final = {
    "container runtime network not ready": "the network plugin (CNI)",
    "CSINode": "storage (CSI): the kubelet cannot register the node's drivers",
    "container runtime not ready": "the container runtime (CRI)",
    "container runtime is down": "the container runtime (CRI)",
    "container runtime status check": "the container runtime (CRI)",
    "PLEG is not healthy": "the container runtime (CRI), which lists its containers too slowly",
    "node is shutting down": "nothing: the machine is being shut down",
}
"""What the kubelet writes of a part that is not ready, and which part that is."""


class NodeOutlook(msgspec.Struct, frozen=True):
    """One node's state and its foreseeable future.

    `kept`: why the controller does not call it lost however long it is silent, "" where it does.

    `lease_age_ns`, `status_age_ns`: None where no such heartbeat was read. `leases_count`: whether
    the Lease is a sign of life, or status posts alone (gate NodeLease off). `unknown_in`: until
    Ready becomes Unknown if no heartbeat comes; None where that is not known or cannot happen any
    more. `late`: its next sign of life should have come. `first_look`: it was not watched before,
    so that its age alone proves nothing. `untaint_in`: until a monitor pass takes `lost_taints` off
    a node that is Ready again; None where there are none. `exchange_in`: until a pass exchanges
    `other_taint` for the one of the status that the node has now.
    `classic`: where pods are evicted without taints; else None. `doubt`: why nothing can be said of
    its age, "" where something can. `taint_overdue_ns`: since when it should have its NoExecute
    taint, in ns since the epoch; None where it is not late. `pass_overdue_ns`: since when a pass
    should have taken `lost_taints` off or exchanged `other_taint`, where that is late. `overdue`:
    pods that should have been deleted, the first one first. `qps`: how many requests a second
    taint-eviction makes, 0 where that has no limit; `sooner_ns`: when its last pod is gone at the
    pace that people set, None where the flag was seen.
    """

    node: Node
    zone: str
    ready: str
    reason: str
    lease_age_ns: int | None
    status_age_ns: int | None
    grace_ns: int
    unknown_in: Range | None
    queued: TaintQueuePosition | None
    pods: Sequence[Pod]
    timers: list[EvictionTimer]
    late: bool = False
    first_look: bool = False
    leases_count: bool = True
    classic: ClassicEviction | None = None
    untaint_in: Range | None = None
    exchange_in: Range | None = None
    doubt: str = ""
    renewed_ns: int | None = None
    taint_overdue_ns: int | None = None
    pass_overdue_ns: int | None = None
    overdue: Sequence[EvictionTimer] = ()
    kept: str = ""
    qps: float = 0.0
    sooner_ns: int | None = None

    @property
    def unseen(self) -> str:
        """By when its last pod is gone if the clients are faster than the default, which is assumed
        since the flag was not seen; "" where it was."""
        if self.sooner_ns is None:
            return ""
        return f"; not seen: at {FASTER_QPS:g} by {clock_time(self.sooner_ns)}"

    @property
    def leaving(self) -> str:
        """Between when and when its pods go, where many go at the pace of a client; else ""."""
        if not self.timers or not self.qps:
            return ""
        first_ns = min(timer.comes_ns for timer in self.timers)
        last_ns = max(timer.comes_ns for timer in self.timers)
        if last_ns - max(timer.due_ns for timer in self.timers) < PACED_NS:
            return ""
        count = len(self.timers)
        pods = f"its {count} pods leave" if count > 1 else "its pod leaves"
        begin, end = clock_time(first_ns), clock_time(last_ns)
        when = f"between {begin} and {end}" if begin != end else f"at {begin}"
        return f"{pods} {when} ({self.qps:g} requests a second{self.unseen})"

    @property
    def other_taint(self) -> str:
        """The key of the NoExecute taint of a status that the node no longer has, where it lacks
        that of the present one; "" for none. Follows `processTaintBaseEviction`.
        """
        keys = {t.key for t in no_execute_taints(self.node.spec.taints)}
        present = TAINT_NODE_UNREACHABLE if self.ready == "Unknown" else TAINT_NODE_NOT_READY
        other = TAINT_NODE_NOT_READY if self.ready == "Unknown" else TAINT_NODE_UNREACHABLE
        return other if other in keys and present not in keys else ""

    @property
    def lost_taints(self) -> list[Taint]:
        """Those of a lost node that it has, as `markNodeAsReachable` removes them one by one."""
        taints = {t.key: t for t in no_execute_taints(self.node.spec.taints)}
        return [taints[key] for key in LOST_NODE_TAINTS if key in taints]

    @property
    def message(self) -> str:
        """The message of the kubelet of a node that is not ready: it names CRI, CNI or CSI.

        "" for what the controller itself writes of a silent one. Text of the cluster: the caller
        must make it safe before it is shown.
        """
        ready = self.node.ready()
        if ready is None or ready.status == "True" or ready.reason in SILENT_REASONS:
            return ""
        return ready.message

    @property
    def broken(self) -> list[str]:
        """The parts of a node that is not ready which its kubelet's message is about. Follows
        `ReadyCondition` (pkg/kubelet/nodestatus/setters.go) and `runtimeState` (runtime.go there).
        """
        return list(dict.fromkeys(part for word, part in _BROKEN.items() if word in self.message))

    @property
    def sign_age_ns(self) -> int | None:
        """How old the last sign of life is; None where that was not read."""
        return self.lease_age_ns if self.leases_count else self.status_age_ns

    def clock_ahead_ns(self, now_ns: int) -> int:
        """How far its signs lie beyond this moment: its clock, by which it dates them, is ahead.

        0 where that is no more than lists read one after another explain.
        """
        if self.lease_age_ns and self.status_age_ns:  # both lie behind
            return 0
        ready = self.node.ready()
        posted = ready.last_heartbeat_time if ready is not None else None
        newest = max(self.renewed_ns or 0, int(posted or 0))
        return newest - now_ns if newest - now_ns > CLOCKS_APART_NS else 0

    @property
    def last_sign(self) -> str:
        """The kind of its last sign of life, in words that a time follows."""
        return "its lease was last renewed" if self.leases_count else "its status was last posted"

    def next_eviction_in(self, now_ns: int) -> int | None:
        """How long, in ns, until the first of its pods is deleted; None: that is not foreseen."""
        if self.timers:
            return max(0, self.timers[0].comes_ns - now_ns)
        if self.classic is None or self.classic.first_to_go is None:
            return None
        turn = self.classic.left if self.queued is None else self.queued.turn
        return None if turn is None else turn.middle_ns


@dataclass(eq=False)
class Outlook:
    """Answers about nodes and zones at one instant.

    `first_look`: the cluster was not watched before this instant. `doubts`: node -> why its age is
    unknown. `last_foretold`: what was read off a play not long ago. `plays`: the present may be
    played for an answer, since nothing waits meanwhile, as a daemon's loop would.
    """

    cache: Cache
    settings: Settings
    lifecycle: NodeLifecycleController
    eviction: TaintEvictionController | None
    now_ns: int
    first_look: bool = False
    doubts: Mapping[str, str] = field(default_factory=dict)
    last_foretold: Foretold | None = None
    plays: bool = False

    def __post_init__(self) -> None:
        self.memory = self.lifecycle.memory
        self.zone_of = self.memory.zones.key
        self._next_pass_ns = self.lifecycle.next_pass_ns
        self._pace = pace_of(self.settings)
        self._late: dict[tuple[str, int], bool] = {}
        self._places = {
            name: (zone, *places)
            for zone, queue in self.memory.zones.queues.items()
            for name, places in taint_turns.places_in(queue, self.memory)
        }

    @property
    def next_pass_ns(self) -> int | None:
        """When the running controller begins its next monitor pass, in ns since the epoch, after
        now; None: a daemon must have seen one begin, not long ago."""
        if self._next_pass_ns is None or not self.memory.knows_phase(self.now_ns):
            return None
        period_ns = self.settings.node_monitor_period_ns
        return self.now_ns + ((self._next_pass_ns - self.now_ns) % period_ns or period_ns)

    @cached_property
    def foretold(self) -> Foretold | None:
        """What the controller does next, read off a play; None where no zone's state changes by it,
        where it cannot be played, or where a daemon has not played it yet."""
        if not self.plays:
            return self.last_foretold
        return self.foretell() if self.a_zone_may_change(*self._losses) else None

    @cached_property
    def zone_counts(self) -> Mapping[str, tuple[int, int]]:
        """(ready, not ready) nodes of each zone, by key, with those lost since the last pass."""
        return self.memory.zones.counts_with(map(self.cache.nodes.get, self.memory.look_at))

    @cached_property
    def _losses(self) -> tuple[Counter[str], Counter[str]]:
        """How many nodes are silent, and how many come back, by zone key."""
        nodes = self.cache.nodes.values()
        silent, back = filter(self.is_silent, nodes), filter(self.comes_back, nodes)
        return Counter(map(self.zone_of, silent)), Counter(map(self.zone_of, back))

    def is_silent(self, node: Node) -> bool:
        """True if it counts as ready in its zone, and its next sign of life should have come."""
        return node.is_ready and self._is_late(node) and not is_excluded(node, self.settings)

    def comes_back(self, node: Node) -> bool:
        """True if it counts as lost in its zone though its kubelet renews, and so posts it soon."""
        ready = node.ready()
        if (ready is not None and ready.status != UNKNOWN) or is_excluded(node, self.settings):
            return False
        sign = sign_of_life(node, self.cache, self.now_ns, self.settings.leases_count)
        return sign.at_ns is not None and not sign.is_late(self.now_ns)

    def a_zone_may_change(self, silent: Mapping[str, int], coming_back: Mapping[str, int]) -> bool:
        """True if one changes state as these are lost and back, in whatever order."""
        return bool(self._zones_change(silent, {}) or self._zones_change({}, coming_back))

    def _zones_change(
        self, silent: Mapping[str, int], coming_back: Mapping[str, int]
    ) -> dict[str, ZoneAfterLoss]:
        """The zones that change state once so many of their nodes, by key, are lost and back."""
        states, counts = self.memory.zones.states, self.zone_counts
        losses = {key: silent.get(key, 0) - coming_back.get(key, 0) for key in counts}
        after = taint_turns.zones_after(self.memory, self.settings, counts, losses)
        return {key: each for key, each in after.items() if each.state != states.get(key)}

    def foretell(self, falls_silent: Node | None = None) -> Foretold | None:
        """A play of the present, in which that node reports no more. Returns as `foretell` does."""
        from kubectl_nodelife.outlook.foretelling import foretell  # plays are loaded where needed

        silent, back = self._losses
        return foretell(
            *(self.cache, self.settings, self.now_ns, self.zone_of, silent, self._is_late),
            *(self._zones_change(silent, back), self.next_pass_ns, falls_silent),
        )

    def node(self, node: Node) -> NodeOutlook:
        """The outlook of one node of the cache."""
        ready = node.ready()
        counts = self.settings.leases_count
        renewal = self._renewal(node.name)
        renew_ns = renewal[0] if renewal is not None else None
        posted = ready.last_heartbeat_time if ready is not None else None
        sign = sign_of_life(node, self.cache, self.now_ns, counts)
        grace_ns = self.settings.node_startup_grace_period_ns
        if ready is not None:
            grace_ns = self.settings.node_monitor_grace_period_ns
        kept = self._kept(node.name)
        of_node = NodeOutlook(
            node=node,
            zone=self.memory.zones.key(node),
            ready=ready.status if ready is not None else "",
            reason=ready.reason if ready is not None else "",
            lease_age_ns=None if renew_ns is None else max(0, self.now_ns - renew_ns),
            status_age_ns=None if posted is None else max(0, self.now_ns - posted),
            grace_ns=grace_ns,
            unknown_in=None if kept else self._unknown_in(node, sign.at_ns, grace_ns),
            kept=kept,
            queued=self._queued(node.name),
            pods=PodsOn(self.cache, node.name),
            timers=self.timers(node),
            late=self._is_late(node),
            first_look=self.first_look,
            leases_count=counts,
            doubt=self.doubts.get(node.name, ""),
            renewed_ns=renew_ns,
            taint_overdue_ns=self._taint_overdue(node.name),
            overdue=self._deletions.overdue.get(node.name, ()) if node.spec.taints else (),
            qps=self._pace.qps if self._pace is not None else 0.0,
            sooner_ns=self._deletions.sooner.get(node.name) if node.spec.taints else None,
            classic=None if self.settings.taint_mode else self._classic(node, ready, sign.at_ns),
        )
        if of_node.classic is not None:
            return of_node
        period_ns = self.settings.node_monitor_period_ns
        late_ns = taint_turns.pass_overdue(node, period_ns, self.now_ns)
        within = Range(0, period_ns) if late_ns is None else None
        if of_node.ready == "True" and of_node.lost_taints:
            return replace(of_node, untaint_in=within, pass_overdue_ns=late_ns)
        if of_node.ready in ("Unknown", "False") and of_node.other_taint:
            return replace(of_node, exchange_in=within, pass_overdue_ns=late_ns)
        return of_node

    def _renewal(self, node: str) -> tuple[int | None, int] | None:
        heartbeat = self.cache.heartbeat(node)
        return heartbeat.renewal(self.now_ns) if heartbeat is not None else None

    def forecast(self, pod: Pod, taints: Sequence[Taint]) -> EvictionForecast:
        """When these NoExecute taints delete the pod, if ever, by the gates of the cluster."""
        operators = self.settings.gate("TaintTolerationComparisonOperators")
        return eviction_forecast(pod, taints, comparison_operators=operators)

    @cached_property
    def taints_due(self) -> Sequence[tuple[Node, int]]:
        """Nodes that wait for their NoExecute taints, and when each one's is or was due, ns since
        the epoch; none where pods are evicted without taints."""
        taints = self.settings.taint_mode
        return list(taint_turns.taints_due(self.cache, self.memory)) if taints else ()

    def _taint_overdue(self, name: str) -> int | None:
        """When the turn of a node that waits for its taint was; None where it is not long over."""
        turns = self.taints_due if name in self._places else ()
        late = (at_ns for node, at_ns in turns if node.name == name)
        return next((at for at in late if self.now_ns - at >= taint_turns.TAINT_OVERDUE_NS), None)

    def _overdue_pods(self, node: Node) -> list[EvictionTimer]:
        taints = no_execute_taints(node.spec.taints)
        back = node.is_ready and any(t.key in LOST_NODE_TAINTS for t in taints)
        if self.eviction is None or not taints or back:  # node-lifecycle takes these off
            return []
        pending = {w.key for w in self.eviction.pending(node.name)}
        overdue = []
        for pod in self.cache.pods_on(node.name):
            leaves = pod.metadata.deletion_timestamp is not None
            if pod.key in pending or leaves or pod.status.phase in TERMINAL_PHASES:
                continue
            forecast = self.forecast(pod, taints)
            due_ns = eviction_due(taints, forecast)
            if due_ns is None and forecast.after_seconds == 0:
                due_ns = self.now_ns  # since when is not known
            if due_ns is not None and due_ns <= self.now_ns:
                overdue.append(EvictionTimer(*pod.key, due_ns, 0, due_ns))
        return sorted(overdue, key=lambda t: (t.due_ns, t.namespace, t.name))

    @cached_property
    def _deletions(self) -> PacedDeletions:
        """The pods of all tainted nodes: all go through one client."""
        nodes = [n for n in self.cache.nodes.values() if no_execute_taints(n.spec.taints)]
        timers = {node.name: self._pending(node) for node in nodes}
        overdue = {node.name: self._overdue_pods(node) for node in nodes}
        return paced_deletions(timers, overdue, self.cache, self._pace, self.now_ns)

    @cached_property
    def _pass_ns(self) -> int:
        """How long the pass takes that finds the silent nodes lost, of which it has written to some
        perhaps: until it ends those left are not overdue."""
        if self._pace is None:
            return 0
        lost = [n for n in self.cache.nodes.values() if not n.is_ready or self._is_late(n)]
        pods = sum(self.cache.count_on(node.name) for node in lost)
        since_ns = self.now_ns - self._pace.pass_ns(len(lost), pods)
        lost = [node for node in lost if node.is_ready or taint_turns.ready_since(node) >= since_ns]
        if len(lost) <= self._pace.workers:
            return 0
        return self._pace.pass_ns(len(lost), sum(self.cache.count_on(n.name) for n in lost))

    def _kept(self, name: str) -> str:
        """Since 1.37: the Lease is not the one that the controller remembers (`doubt_loss`)."""
        heartbeat, health = self.cache.heartbeat(name), self.memory.health.get(name)
        touched_ns = heartbeat.touched_ns if heartbeat is not None else None
        if heartbeat is None or not touched_ns or not self.memory.reads_leases:
            return ""
        if health is None or not health.lease_saved:
            return ""
        if health.lease_version == heartbeat.version(self.now_ns):
            return ""
        lease = self.cache.get("Lease", (NAMESPACE_NODE_LEASE, name))
        write = lease.touched() if isinstance(lease, Lease) else None
        by = write.manager if write is not None and write.manager else "another client"
        release = self.settings.profile.name.removeprefix("v")
        return (
            f"its Lease was changed by {by} at {format_time(touched_ns)}: kube-controller-manager "
            f"{release} does not call it lost before it renews, the Lease is deleted, or the "
            f"manager restarts"
        )

    def _unknown_in(self, node: Node, sign_ns: int | None, grace_ns: int) -> Range | None:
        """`sign_ns`: the last sign of life, None where none was read."""
        ready = node.ready()
        health = self.memory.health.get(node.name)
        is_unknown = ready is not None and (ready.status == "Unknown" or sign_ns is None)
        if health is None or is_unknown:
            return None
        period_ns = self.settings.node_monitor_period_ns
        phase_known = self.memory.knows_phase(self.now_ns)
        noticed_ns = self._probe_ns(node.name, health)
        if ready is None:
            low_ns = noticed_ns + grace_ns  # of its creation, which no pass had to notice
        else:
            dated_ns, last_sign_ns = max(sign_ns or 0, ready.last_heartbeat_time or 0), noticed_ns
            if not phase_known:
                last_sign_ns = self._last_sign_ns(node.name, noticed_ns, dated_ns)
            low_ns = last_sign_ns + lost_after_ns(grace_ns, period_ns)
        high_ns = low_ns if phase_known and ready is not None else low_ns + period_ns
        if self._is_late(node):
            high_ns += self._pass_ns
        return Range(max(0, low_ns - self.now_ns), max(0, high_ns - self.now_ns))

    def _last_sign_ns(self, name: str, noticed_ns: int, sign_ns: int) -> int:
        """When the last sign of life came, which a pass of ours noticed then: that of a controller
        whose passes we do not know did within a period of it. `sign_ns`: as its author dates it,
        which is taken where its arrival was not seen."""
        renewal = self._renewal(name) if self.settings.leases_count else None
        came_ns = renewal[1] if renewal is not None and renewal[1] < noticed_ns else sign_ns
        is_that = 0 < noticed_ns - came_ns < self.settings.node_monitor_period_ns
        return came_ns if is_that else noticed_ns

    def _classic(
        self, node: Node, ready: NodeCondition | None, sign_ns: int | None
    ) -> ClassicEviction:
        """`sign_ns`: the last sign of life, None where none was read."""
        health = self.memory.health.get(node.name)
        queue = self.memory.zones.queues.get(self.memory.zones.key(node))
        has_sign = sign_ns is not None or ready is None
        probe_ns = self._probe_ns(node.name, health) if health is not None and has_sign else None
        seen = (health, probe_ns, queue, self.cache)
        return classic_eviction(node, *seen, self.settings, self.now_ns)

    def _probe_ns(self, name: str, health: NodeHealth) -> int:
        """When a pass noticed the last sign of life, or will: the memory of a node is brought up to
        date only when its grace period could be over."""
        noticed_ns = self.memory.noticed_ns(name, health)
        renewal = self._renewal(name) if self.settings.leases_count else None
        if renewal is None:
            return noticed_ns
        renew_ns, seen_ns = renewal
        known_ns = health.lease_renew_ns
        if renew_ns is None or (known_ns is not None and renew_ns <= known_ns):
            return noticed_ns
        return max(noticed_ns, self.memory.passes.at_or_after(seen_ns, self.now_ns))

    def _queued(self, name: str) -> TaintQueuePosition | None:
        if name not in self._places:
            return None
        zone, fewest, most = self._places[name]
        place, rate = TaintQueuePosition(fewest, most), self.memory.zones.rate(zone)
        today, foretold = place.at(rate), self.foretold
        if foretold is None or not foretold.changes_by(zone, self.now_ns, today.turn):
            return today
        requeues, is_tainted = self.memory.requeues_untainted, name in foretold.tainted_ns
        at = (foretold, zone, self.now_ns, rate)
        return place.foretold(*at, any_is_next=requeues, is_tainted=is_tainted)

    def timers(self, node: Node) -> list[EvictionTimer]:
        """The pods of the node that wait for their deletion, the next one first.

        A dry run may be ahead of the cluster: without the taint no pod is being evicted. One that
        its kubelet has ended by then does not wait for it."""
        return self._deletions.timers.get(node.name, []) if node.spec.taints else []

    def _pending(self, node: Node) -> list[EvictionTimer]:
        """Of a pod of which nothing runs any more the object may be deleted, but nobody loses it;
        one that is being deleted is gone by the end of its grace where its kubelet reports."""
        if self.eviction is None:
            return []
        ends_pods = node.is_ready and not self._is_late(node)
        timers = []
        for work in self.eviction.pending(node.name):
            pod, due_ns = self.cache.pods.get(work.key), work.due_ns
            deleted_ns = pod.metadata.deletion_timestamp if pod is not None else None
            is_gone = ends_pods and deleted_ns is not None and deleted_ns <= due_ns
            if not is_gone and not (pod is not None and pod.status.phase in TERMINAL_PHASES):
                seconds = work.schedule.toleration_seconds
                timers.append(EvictionTimer(*work.key, due_ns, seconds, due_ns))
        return sorted(timers, key=lambda t: (t.due_ns, t.namespace, t.name))

    def _is_late(self, node: Node) -> bool:
        name = node.metadata.name
        late = self._late.get((name, self.now_ns))
        if late is None:
            sign = sign_of_life(node, self.cache, self.now_ns, self.settings.leases_count)
            late = self._late[name, self.now_ns] = sign.is_late(self.now_ns)
        return late


def renewed_ns(cache: Cache, node: str, now_ns: int) -> int | None:
    """When the node's Lease was renewed last, as its kubelet dates it; None: that is not known."""
    heartbeat = cache.heartbeat(node)
    renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
    return renewal[0] if renewal is not None else None


def join_controllers(
    cache: Cache,
    settings: Settings,
    now_ns: int,
    *,
    first_look: bool = False,
    doubts: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Outlook, list[Action]]:
    """The outlook at `now_ns`, and what the controllers would already have done by then.

    `first_look`: the cluster is a live one, and was not watched before."""
    lifecycle = NodeLifecycleController(settings)
    eviction = TaintEvictionController(settings) if settings.taint_manager else None
    controllers: list[Controller] = [lifecycle, *([eviction] if eviction is not None else [])]
    overdue = list(Engine(controllers, cache, join=True).step(now_ns, ()))
    of = (cache, settings, lifecycle, eviction, now_ns, first_look, doubts)
    return Outlook(*of, plays=True), overdue
