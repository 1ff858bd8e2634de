"""Upgrades on the virtual cluster: the leaders of a run, each a process with a cache of its own.

A leader has an engine of its own (`LeaderEngine`), as the live one has. The API server accepts each
of its PATCHes only while the object is as the leader saw it. Users start, pause, resume and abort
the run by its Lease, as the commands do; the next leader begins with the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import document
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.controller import LeaderEngine, UpgradeController
from kubectl_nodelife.controllers.upgrade.gates import WINDOW
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.memory import HostState
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_digest
from kubectl_nodelife.controllers.upgrade.report import TimeLeft, time_left
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls.call import CONFLICT
from kubectl_nodelife.engine.engine import EngineHost
from kubectl_nodelife.engine.events import Event, Outcome
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec
from kubectl_nodelife.kube.times import HOUR_NS, format_time
from kubectl_nodelife.sim.api import RunRecorder, event_record
from kubectl_nodelife.sim.events import UpgradeCommandEvent, UpgradeEvent
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.upgrade_course import PlayedRun, UpgradeWatch
from kubectl_nodelife.sim.upgrade_work import VirtualWork
from kubectl_nodelife.sim.world import World

RUN: Final = "u1"
MOST_WAITING: Final = 20
"""How many pods that would stay Pending are named."""

MakeDecider = Callable[[UpgradePolicy, int, int], UpgradeController]
"""An upgrade controller for a policy and an epoch, that begins at that instant."""


class VirtualLeader:
    """One leader's process, the host of its engine. `alive`: it neither died nor ended."""

    def __init__(self, runs: VirtualUpgrades, controller: UpgradeController, cache: Cache) -> None:
        self._runs, self._world = runs, runs.world
        self.controller, self.epoch = controller, controller.epoch
        self.engine = LeaderEngine(controller, cache, numbers=runs.world.api.numbers)
        self.alive = True
        self._patched: list[tuple[actions.Action, KubeObject | None]] = []

    def next_due_ns(self) -> int | None:
        """When it is due next."""
        return self.engine.next_due()

    def take_in(self, events: Iterable[Event], now_ns: int) -> None:
        """Take in the events of its watches, and outcomes: those of actions that failed first."""
        self.engine.take_in(events, now_ns)
        self.engine.take_in(self._shown_patches(), now_ns)

    def _shown_patches(self) -> Iterator[Outcome]:
        """The success of each PATCH whose object the cache has a later version of.

        A live leader compares the resourceVersion of the answer. Here a PATCH is applied only to
        the object that the cache holds, so that any other object there is the patched one or one
        that came after it: what another client changed meanwhile may hide what was patched.
        """
        waiting = self._patched
        self._patched = []
        for action, before in waiting:
            if self.engine.cache.get(*action.target) is before:
                self._patched.append((action, before))
            else:
                yield Outcome(action, 200)

    def step(self, now_ns: int) -> Iterator[Sequence[actions.Action]]:
        """A pass, if one is due: what it decides is carried out at once."""
        due_ns = self.engine.next_due()
        if due_ns is None or now_ns < due_ns:
            return
        lease = self._lease()
        if lease is None or lease.spec.lease_transitions != self.epoch:
            self.alive = False  # another process leads
            return
        for decided in self.engine.decide(self.host_state(now_ns), now_ns):
            for action in decided:
                self._runs.note(action, now_ns)
                self._carry_out(action, now_ns)
            yield decided
        if self.controller.superseded or self.controller.is_over:
            self.alive = False

    def host_state(self, now_ns: int) -> HostState:
        """Its facts beside the cluster: nothing is unread, and `--gate` passes."""
        return HostState(gate_command="", gate_runs=1)

    def work_ended(self, action: actions.StartWork) -> None:
        """One of its commands has ended, and well."""
        if self.alive:
            self.controller.work_ended(action.node, action.try_, 0)
            self.engine.wake_controller(self._world.api.now_ns)

    def _lease(self) -> Lease | None:
        lease = self.engine.cache.get("Lease", self._runs.policy.lease_key)
        return lease if isinstance(lease, Lease) else None

    def _carry_out(self, action: actions.Action, now_ns: int) -> None:
        if isinstance(action, actions.StartWork):
            self._runs.work.start(action, self.work_ended)
        elif isinstance(action, actions.StopWork):
            self._runs.work.stop(action)
        elif action.writes:
            if isinstance(action, (actions.NodeMarkPatch, actions.UpdateRun)):
                seen = self.engine.cache.get(*action.target)
                if self._world.api.store.get(*action.target) is not seen:
                    self._world.refuse(action, CONFLICT, "the object has been modified")
                    return
                self._patched.append((action, seen))
            self._world.start(action, now_ns)


