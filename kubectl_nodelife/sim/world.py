"""The virtual cluster as the loop sees it: a source of events and an executor of actions, in one.

`next` moves the virtual clock to the next instant at which something happens in the cluster or a
controller is due; `start_all` carries out what a controller decided, at the pace of its client
(`clients`) or, where that has no limit, at once. The outcome is in the next tick, at the same
instant. At one instant the scenario's events come first, then kubelets, then controllers.

Controllers may undo one another's work without a pause (docs/upstream/surge-hot-loop.md). What ends
that comes from outside, so virtual time goes on: at the pace of the clients, and where that has no
limit at that of watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Final, Protocol, cast

from kubectl_nodelife.engine.actions import (
    Action,
    AfterWrites,
    CreateControllerRevision,
    CreatePod,
    DeletePod,
    EvictPod,
    MarkPodNotReady,
    RecordEvent,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.engine.dependent_writes import (
    FailedWrite,
    FailedWrites,
    learns_of_failure,
    queue_key,
)
from kubectl_nodelife.engine.events import (
    NO_ANSWER,
    NOT_SENT,
    ConditionsChange,
    Event,
    Outcome,
    Put,
    Synced,
    WritesDone,
    latest,
)
from kubectl_nodelife.engine.pace import Pace
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS, format_time
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.sim.api import CLUSTER, PRECONDITIONS, Api, RunRecorder
from kubectl_nodelife.sim.clients import Clients, FailingRead, LeaseView
from kubectl_nodelife.sim.container_events import ContainerEvents
from kubectl_nodelife.sim.deployments import Deployments
from kubectl_nodelife.sim.disruption import DisruptionController
from kubectl_nodelife.sim.endpoints import EndpointsController
from kubectl_nodelife.sim.failing_writes import FailingWrites, InjectedFault
from kubectl_nodelife.sim.kubelet import Kubelets
from kubectl_nodelife.sim.kubelet_state import JoinedKubelets, KubeletClients, KubeletTerms
from kubectl_nodelife.sim.machines import Machines
from kubectl_nodelife.sim.namespaces import NamespaceController
from kubectl_nodelife.sim.owners import JobController, WorkloadControllers
from kubectl_nodelife.sim.scheduler import Scheduler
from kubectl_nodelife.sim.status_manager import StatusManagers
from kubectl_nodelife.sim.timeline import KUBELET, PATIENCE_NS, Agenda, Asker
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.pod_classes import LabelledPods
from kubectl_nodelife.workloads.scoring import Scoring

MOST_TICKS = 10_000
"""Rounds within a millisecond that count as an endless loop; a dozen is usual."""

_LOOP_TICKS: Final = 200
"""After so many rounds within a millisecond in which controllers write, a write takes its time."""

_WATCH_LAG_NS: Final = 3 * MILLISECOND_NS
"""So much later watchers see a write then, as those of a real API server do."""


class StandstillError(Failed):
    """Parts of the simulation react to one another for ever, and virtual time does not advance."""


Faults = Callable[[Action, int], InjectedFault | None]
"""(action, now) -> its failure, None where it succeeds."""


class ForkablePart(Protocol):
    """A part of a world: one of its own, a scenario's script, kubectl processes."""

    def fork(self, world: World) -> ForkablePart:
        """The same in a fork of the world. Raises NotForkableError."""


