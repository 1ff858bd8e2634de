"""The thinking half of the watcher: engine, controllers and projection over one cache. No I/O.

What the cluster shows comes in by `observe`; `step` brings it and what is due through the engine,
and lays each decision over the view, whose events go through the engine again, until nothing is
left to decide. Every decision is noted in the ledger, and so is what another hand did first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.catch_up import CatchUp
from kubectl_nodelife.daemon.changes import patch_text
from kubectl_nodelife.daemon.inherited import fate_of
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.quarantine_log import log_bug
from kubectl_nodelife.daemon.witness import Witness
from kubectl_nodelife.daemon.witness_daemonset import DaemonSetWitness, in_order
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    RecordEvent,
    RemoveTaints,
    SetPodCondition,
    SetZoneState,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.calls import request_of
from kubectl_nodelife.engine.daemonset_actions import CreatePod
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import NO_ANSWER, Event, Gone, Outcome, Put, Unreadable
from kubectl_nodelife.engine.executor import Executor, PlanningOnly
from kubectl_nodelife.engine.projection import (
    APPLIED,
    CONFIRMED,
    FAILED,
    SUPERSEDED,
    Projection,
)
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS

Onlooker = Callable[[KubeObject, KubeObject | None, int], None]
"""Told of an object as the cluster showed it before and shows it now (None: gone), and when."""

_AT_ONCE: Final = 1_000
"""How many events the engine takes in without a pause: some milliseconds' worth."""