class VirtualUpgrades:
    """The host of the engine and, once a run was begun, of its leaders.

    `leaders`: those that are alive; users' requests go to the last. `done`: how many nodes are.
    """

    def __init__(
        self, world: World, journal: RunRecorder, make_decider: MakeDecider, host: EngineHost
    ) -> None:
        self.world = world
        self.policy = UpgradePolicy()
        self.work: VirtualWork
        self.watch: UpgradeWatch | None = None
        self.leaders: list[VirtualLeader] = []
        self._host = host
        self._last: UpgradeController | None = None
        self._acted_ns = self._opened_ns = 0
        self._journal = journal
        self._make_decider = make_decider
        self._to_lead: list[document.UpgradeRequest | None] = []
        self._foretold: TimeLeft | None = None
        self.done = 0

    @property
    def over(self) -> bool:
        """True if a run was begun, its last leader has ended, and none is about to start."""
        run = document.document_of(self._lease())
        is_led = bool(self.leaders or self._to_lead)
        return run is not None and run.phase in document.OVER and not is_led

    @property
    def stands_still(self) -> bool:
        """True if nothing more will happen in the run by itself: no node is in flight, and the
        candidates have been held for longer than by any hold that ends, or for a whole maintenance
        window.
        """
        if self._last is not None and self._last.superseded and not self.leaders:
            return True
        last = self._last.last if self._last is not None else None
        if last is None or last.in_flight or last.gone or self._to_lead:
            return False
        if last.phase is document.RunPhase.PAUSED:
            return True
        if WINDOW in last.gates:
            return self._opened_ns > self._acted_ns
        limit_ns = self.policy.drain_timeout_ns + self.policy.soak_ns + HOUR_NS
        return self.world.api.now_ns - max(self._acted_ns, self._opened_ns) > limit_ns

    # The scenario's events

    def begin(self, event: UpgradeEvent) -> None:
        """A user runs `upgrade start`: the Lease gets the run's document, and a leader."""
        policy, api = event.policy, self.world.api
        self.policy = policy
        self.watch = UpgradeWatch(self.world, policy)
        self.work = VirtualWork(self.world, event)
        self._to_lead.append(None)
        run = document.RunDocument(
            run=RUN, policy=policy_digest(policy), started=format_time(api.now_ns)
        )
        namespace, name = policy.lease_key
        annotations = {document.ANNOTATION_RUN: document.encode_document(run)}
        lease = api.fill_in(
            Lease(
                metadata=LeaseMeta(name=name, namespace=namespace, annotations=annotations),
                spec=LeaseSpec(lease_transitions=0),
            )
        )
        api.put("Lease", lease, self._record("UpgradeStarted", "a user runs upgrade start"))

    def command(self, event: UpgradeCommandEvent) -> None:
        """A user runs a command, or the leader's process dies."""
        if event.command == "leader-dies":
            self._record("LeaderDied", "the leader's process ends, and nothing else happens")
            for leader in self.leaders:
                leader.alive = False
            return
        verb = document.Verb(event.command)
        self._record(f"Upgrade{verb.value.capitalize()}", f"a user runs upgrade {verb.value}")
        self.request(document.UpgradeRequest(verb=verb, by="simulation"))

    def request(self, request: document.UpgradeRequest) -> None:
        """Leave a request for the leader; resume and abort start one where there is none."""
        lease = self._lease()
        if lease is None:
            self._record("NotFound", f"no run is there to {request.verb.value}", warning=True)
            return
        annotations = {
            **(lease.metadata.annotations or {}),
            document.ANNOTATION_REQUEST: document.encode_document(request),
        }
        meta = replace(lease.metadata, annotations=annotations)
        self.world.api.put("Lease", replace(lease, metadata=meta))
        if (
            not any(leader.alive for leader in self.leaders)
            and request.verb is not document.Verb.PAUSE
        ):
            self._to_lead.append(request)

    def note(self, action: actions.Action, now_ns: int) -> None:
        """Record what a leader decided."""
        self._journal.write(now_ns, action)
        if isinstance(action, actions.SetGate):
            self._opened_ns = self._opened_ns if action.holds else now_ns  # any gate that lifts
        elif action.writes:
            self._acted_ns = now_ns
            if (
                isinstance(action, actions.NodeMarkPatch)
                and action.to == NodeState.DONE != action.from_
            ):
                self.done += 1

    def course(self, timeline: Timeline) -> PlayedRun | None:
        """The run's course so far; None where none was begun."""
        if self.watch is None:
            return None
        world, last = self.world, self._last
        cold_ns = last.ports.grace_period_ns if last is not None else 0
        course = self.watch.course(timeline.entries, world.failures, cold_ns)
        if last is not None and last.last is not None:
            held = {name: ClaimHold("", why) for name, why in last.last.skipped.items()}
            held |= last.holds
            course.held = {name: hold for name, hold in held.items() if name not in course.turns}
        course.foretold = self._foretold
        placement = world.scheduler.placement
        course.waiting = [
            f"{pod.namespace}/{pod.name}: {placement.no_room(pod)}"
            for pod in world.api.store.pods.values()
            if not pod.spec.node_name and pod.status.phase in ("", "Pending")
        ][:MOST_WAITING]
        return course

    # The host

    def next_due(self) -> int | None:
        """When the engine, or a leader, is due."""
        if self._to_lead:
            return self.world.api.now_ns
        due = (self._host.next_due(), *(leader.next_due_ns() for leader in self.leaders))
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[actions.Action]]:
        """One tick: the engine's decisions first, then those of each leader.

        The leaders get what the engine's controllers write at the same instant, before they decide:
        else each return of a node would cause them a conflict.
        """
        happened = list(events)
        yield from self._host.step(now_ns, happened)
        for leader in self.leaders:
            leader.take_in(happened, now_ns)
        if self._to_lead:
            self._to_lead.clear()  # one of them gets the Lease, the others are answered 409
            self.lead(now_ns)
        for leader in self.leaders if not self.world.api.pending else ():
            yield from leader.step(now_ns)
            if self.watch is not None:
                self.watch.held({by for by, _ in leader.controller.holds.values()})
            last = leader.controller.last
            if self._foretold is None and last is not None and last.memory.candidates:
                self._foretold = time_left(last)
        self.leaders = [leader for leader in self.leaders if leader.alive]

    def lead(self, now_ns: int) -> VirtualLeader:
        """A process takes the Lease, with the next epoch."""
        cache = self._host.engine.cache.copy()
        lease = self._lease()
        assert lease is not None
        epoch = (lease.spec.lease_transitions or 0) + 1
        spec = replace(lease.spec, holder_identity=f"simulation-{epoch}", lease_transitions=epoch)
        lease = replace(lease, spec=spec)
        self.world.api.put("Lease", lease)
        cache.set("Lease", lease.key, lease)
        controller = self._make_decider(self.policy, epoch, now_ns)
        leader = self.make_leader(controller, cache)
        self.leaders.append(leader)
        self._last, self._acted_ns = controller, now_ns
        return leader

    def make_leader(self, controller: UpgradeController, cache: Cache) -> VirtualLeader:
        """A leader's process."""
        return VirtualLeader(self, controller, cache)

    def _lease(self) -> Lease | None:
        lease = self.world.api.store.get("Lease", self.policy.lease_key)
        return lease if isinstance(lease, Lease) else None

    def _record(self, reason: str, because: str, *, warning: bool = False) -> actions.Action:
        about = ("Lease", *self.policy.lease_key)
        return self.world.api.note(event_record(about, reason, because, warning=warning))
