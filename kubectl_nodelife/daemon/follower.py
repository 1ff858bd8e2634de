"""Relates a planning copy to writes that other controllers made before it.

Each such write is noted as done by another controller, becomes the cause of what follows from it,
and adjusts our copy where it shows what cannot be known otherwise (`PassPhase`, `daemonset_acts`).

The phase of the monitor's passes and the tokens of a zone's limiter are invisible until they are
used. A node that is called lost shows when a pass began; a NoExecute taint shows which node was
taken and that the token is spent, since a bucket holds no more than one. From there on our copy
counts as the running one does: its passes follow that one, its next token comes when the other's
does, and a node that it had taken too early goes back into its queue.

The events of several watches are put in the order in which they happened before, by the cluster's
one counter of versions; upstream's informers have no need of this, for their controllers wait for
expectations instead. An exception of a follower stops nothing: the host logs it as a bug, and the
event is taken as it is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.health import lost_after_ns
from kubectl_nodelife.controllers.nodelifecycle.taints import LOST_NODE_TAINTS, is_for_lost_node
from kubectl_nodelife.controllers.podgc import GC_CHECK_PERIOD_NS
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.changes import node_of
from kubectl_nodelife.daemon.daemonset_acts import DaemonSetFollower
from kubectl_nodelife.daemon.foreign_writes import ForeignWriteDetector
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    RemoveTaints,
    SetNodeConditions,
    SetPodCondition,
    SetZoneState,
)
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Gone, Outcome, Put
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settlement import CONFIRMED
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.outlook.taint_turns import ready_since

C = TypeVar("C")

BY_ANOTHER = "already done by another controller"
_CONFLICT = 409
_POD_GC = "pod-gc"
_MOST_LOSSES = 10_000


class ControllerFollower(DaemonSetFollower):
    """Follows the controllers that run in the cluster; that of DaemonSets as its base does."""

    def __init__(self, engine: Engine, overlay: Overlay, ledger: Ledger) -> None:
        super().__init__(_find(engine.controllers, DaemonSetController), overlay, ledger)
        lifecycle = _find(engine.controllers, NodeLifecycleController)
        self._eviction = _find(engine.controllers, TaintEvictionController)
        self._detector = ForeignWriteDetector(engine.cache, lifecycle, self._eviction)
        self._phase = PassPhase(engine, lifecycle, overlay) if lifecycle is not None else None
        self._foreign: list[Action] = []  # what was done before ours, since `learn` was last asked

    def arrange(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events in the order in which they happened, as far as versions show it."""
        return in_order(events)

    def before(self, event: Put | Gone, now_ns: int) -> tuple[Put | Gone, list[Event]]:
        """The event with the act that it shows as its cause, which is noted where it comes before
        ours, and what the view makes of plans that end with it.
        """
        old = self._overlay.shown(*event.target)
        event, ended = super().before(event, now_ns)
        if old is None:
            return event, ended
        if isinstance(event, Put):
            for action in self._detector.compare(old, event.obj, now_ns):
                event = Put(
                    event.kind, event.obj, self._note_foreign(action, now_ns) or event.cause
                )
            return event, ended
        for action in self._detector.removed(old):
            event = Gone(event.kind, event.key, self._note_foreign(action, now_ns) or event.cause)
        return event, ended

    def learn(self, confirmed: Iterable[Action], now_ns: int) -> list[Event]:
        """These plans of ours turned out to be done by another, to which passes and tokens are
        adjusted; what follows for the view.
        """
        confirmed = list(confirmed)
        learned, self._foreign = [*self._foreign, *confirmed], []
        if self._phase is None:
            return []
        for action in confirmed:
            self._phase.confirmed(action, now_ns)
        return [event for action in learned for event in self._phase.done(action, now_ns)]

    def within(self, action: Action, now_ns: int) -> tuple[int, int] | None:
        """Between which instants, in ns, those we follow do what our copy has just decided, where
        it waits for a pass or a run of pod-gc; None: nothing that cannot be seen decides that.
        """
        return self._phase.within(action, now_ns) if self._phase is not None else None

    def decided(self, action: Action, now_ns: int) -> list[Event]:
        """Our copy decided something that it does not write; what follows for the view. A zone that
        stops takes plans back that the running controller has not carried out.
        """
        if self._phase is None or not isinstance(action, SetZoneState):
            return []
        return self._phase.decided(action, now_ns)

    def _note_foreign(self, action: Action, now_ns: int) -> Action | None:
        """Note what another did first; None where we had planned it, which is noted already."""
        planned = [p for p in self._overlay.planned(action.target) if type(p) is type(action)]
        if planned and isinstance(action, (AddTaints, RemoveTaints)):
            ours = [t for p in planned for t in cast("AddTaints | RemoveTaints", p).taints]
            others = tuple(t for t in action.taints if not any(t.matches(o) for o in ours))
            if not others:
                return None
            action = replace(action, taints=others)
        elif planned:
            return None
        node = node_of(action, self._overlay.shown(*action.target))
        self._ledger.note(action, now_ns, node, "")
        self._ledger.settle(action, CONFIRMED, now_ns, self._how_early(action, now_ns))
        self._foreign.append(action)
        return action

    def _how_early(self, action: Action, now_ns: int) -> str:
        due_ns = self._phase.due_ns(action, now_ns) if self._phase is not None else None
        if isinstance(action, (DeletePod, SetPodCondition)) and self._eviction is not None:
            work = self._eviction.workers.get(action.target[1])
            due_ns = work.due_ns if work is not None else None
        if due_ns is None or due_ns <= now_ns:
            return BY_ANOTHER
        early_ns = (due_ns - now_ns) // MILLISECOND_NS * MILLISECOND_NS
        return f"{BY_ANOTHER}, {format_duration(early_ns)} before ours"


