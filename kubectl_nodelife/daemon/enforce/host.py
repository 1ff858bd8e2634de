"""The engine of the enforcing controllers, over what the cluster shows and nothing else.

A decision task drives it as it drives the dry run. News of an object wait while a write of it is on
its way, so that a failure is known before what others did meanwhile; a version older than one
already seen is left out, since an answer may overtake the watch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.podgc import PodGCController
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.controller_host import ClusterHost
from kubectl_nodelife.daemon.enforce.tripwires import Tripwires
from kubectl_nodelife.daemon.logs import log_bug
from kubectl_nodelife.engine.actions import ActionNumbers
from kubectl_nodelife.engine.engine import QUARANTINED
from kubectl_nodelife.engine.events import Event, Gone, Outcome, Put
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.settlement import is_old
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Ref
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.news import FAILING, KindPhase, ListNews, News

JOIN, RESTART = "join", "restart"


class EnforcingHost(ClusterHost):
    """Runs the engine of the enforcing controllers on what the cluster shows.

    All that was seen counts as one instant: upstream's workers find the caches as they are by then,
    and a revision that was made right before its set was changed must count in the set's sync. As a
    restarted controller it does not begin cold, since upstream's own grace periods begin anew.

    `executor` is set once the cache is there for it. `monotonic_ns`: a clock
    that nobody can set, for the tripwires; None: the instants of the ticks. `dates_count_from_ns`:
    dates of the cluster from before are of another clock. `newest`: kind -> the highest version of
    a list of it, over all terms; `on_time_back` gets why the cluster's data must have been
    restored.
    """

    one_instant = True
    warms_up_anew = True

    def __init__(
        self,
        begin: str,
        began: Callable[[list[str]], None],
        numbers: ActionNumbers,
        on_bug: Callable[[Bug], None] = log_bug,
    ) -> None:
        """`began` receives the names of the controllers at the instant of the first decision,
        `on_bug` each exception that is contained here.
        """
        super().__init__()
        self.executor: LiveExecutor | None = None
        self.tripwires: Tripwires | None = None
        self.monotonic_ns: Callable[[], int] | None = None
        self.dates_count_from_ns: Callable[[], int] = lambda: 0
        self.newest: dict[str, int] = {}
        self.on_time_back: Callable[[str], None] = lambda because: None
        self.on_unseen: Callable[[], None] = lambda: None
        self._begin = begin
        self.restarted = begin == RESTART
        self._began = began
        self._numbers = numbers
        self._on_bug = on_bug
        self._waiting: list[Event] = []
        self._in_pass: set[str] = set()

    # What a decision task asks for

    def join(self, settings: Settings, names: Iterable[str], *, restarted: bool = False) -> None:
        """Begin: beside a controller that ran until now, or as a restarted one.

        `restarted`: another manager has just begun; only a host that follows it uses that.
        """
        joining = self._begin == JOIN
        self._begin = JOIN  # taints are stripped once: what begins anew later joins
        engine = self._make_engine(
            settings, names, join=joining, numbers=self._numbers, on_bug=self._on_bug
        )
        for controller in engine.controllers:
            if isinstance(controller, NodeLifecycleController):
                controller.memory.begins_cold, controller.awaits_writes = joining, True
                controller.memory.unworked.update(self.cache.nodes)  # as at any start upstream
                controller.memory.unconfirmed.update(self.cache.nodes)  # marks may be half done
            elif isinstance(controller, TaintEvictionController):
                controller.dates_count_from_ns = self.dates_count_from_ns()
            elif isinstance(controller, DaemonSetController):
                controller.queue.keeps_later = True  # one sync more does no harm
        self._began([c.name for c in engine.controllers])

    def withdraw(self, now_ns: int, because: str) -> None:
        """Drop what waits to be sent; it is decided anew."""
        if self.executor is not None:
            self.executor.drop()
        for event in self._waiting:  # what the cluster showed stays seen, or the cache goes stale
            if isinstance(event, (Put, Gone)):
                self.cache.apply(event, now_ns)
        self._waiting.clear()

    def note(self, item: News, now_ns: int) -> None:
        """Find a list that is older than one before it, since all that is known is wrong then; and
        a watch that broke: if many nodes stop reporting now, this process may be cut off.
        """
        if isinstance(item, ListNews) and item.version.isdecimal():
            version, before = int(item.version), self.newest.get(item.kind, 0)
            self.newest[item.kind] = version
            if version < before:
                self.on_time_back(
                    f"the list of {item.kind} is of version {version}, and one before it was of "
                    f"{before}: the cluster's data were restored"
                )
        fails = isinstance(item, KindPhase) and item.phase == FAILING
        if fails and self.tripwires is not None and self.engine is not None:
            self.tripwires.trouble(now_ns)

    def time_passed_unseen(self) -> None:
        self.on_unseen()

    def begins_warm(self) -> bool:
        """True for a host that begins as a restarted controller."""
        return self.restarted

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[None]:
        """Take one tick in, and begin each decision."""
        assert self.engine is not None and self.executor is not None
        executor, tripwires = self.executor, self.tripwires
        self._put_off_passes(now_ns)
        ready = self._ready(events)
        unset_ns = self.monotonic_ns() if self.monotonic_ns is not None else now_ns
        if tripwires is not None:
            earlier: dict[Ref, KubeObject | None] = {}
            for event in ready:
                try:
                    tripwires.sees(event, unset_ns, earlier)
                except Exception as error:  # we would not notice another writer: nothing is sent
                    self._contain("tripwires", type(event).__name__, error, now_ns)
        for action in self.engine.step(now_ns, ready):
            try:
                if tripwires is not None:
                    tripwires.decides(action, unset_ns)
                executor.start(action, now_ns)
            except Exception as error:  # a bug of ours: the action ends unsent
                self._contain(action.controller, action.target, error, now_ns)
                self._waiting.append(Outcome(action, QUARANTINED, "a bug of ours"))
                executor.refuse(action, now_ns, "a bug of ours")
            yield
        self._end_pass(now_ns)

    def _end_pass(self, now_ns: int) -> None:
        """The last write of a monitor pass has ended, or it had none: zones are counted next."""
        assert self.engine is not None and self.executor is not None
        lifecycle = self.lifecycle
        if lifecycle is None or not lifecycle.may_end_pass:
            return
        if not self.executor.is_in_pass(lifecycle.name):
            self.engine.wake(lifecycle.end_pass_at(now_ns + 1))

    def _put_off_passes(self, now_ns: int) -> None:
        """A pass begins one period after the writes of the one before it have ended.

        Follows `wait.UntilWithContext`, by which upstream runs `monitorNodeHealth` and `gc`.
        """
        assert self.engine is not None and self.executor is not None
        before = self._in_pass
        self._in_pass = set()
        for controller in self.engine.controllers:
            if not isinstance(controller, (NodeLifecycleController, PodGCController)):
                continue
            if busy := self.executor.is_in_pass(controller.name):
                self._in_pass.add(controller.name)
            if busy or controller.name in before:
                self.engine.wake(controller.pass_at(now_ns + controller.period_ns))

    def _contain(self, who: str, about: Hashable, error: Exception, now_ns: int) -> None:
        self._on_bug(self.cache.quarantine.failed(who, about, error, now_ns))

    def _ready(self, events: Iterable[Event]) -> list[Event]:
        """The events to take in now, outcomes first."""
        assert self.executor is not None
        arrived = list(events)
        outcomes = [e for e in arrived if isinstance(e, Outcome)]
        others = [*self._waiting, *(e for e in arrived if not isinstance(e, Outcome))]
        self._waiting = []
        ready: list[Event] = []
        for event in others:
            if isinstance(event, (Put, Gone)) and event.target in self.executor.sending:
                self._waiting.append(event)
            elif not is_old(event, self.cache):
                ready.append(event)
        fresh = [e for e in ready if isinstance(e, Put)] if outcomes else []
        if not fresh:
            return [*outcomes, *ready]
        return [*ready, *outcomes]  # decide anew on what came with the failure