class World:
    """The cluster's parts on one virtual clock: the loop's Source and Executor."""

    def __init__(
        self,
        api: Api,
        terms: KubeletTerms,
        *,
        end_ns: int,
        faults: Faults | None = None,
        failing: FailingWrites | None = None,
        failing_reads: Sequence[FailingRead] = (),
        status_rules: StatusRules | None = None,
        scoring: Scoring | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`api` holds what is there at t=0, and its clock; `end_ns`: the last instant, ns since the
        epoch. `status_rules`: of the kubelets' status managers; None: they have none. `failing`:
        writes that fail by the scenario, `failing_reads`: reads of Leases; `faults`: writes, by a
        test. `scoring`: how the scheduler chooses among the nodes that fit. `pace`: of the
        controllers' clients; None: no limit.
        """
        self.agenda = Agenda()
        self.api = api
        clients = KubeletClients.of(api.profile) if pace is not None else KubeletClients(None)
        self.kubelets = Kubelets(self.api, self.agenda, terms, clients)
        self.scheduler = Scheduler(self.api, self.agenda, scoring, paced=pace is not None)
        self.owners = WorkloadControllers(self.api, self.agenda, self.scheduler.bind)
        self.jobs = JobController(self.api, self.agenda, self.owners)
        self.deployments = Deployments(self.api, self.agenda, self.scheduler.bind)
        self.disruption = DisruptionController(self.api, self.agenda)
        self.endpoints = EndpointsController(self.api, self.agenda)
        self.failures: list[Outcome] = []
        self._failed_now: FailedWrites | None = None
        self.clients = self._make_clients(pace)
        self.begun, self.end_ns = False, end_ns
        self.asker: Asker | None = None
        self._moved_ns = self._decided_ns = api.now_ns
        self._rounds = self._rounds_since_ns = 0
        self._written = self._lags = False
        self._faults, self._failing = faults, failing
        self.leases = LeaseView(api, self.agenda, failing_reads, api.now_ns)
        self._withheld: list[Event] | None = None
        self._shown: list[Event] = []
        self.managers: StatusManagers | None = None
        self.container_events: ContainerEvents | None = None
        if status_rules is not None:
            hits = self._hits_kubelet
            self.managers = StatusManagers(api, self.agenda, self.kubelets, status_rules, hits)
            self.container_events = ContainerEvents(self.managers)
        self.machines = Machines(api, self.agenda, self.kubelets, self.managers)
        self.namespaces = NamespaceController(api, self.agenda)
        self._join_own_parts()

    def _join_own_parts(self) -> None:
        """Add its own parts, each behind those that it holds: they are forked in this order."""
        parts: list[object] = [self, self.kubelets, self.scheduler, self.owners, self.jobs]
        parts += [self.deployments, self.disruption, self.endpoints, self.leases, self.managers]
        parts += [self.container_events, self.machines, self.namespaces, self.clients]
        self.join(*(part for part in parts if part is not None))

    def fork(self, journal: RunRecorder) -> World:
        """Another world at the same point, once this one has begun: both go on separately.

        Data is shared: a fork costs what is under way, not what the cluster holds. What happens in
        the fork is written to `journal`; both call the same `faults`. Raises NotForkableError.
        """
        other = copy(self)
        api, agenda = self.api.fork(journal), self.agenda.fork()
        other.api, other.agenda, other.failures = api, agenda, list(self.failures)
        other._failed_now = self._failed_now.copy() if self._failed_now is not None else None
        other._failing = self._failing.fork() if self._failing is not None else None
        other._withheld = list(self._withheld) if self._withheld is not None else None
        other._shown = list(self._shown)
        other.join(other)
        names = {id(value): name for name, value in vars(self).items()}
        for part in self.agenda.parts.values():
            if part is not self:
                forked = cast(ForkablePart, part).fork(other)
                other.join(forked)
                if name := names.get(id(part)):
                    setattr(other, name, forked)
        api.listen_as(agenda.mine)
        other.kubelets.ask_as(agenda.mine)
        other.scheduler.ask_as(agenda.mine)
        return other

    def _make_clients(self, pace: Pace | None) -> Clients | None:
        return Clients(self.agenda, pace, self) if pace is not None else None

    def restart_clients(self, pace: Pace | None) -> None:
        """Another process begins: what waited to be sent is not, and buckets are full."""
        if self.clients is not None:
            self.clients.end()
        self.clients = self._make_clients(pace)
        self.agenda.parts.pop(Clients, None)
        if self.clients is not None:
            self.join(self.clients)

    def join(self, *parts: object) -> None:
        """Add parts to the world, one of each class; a `ForkablePart` is forked with it."""
        self.agenda.join(*parts)

    def begin(self, kinds: Iterable[str], joined: JoinedKubelets | None = None) -> Cache:
        """Start the cluster's own parts. Returns what a first list returns.

        The first tick is at this very instant: the scenario's events come first in it, and it
        reports the `kinds` as synced. `joined`: kubelets that are joined (`Kubelets.begin`).
        """
        store = self.api.store
        if joined is not None:
            self.kubelets.announce(joined)
        listed = store.copy() if joined is None else store.fork()  # that is a fork already
        pods = LabelledPods(store if joined is None else store.fork())
        self.api.leave_out_names_in_use()
        self.scheduler.begin()
        self.owners.begin()
        self.jobs.begin()
        self.deployments.begin()
        self.disruption.begin(pods, joined=joined is not None)
        self.endpoints.begin(pods, joined=joined is not None)
        self.namespaces.begin()
        self.kubelets.begin(joined)
        self.leases.begin()
        if self.managers is not None:
            self.managers.begin()
        self.api.pending.extend(Synced(kind) for kind in kinds)
        return listed

    def next(self, due_ns: int | None) -> tuple[int, Iterable[Event]] | None:
        """The next instant with its events; None once the end is past."""
        api = self.api
        if not self.begun:
            return self.advance(api.now_ns)
        if self.clients is not None:
            self.clients.run(api.now_ns)
        if api.pending or self._shown:
            if not self._lags:
                return self._tick()
            seen_ns = api.now_ns + _WATCH_LAG_NS
            return self.advance(seen_ns) if seen_ns <= self.end_ns else None
        self._lags = False
        questions, at_ns = self.agenda.questions, self._next_at(due_ns)
        while questions and (at_ns is None or questions[0][0] < at_ns):
            if at_ns is None:
                if self.asker is not None and self.asker.settled():
                    return None
                at_ns = self.agenda.next_at()
                if at_ns is not None:  # the asker has brought its end about
                    continue
            if questions[0][0] > self.end_ns:
                return None
            self._ask(at_ns)
            if api.pending:
                return self._tick()
            at_ns = self._next_at(due_ns)
        if self.clients is not None and at_ns != due_ns and not questions:
            at_ns = self._take_tokens(self.clients, due_ns)
            if api.pending or self._shown:
                return self._tick()
        return self.advance(at_ns) if at_ns is not None and at_ns <= self.end_ns else None

    def _take_tokens(self, clients: Clients, due_ns: int | None) -> int | None:
        """Clients get their tokens until something else happens, or comes of it that the engine
        sees, as nothing does of a read or an Event. Returns the next instant."""
        api, agenda = self.api, self.agenda
        limit_ns = self.end_ns + 1 if due_ns is None else min(due_ns, self.end_ns + 1)
        while not (api.pending or self._shown):
            other_ns = agenda.next_but_tokens()
            until_ns = limit_ns if other_ns is None else min(limit_ns, other_ns)
            now_ns = clients.only_read(until_ns)
            if now_ns is None:
                now_ns = agenda.next_at()
                if now_ns is None or now_ns >= until_ns:
                    break
                api.now_ns = now_ns
                clients.take_tokens(now_ns)
            api.now_ns = self._moved_ns = now_ns
            if self._failed_now:
                self._failed_now.forget_before(now_ns)
        return self._next_at(due_ns)

    def _next_at(self, due_ns: int | None) -> int | None:
        at_ns = self.agenda.next_at()
        return due_ns if at_ns is None or (due_ns is not None and due_ns < at_ns) else at_ns

    def _ask(self, next_ns: int | None) -> None:
        """Ask the first question; where only something far away will change an answer, the
        questions in between are skipped."""
        questions = self.agenda.questions
        at_ns, _, waits, *_ = questions[0]
        impatient = waits and at_ns - self._moved_ns >= PATIENCE_NS
        if impatient and self.asker is not None and self.asker.answered():
            self._moved_ns = at_ns
            self.agenda.put_off(next_ns)
            at_ns, _, waits, *_ = questions[0]
        if not waits:
            self._moved_ns = at_ns
        self.api.now_ns = at_ns
        self.agenda.ask_first()

    def ask_until(self, now_ns: int) -> None:
        """Ask the questions that are due by a clock that goes on by itself."""
        questions = self.agenda.questions
        while questions and questions[0][0] <= now_ns:
            self.agenda.ask_first()

    def advance(self, now_ns: int) -> tuple[int, Iterable[Event]]:
        """Run everything that is due at or before this instant."""
        self.begun = True
        self.api.now_ns = self._moved_ns = now_ns
        self.agenda.run(now_ns)
        if self.clients is not None:
            self.clients.take_tokens(now_ns)
        return self._tick()

    @property
    def rests(self) -> bool:
        """True if nothing is to happen in it by itself: all that is due are heartbeats, and
        questions that have been answered for good."""
        agenda = self.agenda
        if agenda.next_at() is not None or not self.begun or self.has_news:
            return False
        return not agenda.questions or (self.asker is not None and self.asker.settled())

    @property
    def has_news(self) -> bool:
        """True if something is to be told to the controllers, or done, at this very instant."""
        busy = self.clients is not None and self.clients.busy
        return bool(self.api.pending or self._shown) or busy

    def start_all(self, actions: Sequence[Action], now_ns: int) -> None:
        """Carry out what was decided together, in that order, and record it as it is done."""
        if self.clients is not None:
            self.clients.start(actions, now_ns)
            return
        self.api.note_all([action for action in actions if not action.takes_time_only])
        marks: list[MarkPodNotReady] = []
        for action in actions:
            if type(action) is MarkPodNotReady and self._all_go_well():
                marks.append(action)
            elif type(action) is not RecordEvent or self._failed_now:
                if marks:
                    self._mark(marks, now_ns)
                self.start(action, now_ns)
        if marks:
            self._mark(marks, now_ns)

    # What the controllers' clients ask for (`clients.ServerPort`)

    def carry_out(self, action: Action, decided_ns: int) -> None:
        """Record an action whose last request is made now, and do it."""
        if not action.takes_time_only:
            self.api.note(action)
        self.start(action, decided_ns)

    def look(self, action: Action) -> KubeObject | None:
        """The object that the action is about."""
        return self.api.store.get(*action.target)

    def unwritten(self, action: Action, decided_ns: int, code: int, message: str) -> None:
        """An action comes to nothing before it is written, so that it leaves no record: what it is
        about was gone when it was read, or has changed since. Its controller is told.
        """
        self._decided_ns = decided_ns
        self._note_failed(action, Result(code, message))
        self._tell(Outcome(action, code, message))

    def _tell(self, event: Event) -> None:
        """The controllers learn of it, whether or not they reach the API server."""
        (self.api.pending if self._withheld is None else self._shown).append(event)

    def start(self, action: Action, decided_ns: int) -> None:
        """Carry one action out at once."""
        if type(action) is AfterWrites:
            self._tell(WritesDone(action.controller, action.key))
            return
        if not action.writes or self.leaves_out(action, decided_ns) or type(action) is RecordEvent:
            return
        self._decided_ns = decided_ns
        if self._withheld is not None and action.controller != CLUSTER:
            self._shown.append(self._failed(action, NO_ANSWER, "the API server is out of reach"))
            return
        fault = self._fault(action, self.api.now_ns)
        if fault is not None:
            self._fail(action, fault)
            return
        self._apply(action, self.api.now_ns)

    def leaves_out(self, action: Action, decided_ns: int) -> bool:
        """True if it is not sent, since what it depends on failed."""
        if not self._failed_now:
            return False
        key = queue_key(action, self.api.store)
        failed = self._failed_now.before(key, action, decided_ns)
        if failed is None:
            return False
        self.failures.append(Outcome(action, NOT_SENT))
        if learns_of_failure(action, failed):
            self._tell(Outcome(action, failed.result.code, failed.result.message))
        else:
            self._decided_ns = decided_ns
            self._note_failed(action, Result(NOT_SENT))
        return True

    def _all_go_well(self) -> bool:
        return self._faults is None and self._failing is None and self._withheld is None

    def cut_off(self) -> None:
        """Cut the controllers off from the API server: they get no events, all their writes fail.

        What they had received stays as it was, except heartbeats: these end.
        """
        if self._withheld is None:
            self.kubelets.publish_all(self.api.now_ns)
            self._shown, self.api.pending, self._withheld = self.api.pending, [], []
            self._shown.append(self.leases.cut_off())

    def reconnect(self) -> None:
        """The controllers list everything anew: they see the present state, not past changes."""
        withheld, self._withheld = self._withheld, None
        if withheld is not None:
            self.api.pending[:0] = latest(withheld)
            self.kubelets.publish_all(None)
            self.api.pending.append(self.leases.at_present())

    def _fault(self, action: Action, now_ns: int) -> InjectedFault | None:
        """The failure of a write; None where it succeeds."""
        if self._faults is not None and (fault := self._faults(action, now_ns)) is not None:
            return fault
        if self._failing is None or action.controller == CLUSTER:
            return None
        return self._failing.fault(action, self.api.store.get(*action.target), now_ns)

    def end(self) -> None:
        """Remove the reference cycles among the cluster's parts, so that they are freed with the
        last reference to the world, without the garbage collector.
        """
        self.agenda.clear()
        self.asker = None
        self.api.forget_listeners()
        if self.clients is not None:
            self.clients.end()
        self.kubelets.forget_listeners()
        if self.managers is not None:
            self.managers.end()
        self.machines.forget_listeners()
        self.scheduler.end()
        self.owners.on_successor = None

    def _tick(self) -> tuple[int, Iterable[Event]]:
        api = self.api
        self._count_round(api.now_ns)
        if self.clients is None:
            self._failed_now = None
        elif self._failed_now:  # what depends on it may come later
            self._failed_now.forget_before(api.now_ns)
        self.scheduler.place_waiting()
        events, api.pending = api.pending, []
        if self._withheld is not None:
            self._withheld += events
            events, self._shown = self._shown, []
        return api.now_ns, events

    def _count_round(self, now_ns: int) -> None:
        """Raises StandstillError."""
        if now_ns - self._rounds_since_ns > MILLISECOND_NS:
            self._rounds, self._rounds_since_ns = 0, now_ns
            self._written = False
        self._rounds += 1
        self._lags = self._lags or (self._written and self._rounds > _LOOP_TICKS)
        if self._rounds > MOST_TICKS:
            raise StandstillError(
                f"virtual time does not get past {format_time(now_ns)}: something is done and "
                "undone over and over",
                remedy="look with --until shortly before that at what happens",
            )

    def _apply(self, action: Action, now_ns: int) -> None:
        kind, key = action.target
        old = self.api.store.get(kind, key)
        if old is not None and (uid := action.uid) and uid != old.metadata.uid:
            self.refuse(action, NOT_FOUND, f"the {kind} of that name is another one now")
            return
        if type(action) in _ADMITTED and (refused := self._forbidden(action, old)) is not None:
            self.refuse(action, refused.code, refused.cause or refused.message)
            return
        if type(action) in PRECONDITIONS and not self._holds(action, old):
            return
        if type(action) is EvictPod and isinstance(old, Pod):
            answer = self.disruption.evict(old)
            if isinstance(answer, EvictionRefused):
                self.refuse(action, answer.code, answer.cause or answer.message)
                return
        new = action.effect(old, now_ns)
        if new is old:
            if old is None:
                self.refuse(action, NOT_FOUND, f"{kind} {'/'.join(filter(None, key))} not found")
            return
        self._written = self._written or action.controller != CLUSTER
        if new is None:
            self.api.drop(kind, key, action)
            return
        if old is None and type(new) is Pod:
            new = self.scheduler.bind(self.api.default_tolerations.admit(new))
        self.api.put(kind, new, action)

    def _forbidden(self, action: Action, old: KubeObject | None) -> EvictionRefused | None:
        """Admission's refusal of what a controller asks for, or None."""
        admission = self.api.admission
        if type(action) is DeletePod:
            if not admission.has_rules or action.controller == CLUSTER:
                return None
            return admission.refuses_deletion(old) if isinstance(old, Pod) else None
        if type(action) is EvictPod:
            return admission.refuses_eviction(old) if isinstance(old, Pod) else None
        kind, (namespace, name) = action.target
        return admission.refuses_creation(kind, namespace, name)

    def _mark(self, marks: list[MarkPodNotReady], now_ns: int) -> None:
        """Carry out the marks of a node's pods, and empty the list. As `_apply`, all at once."""
        pods = self.api.store.pods
        changes: list[ConditionsChange] = []
        for mark in marks:
            old = pods.get((mark.namespace, mark.pod))
            if old is None or old.metadata.uid != mark.pod_uid:
                self._apply(mark, now_ns)
                continue
            new = mark.effect(old, now_ns)
            if type(new) is Pod and new is not old:
                changes.append((old, new, mark))
        if changes:
            self.api.put_conditions(changes)
        marks.clear()

    def _holds(self, action: Action, old: KubeObject | None) -> bool:
        """True if the server accepts the action; if not, it is refused here."""
        why = PRECONDITIONS[type(action)](self.api.store, action, old)
        if why:
            if old is not None:
                self.api.pending.append(Put(type(old).__name__, old))
            self.refuse(action, CONFLICT, why)
        return not why

    def _fail(self, action: Action, fault: InjectedFault) -> None:
        if fault.applied:
            self._apply(action, self.api.now_ns)
        outcome = self._failed(action, fault.code, fault.message)
        if fault.delay_ns:
            at_ns = self.api.now_ns + fault.delay_ns
            self.agenda.add(at_ns, KUBELET, self._answer_late, outcome)
        else:
            self.api.pending.append(outcome)

    def _answer_late(self, outcome: Outcome, at_ns: int) -> None:
        self.api.pending.append(outcome)

    def _hits_kubelet(self, action: Action) -> bool:
        """True if a fault hits a kubelet's write, so that it fails."""
        fault = self._fault(action, self.api.now_ns)
        if fault is None or fault.applied:
            return False
        self.api.note(action)
        self.failures.append(Outcome(action, fault.code, fault.message))
        return True

    def refuse(self, action: Action, code: int, message: str) -> None:
        """Answer a call with an error; its caller gets it in the next tick."""
        self.api.pending.append(self._failed(action, code, message))

    def _failed(self, action: Action, code: int, message: str) -> Outcome:
        outcome = Outcome(action, code, message)
        self.failures.append(outcome)
        self._note_failed(action, Result(code, message))
        kind, (_, name) = action.target
        if kind == "Node":
            self.kubelets.post_for_real(name)
        return outcome

    def _note_failed(self, action: Action, result: Result) -> None:
        """What depends on it is not sent."""
        failed = FailedWrite(action, self._decided_ns, result, self.api.now_ns)
        if self._failed_now is None:
            self._failed_now = FailedWrites()
        self._failed_now.note(queue_key(action, self.api.store), failed)


_ADMITTED = frozenset({CreatePod, CreateControllerRevision, DeletePod, EvictPod})