def _find(controllers: Iterable[Controller], kind: type[C]) -> C | None:
    return next((c for c in controllers if isinstance(c, kind)), None)


def in_order(events: Sequence[Event]) -> Sequence[Event]:
    """Events of several watches in the order in which they happened, as far as versions show it.

    Each kind has a connection of its own, and a pod's deletion may come before the change of the
    set that led to it. What is gone has no version: it stays before what came next of its kind.
    Anything but numbers for versions leaves the order as it is.
    """
    kinds = [event.kind if isinstance(event, (Put, Gone)) else "" for event in events]
    if len(set(kinds)) < 2:
        return events
    numbers: list[float] = []
    upcoming: dict[str, float] = {}
    for event, kind in zip(reversed(events), reversed(kinds), strict=True):
        if isinstance(event, Put):
            version = event.obj.metadata.resource_version
            if not version.isdecimal():
                return events
            upcoming[kind] = float(version)
        numbers.append(upcoming.get(kind, math.inf))
    ranked = sorted(zip(reversed(numbers), range(len(events)), strict=True))
    return [events[position] for _, position in ranked]


class PassPhase:
    """The phase of node-lifecycle's passes and tokens, as its writes show it."""

    def __init__(
        self, engine: Engine, lifecycle: NodeLifecycleController, overlay: Overlay
    ) -> None:
        self._engine = engine
        self._lifecycle = lifecycle
        self._overlay = overlay
        self._aligned_ns: int | None = None
        self._losses: OrderedDict[int, tuple[int, int, int] | None] = OrderedDict()

    def due_ns(self, action: Action, now_ns: int) -> int | None:
        """When our own copy would have done what another has just done; None: that follows at
        once from what the cluster showed before, or is not known.
        """
        memory = self._lifecycle.memory
        if isinstance(action, SetNodeConditions):
            health = memory.health.get(action.node)
            return None if health is None else self._pass_after(health.probe_ns + self._grace_ns())
        if isinstance(action, AddTaints) and _is_by_token(action.taints):
            node = self._overlay.shown("Node", ("", action.node))
            zones = memory.zones
            queue = zones.queues.get(zones.place(node)) if isinstance(node, Node) else None
            if queue is not None and queue.is_waiting(action.node):
                return queue.limiter.next_accept(now_ns)
        return None

    def _grace_ns(self) -> int:
        return self._lifecycle.settings.node_monitor_grace_period_ns

    def _pass_after(self, at_ns: int) -> int | None:
        """The first of our passes to come that begins after that."""
        next_ns = self._lifecycle.next_pass_ns
        if next_ns is None or at_ns < next_ns:
            return next_ns
        period_ns = self._lifecycle.settings.node_monitor_period_ns
        return next_ns + ((at_ns - next_ns) // period_ns + 1) * period_ns

    def done(self, action: Action, now_ns: int) -> list[Event]:
        """Another controller did this. What the view makes of what we learn from that."""
        if isinstance(action, SetNodeConditions):
            self._align(now_ns)
        elif isinstance(action, AddTaints) and _is_by_token(action.taints):
            node = self._overlay.shown("Node", ("", action.node))
            if isinstance(node, Node) and not _has_both(node):
                return self._token_spent(node, now_ns)
        return []

    def within(self, action: Action, now_ns: int) -> tuple[int, int] | None:
        """Between which instants the running one does what our copy decides now, or None.

        It notices a node's last sign of life in one of its passes, within a period; what follows
        from a loss keeps its distance from that. pod-gc's runs never show before they act.
        """
        if action.controller == _POD_GC:
            return now_ns - GC_CHECK_PERIOD_NS, now_ns + GC_CHECK_PERIOD_NS
        if self._lifecycle.memory.knows_phase(now_ns):
            return None
        if isinstance(action, SetNodeConditions):
            return self._loss_within(action, now_ns)
        cause: Action | None = action.cause
        while cause is not None and cause.id not in self._losses:
            cause = cause.cause
        span = self._losses[cause.id] if cause is not None else None
        if span is None:
            return None
        early_ns, late_ns, decided_ns = span
        period_ns = self._lifecycle.settings.node_monitor_period_ns
        if isinstance(action, AddTaints) and now_ns - decided_ns > period_ns:
            self._keep(action, None)  # it waited for a token, and that decides from here on
            return None
        return now_ns + early_ns, now_ns + late_ns

    def _keep(self, action: Action, span: tuple[int, int, int] | None) -> None:
        """For what follows from the action: how much earlier and later than ours it may be, and
        when ours was decided; None: what it follows from is not what decides.
        """
        self._losses[action.id] = span
        if len(self._losses) > _MOST_LOSSES:
            self._losses.popitem(last=False)

    def _loss_within(self, action: SetNodeConditions, now_ns: int) -> tuple[int, int] | None:
        heartbeat = self._engine.cache.heartbeat(action.node)
        renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
        if renewal is None:
            return None
        period_ns = self._lifecycle.settings.node_monitor_period_ns
        low_ns = renewal[1] + lost_after_ns(self._grace_ns(), period_ns)
        if not low_ns <= now_ns <= low_ns + 2 * period_ns + SECOND_NS:
            return None  # silence that was not watched from its beginning, or another grace period
        self._keep(action, (low_ns - now_ns, low_ns + period_ns - now_ns, now_ns))
        return low_ns, low_ns + period_ns

    def confirmed(self, action: Action, now_ns: int) -> None:
        """A plan of ours was carried out: that a node which is not ready loses its taints shows the
        first pass of a controller that has just begun, or the one that found all zones dark.
        """
        if self._lifecycle.memory.knows_phase(now_ns):
            return  # a strip of many nodes takes longer than a pass, and its end shows no beginning
        if isinstance(action, RemoveTaints) and _is_by_token(action.taints):
            node = self._overlay.shown("Node", ("", action.node))
            ready = node.ready() if isinstance(node, Node) else None
            if ready is not None and ready.status != "True":
                self._align(now_ns)

    def decided(self, action: SetZoneState, now_ns: int) -> list[Event]:
        """A zone that stops: what the running controller has not tainted by now, it does not."""
        if action.rate > 0:
            return []
        because = f"no node of zone {action.zone} is tainted from now on, and this one was not yet"
        return self._put_back(self._planned_in(action.zone), now_ns, because)

    def _align(self, now_ns: int) -> None:
        """A pass began now; the nodes that the same pass lost are seen just after this one."""
        period_ns = self._lifecycle.settings.node_monitor_period_ns
        if self._aligned_ns is None or now_ns - self._aligned_ns > period_ns * 9 // 10:
            self._aligned_ns = now_ns
            self._lifecycle.memory.phase_seen_ns = now_ns
            self._engine.wake(self._lifecycle.pass_at(now_ns + period_ns))

    def _token_spent(self, node: Node, now_ns: int) -> list[Event]:
        """The zone's token went to this node: the next one comes a full interval from now. A plan
        from before the node was not ready keeps its own, which cannot have gone to it.
        """
        memory = self._lifecycle.memory
        if not memory.tainted_by_another(node, now_ns):
            return []
        zone = memory.zones.place(node)
        rate = memory.zones.rate(zone)
        period_ns = self._lifecycle.settings.node_monitor_period_ns
        fast = rate > 0 and SECOND_NS / rate < period_ns / 2
        waited_ns = ready_since(node) - period_ns
        early = [
            (plan, since_ns)
            for plan, since_ns in self._planned_in(zone)
            if plan.node != node.name
            and since_ns >= waited_ns
            and (not fast or now_ns - since_ns > period_ns)
        ]
        return self._put_back(early, now_ns, f"the zone's token went to node {node.name}")

    def _planned_in(self, zone: str) -> Iterator[tuple[AddTaints, int]]:
        """Our plans to taint a node of the zone by a token; the cluster shows that it is lost."""
        memory = self._lifecycle.memory
        for entry in self._overlay.entries("Node"):
            action, since_ns = entry.action, entry.at_ns
            if not isinstance(action, AddTaints) or not _is_by_token(action.taints):
                continue
            node = self._overlay.shown("Node", ("", action.node))
            if not isinstance(node, Node) or memory.zones.place(node) != zone:
                continue
            ready = node.ready()
            exchanged = any(is_for_lost_node(taint) for taint in node.spec.taints)
            if ready is not None and ready.status != "True" and not exchanged:
                yield action, since_ns

    def _put_back(
        self, plans: Iterable[tuple[AddTaints, int]], now_ns: int, because: str
    ) -> list[Event]:
        events: list[Event] = []
        for plan, _ in list(plans):
            events += self._overlay.give_up(plan, now_ns, because)
            events.append(Outcome(plan, _CONFLICT, because))
        return events


def _has_both(node: Node) -> bool:
    """True if one taint is being exchanged for the other, which costs no token."""
    return all(node.has_taint(taint.key, taint.effect) for taint in LOST_NODE_TAINTS)


def _is_by_token(taints: Iterable[Taint]) -> bool:
    return any(is_for_lost_node(taint) for taint in taints)