class DryRun:
    """See the module. `engine` is None before `join`; `lifecycle` and `eviction` are None where
    the controller does not run. `onlooker` hears of each change that the cluster shows.
    """

    def __init__(self, ledger: Ledger, executor: Executor | None = None) -> None:
        """`executor` is handed each action that writes; planning only where there is none."""
        self.ledger = ledger
        self.executor: Executor = executor or PlanningOnly()
        self.cache = Cache()
        self.projection = Projection(self.cache, ledger.numbers)
        self.engine: Engine | None = None
        self.lifecycle: NodeLifecycleController | None = None
        self.eviction: TaintEvictionController | None = None
        self.onlooker: Onlooker = lambda old, new, now_ns: None
        self._witness = Witness(self.cache, None, None)
        self._catch_up: CatchUp | None = None
        self._learned: list[Action] = []  # what another hand did since the last look
        self._daemonsets = DaemonSetWitness(None, self.projection, ledger)

    def join(self, settings: Settings, names: Iterable[str]) -> None:
        """Look over the shoulder of the running controllers from here on; they begin cold."""
        controllers = make_controllers(settings, list(names))
        self.lifecycle, self.eviction = None, None
        for controller in controllers:
            if isinstance(controller, NodeLifecycleController):
                self.lifecycle = controller
                controller.memory.begins_cold = True
            elif isinstance(controller, TaintEvictionController):
                self.eviction = controller
        self._witness = Witness(self.cache, self.lifecycle, self.eviction)
        sets = next((c for c in controllers if isinstance(c, DaemonSetController)), None)
        self._daemonsets = DaemonSetWitness(sets, self.projection, self.ledger)
        numbers = self.ledger.numbers
        self.engine = Engine(
            controllers, self.cache, join=True, on_bug=log_bug, numbers=numbers
        )
        self._learned = []
        self._catch_up = None
        if self.lifecycle is not None:
            self._catch_up = CatchUp(self.engine, self.lifecycle, self.projection)

    def withdraw(self, now_ns: int, because: str) -> None:
        """Nothing is planned any more: the view is what the cluster shows."""
        for action in list(self.projection.pending()):
            self.ledger.settle(action, SUPERSEDED, now_ns, because)
        self.ledger.end_decisions(now_ns, because)
        for (kind, key), obj in list(self.projection.observed().items()):
            self.cache.set(kind, key, obj)
        self.projection = Projection(self.cache, self.ledger.numbers)
        for event in self._daemonsets.take_held():
            self.cache.apply(event, now_ns)

    def forget(self, kind: str) -> None:
        """Drop all objects of a kind that can no longer be read."""
        for obj in list(self.cache.all(kind)):
            self.cache.set(kind, obj.key, None)

    def shown_keys(self, kind: str) -> Iterator[Key]:
        """The keys of all objects of a kind as the cluster shows them."""
        observed = self.projection.observed()
        for obj in list(self.cache.all(kind)):
            if observed.get((kind, obj.key), obj) is not None:
                yield obj.key
        for (other, key), shown in list(observed.items()):
            if other == kind and shown is not None and self.cache.get(kind, key) is None:
                yield key

    def shown_count(self, kind: str) -> int:
        """How many objects of a kind the cluster shows, whatever is planned."""
        count = sum(1 for _ in self.cache.all(kind))
        for (other, key), shown in self.projection.observed().items():
            if other == kind:
                count += (shown is not None) - (self.cache.get(kind, key) is not None)
        return count

    def observe(self, event: Event, now_ns: int) -> list[Event]:
        """What the view makes of an event of the cluster, and who was ahead of us."""
        if isinstance(event, Outcome):
            return self._came_of(event, now_ns)
        if isinstance(event, Unreadable):
            self.cache.apply(event, now_ns)
            return []
        if isinstance(event, (Put, Gone)):
            key = event.obj.key if isinstance(event, Put) else event.key
            self.cache.quarantine.lift(event.kind, key)
        event, ended = self._daemonsets.before(event, now_ns)
        if isinstance(event, Put) and event.kind != "Lease":
            before = self.projection.shown(event.kind, event.obj.key)
            if before is not None:
                if same_version(before, event.obj):
                    return []
                self.onlooker(before, event.obj, now_ns)
                for action in self._witness.changed(before, event.obj, now_ns):
                    event = Put(event.kind, event.obj, self._seen(action, now_ns) or event.cause)
        elif isinstance(event, Gone):
            before = self.projection.shown(event.kind, event.key)
            if before is None:
                return []
            self.onlooker(before, None, now_ns)
            for action in self._witness.gone(before):
                event = Gone(event.kind, event.key, self._seen(action, now_ns) or event.cause)
        view = [*ended, *self.projection.observe(event, now_ns)]
        view += self._daemonsets.after(event)
        self._learned += self._settle()
        if isinstance(event, Gone):
            self.ledger.gone((event.kind, event.key), now_ns)
        return [*view, *self._catch(now_ns)]

    def _observe_contained(self, event: Event, now_ns: int) -> list[Event]:
        """The same; an object at which we fail is shown as it is, and named as a bug."""
        try:
            return self.observe(event, now_ns)
        except Exception as error:
            obj = event.obj if isinstance(event, Put) else event
            about = (getattr(event, "kind", ""), getattr(obj, "key", ""))
            log_bug(self.cache.quarantine.failed("projection", about, error, now_ns))
            return [event]

    def next_due(self) -> int | None:
        """The earliest instant at which some controller wants to be woken, or None."""
        return self.engine.next_due() if self.engine is not None else None

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[None]:
        """Take in what was seen and wake who is due; yields after each decision, for a pause.

        Must be exhausted before anything else is asked of this object.
        """
        view: list[Event] = []
        for event in in_order([*self._daemonsets.take_held(), *events]):
            act = self._daemonsets.is_act(event)
            if act:
                yield from self._step(view, now_ns)
                view, now_ns = [], now_ns + 1  # who waits for an instant's end need wait no longer
                yield from self._step(view, now_ns)
                yield
            if self._daemonsets.holds(event, act, now_ns):
                continue
            view += self._observe_contained(event, now_ns)
            if not (isinstance(event, Put) and event.kind == "Lease"):
                yield from self._step(view, now_ns)  # the next event may be about the same object
                view = []
        yield from self._step(view, now_ns)

    def _step(self, view: list[Event], now_ns: int) -> Iterator[None]:
        """Bring these events of the view through the engine, and what follows from them."""
        assert self.engine is not None
        waiting = view
        while True:
            view, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            for action in self.engine.step(now_ns, view):
                waiting += self._plan(action, now_ns)
                yield
            if not waiting:
                self.projection.applied()
                return
            yield

    def _came_of(self, outcome: Outcome, now_ns: int) -> list[Event]:
        """Note what came of an action that was sent; failures are the controller's business too."""
        view = self.projection.outcome(outcome, now_ns)
        if outcome.done:
            self.ledger.settle(outcome.action, APPLIED, now_ns, "the API server did it")
        elif outcome.code != NO_ANSWER:
            error = f"{outcome.code} {outcome.message}".rstrip()
            self.ledger.settle(outcome.action, FAILED, now_ns, "it was refused", error)
        self._settle()
        return [*view, outcome]

    def settle_inherited(self, now_ns: int) -> None:
        """End what a daemon before this one had planned and this one has not planned again."""
        for change in list(self.ledger.inherited()):
            outcome, why = fate_of(change, self.projection)
            self.ledger.settle_inherited(change, outcome, now_ns, why)

    def _seen(self, action: Action, now_ns: int) -> Action | None:
        """Note what another hand did first; None where we had planned it, which is then told."""
        planned = [p for p in self.projection.planned(action.target) if type(p) is type(action)]
        if planned and isinstance(action, (AddTaints, RemoveTaints)):
            ours = [t for p in planned for t in cast("AddTaints | RemoveTaints", p).taints]
            others = tuple(t for t in action.taints if not any(t.matches(o) for o in ours))
            if not others:
                return None
            action = replace(action, taints=others)
        elif planned:
            return None
        self.ledger.note(action, now_ns, self._node_of(action), "")
        self.ledger.settle(action, CONFIRMED, now_ns, self._who_was_first(action, now_ns))
        self._learned.append(action)
        return action

    def _who_was_first(self, action: Action, now_ns: int) -> str:
        due_ns = self._catch_up.due_ns(action, now_ns) if self._catch_up is not None else None
        if isinstance(action, (DeletePod, SetPodCondition)) and self.eviction is not None:
            work = self.eviction.workers.get(action.target[1])
            due_ns = work.due_ns if work is not None else None
        if due_ns is None or due_ns <= now_ns:
            return "another hand was first"
        return f"another hand was first, ours was due in {format_duration(_ms(due_ns - now_ns))}"

    def _catch(self, now_ns: int) -> list[Event]:
        """Bring our copy in step with what another hand did."""
        learned, self._learned = self._learned, []
        events: list[Event] = []
        for action in learned:
            if self._catch_up is not None:
                events += self._catch_up.done(action, now_ns)
        self._settle()
        return events

    def _plan(self, action: Action, now_ns: int) -> list[Event]:
        """Lay a decision over the view, and note it unless there was nothing left to do."""
        if not action.writes or isinstance(action, RecordEvent):
            self.ledger.note(action, now_ns, self._node_of(action), "")
            if action.writes:
                self.executor.start(action, now_ns)
            if isinstance(action, SetZoneState) and self._catch_up is not None:
                events = self._catch_up.decided(action, now_ns)
                self._settle()
                return events
            return []
        before = self.projection.view(action.target)
        events = self.projection.project(action, now_ns)
        if not any(end.action.id == action.id for end in self.projection.settled):
            patch = patch_text(request_of(action, before))
            self.ledger.note(action, now_ns, self._node_of(action), patch)
            self.executor.start(action, now_ns)
        self._settle()
        return events

    def _settle(self) -> list[Action]:
        """Note how plans ended. Those that were confirmed."""
        settled = self.projection.settled
        for end in settled:
            self.ledger.settle(end.action, end.outcome, end.at_ns, end.why)
        done = [end.action for end in settled if end.outcome == CONFIRMED]
        settled.clear()
        return done

    def _node_of(self, action: Action) -> str:
        kind, key = action.target
        if kind == "Node":
            return key[1]
        if isinstance(action, CreatePod):
            return action.node
        pod = self.projection.shown(kind, key) if kind == "Pod" else None
        return cast(Pod, pod).spec.node_name if pod is not None else ""


def _ms(duration_ns: int) -> int:
    return duration_ns // MILLISECOND_NS * MILLISECOND_NS


def same_version(before: KubeObject, after: KubeObject) -> bool:
    """Whether these are the same version of one object."""
    version = after.metadata.resource_version
    return version != "" and version == before.metadata.resource_version
