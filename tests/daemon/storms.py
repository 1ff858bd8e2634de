"""A daemon's inside beside a simulated cluster in random weather, on one virtual clock.

The cluster is the simulator's: kubelets that fall silent, report trouble and return, taints and
cordons by hand, nodes and pods that are deleted and made again. What it shows reaches the decision
task some hundredths of a second late, sometimes seconds late. In one kind of storm nobody acts on
it; in the other our own controllers do, in a phase that has nothing to do with the task's.
"""

import json
import random
from collections.abc import Iterable, Iterator

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Gone, Heartbeats, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.live.news import WatchNews
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.world import World
from tests.daemon.lab import SECOND, T0, Lab, lease
from tests.random.weather import Storm, daemon_set
from tests.sim.documents import Json, document, node, owner, pod

STORM_S = 120
CALM_S = 150
"""Longer than the quarantine of a deleted node's pods and all periods of these settings."""

CONTROLLERS = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")
_LATE_NS = 50 * MILLISECOND_NS


def storm(seed: int) -> Json:
    """The scenario of a seed: a storm, then everything is put right, then calm."""
    return _Storm(seed).scenario()


class _Storm(Storm):
    storm_s, zones, weights = STORM_S, "abc", (30, 25, 12, 8, 8, 6, 8, 5, 6)

    def scenario(self) -> Json:
        dice = self.dice
        objects = [*self._nodes(), *self._workloads()]
        if dice.random() < 0.5:
            objects.append(daemon_set())
        events = [self.event() for _ in range(dice.randint(2, 14))]
        return document(
            profile="v1.36",
            flags={
                "node-monitor-period": dice.choice(("1s", "2s")),
                "node-monitor-grace-period": dice.choice(("8s", "10s", "12500ms")),
                "node-eviction-rate": dice.choice(("0.2", "1", "2")),
                "secondary-node-eviction-rate": dice.choice(("0.1", "0.5")),
                "large-cluster-size-threshold": dice.choice((1, 50)),
            },
            duration=f"{STORM_S + CALM_S}s",
            kubelet={
                "leaseRenewInterval": "2s",
                "leaseRenewPhase": f"{dice.randrange(2000)}ms",
                "nodeStatusReportInterval": "20s",
                "podStartDuration": "1s",
                "podStopDuration": "1500ms",
            },
            objects=objects,
            events=[*sorted(events, key=lambda e: float(e["at"][:-1])), *self.put_right()],
        )

    def _nodes(self) -> Iterator[Json]:
        for zone in self.zones[: self.dice.randint(1, 3)]:
            for number in range(self.dice.randint(1, 4)):
                self.nodes.append(f"{zone}{number}")
                yield node(self.nodes[-1], zone)

    def _workloads(self) -> Iterator[Json]:
        for number in range(self.dice.randint(1, 6)):
            name, size = f"w{number}", self.dice.randint(1, 3)
            kind = self.dice.choice(("ReplicaSet", "StatefulSet", ""))
            if kind:
                yield owner(kind, name, size)
            tolerates = self.dice.choice((0, 2, 6, 20, None, -1))
            for i in range(size):
                self.pods.append(f"{name}-{i}")
                home = self.dice.choice(self.nodes)
                of = (kind, name) if kind else None
                yield pod(self.pods[-1], home, owner=of, tolerates=tolerates)


class Beside:
    """The cluster of a seed. `acts`: our own controllers stand in for the real ones.

    `did` are the writes of those, with their instants.
    """

    def __init__(self, seed: int, *, acts: bool) -> None:
        self._dice = random.Random(seed)
        self._events = storm(seed)["spec"]["events"]
        scenario = parse_scenario(json.dumps(storm(seed)).encode(), f"seed-{seed}")
        setting = assemble(scenario)
        self.settings = make_settings(setting.profile, scenario.flags)
        self.end_ns = setting.start_ns + scenario.duration_ns
        self._told = Timeline(setting.start_ns)
        api = self._api = Api(self._told, setting.start_ns, setting.cluster.copy())
        rules = setting.status_rules if acts else None
        self._world = World(api, scenario.kubelet, end_ns=self.end_ns, status_rules=rules)
        Script(self._world, scenario.events)
        controllers = make_controllers(self.settings, CONTROLLERS) if acts else []
        kinds = sorted({kind for c in controllers for kind in c.watches})
        self._engine = Engine(
            controllers, self._world.begin(kinds), kinds=kinds, numbers=api.numbers
        )
        self._schedules: dict[str, Heartbeats] = {}
        self._news: list[Event] = []
        self.did: list[tuple[int, Action]] = []

    @property
    def now_ns(self) -> int:
        """The cluster's instant."""
        return self._api.now_ns

    def nodes(self) -> list[str]:
        """The nodes that are there."""
        return list(self._api.store.nodes)

    def deleted_by_hand(self) -> set[str]:
        """The names of the pods that the storm itself deletes."""
        deleted = (event.get("delete", {}) for event in self._events)
        return {what["name"] for what in deleted if what.get("kind") == "Pod"}

    async def play(self, lab: Lab) -> None:
        """The task begins some time after the cluster, and follows it to the end."""
        self._until(self.now_ns + self._dice.randrange(0, 40_000) * MILLISECOND_NS)
        await self.join(lab)
        take_at = self.now_ns
        while True:
            engine = lab.decisions.host.engine
            due = _next_ms(engine.next_due() if engine is not None else None)
            if self._news:
                due = min(due, self.now_ns + _LATE_NS)
            take_at = max(take_at, due)
            if self._dice.random() < 0.01:
                take_at += self._dice.randrange(3_000) * MILLISECOND_NS  # our own process stalls
            take_at = min(take_at, self.now_ns + SECOND)
            if take_at > self.end_ns:
                return
            self._until(take_at)
            _set_clock(lab, self.now_ns)
            news, self._news = self._news, []
            await lab.decisions.take([WatchNews(_kind(e), [e]) for e in _versions(lab, news)])

    async def join(self, lab: Lab) -> None:
        """A task begins now."""
        _set_clock(lab, self.now_ns)
        store = self._api.store
        leases = [self._lease(s, self.now_ns) for s in self._schedules.values()]
        objects: Iterable[KubeObject] = [
            *store.all("Node"),
            *store.all("Pod"),
            *store.all("DaemonSet"),
            *store.all("ControllerRevision"),
            *(found for found in leases if found is not None),
        ]
        self._news = []
        await lab.begin(*objects)

    def _until(self, end_ns: int) -> None:
        """Let the cluster live up to this instant."""
        while True:
            renews = (_renewal_after(s, self.now_ns) for s in self._schedules.values())
            due = [self._world.agenda.next_at(), self._engine.next_due(), *renews]
            at_ns = min((d for d in due if d is not None), default=end_ns)
            if self._api.pending:
                at_ns = self.now_ns
            if at_ns > end_ns:
                break
            before = self.now_ns
            _, events = self._world.advance(at_ns)
            for schedule in list(self._schedules.values()):
                found = self._lease(schedule, at_ns)
                if found is not None and (found.spec.renew_time or 0) > before:
                    self._news.append(Put("Lease", found))
            events = list(events)
            self._note(events)
            for action in self._engine.step(at_ns, events):
                if action.writes:
                    self.did.append((at_ns, action))
                self._world.start(action, at_ns)
        self._api.now_ns = end_ns

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Heartbeats):
                begins = event.first_ns == self.now_ns and event.stop_ns is None
                self._schedules[event.node] = event
                if begins and (found := self._lease(event, self.now_ns)) is not None:
                    self._news.append(Put("Lease", found))
            elif isinstance(event, (Put, Gone)):
                self._news.append(event)
                if isinstance(event, Gone) and event.kind == "Node":
                    self._news.append(Gone("Lease", ("kube-node-lease", event.key[1])))

    def _lease(self, schedule: Heartbeats, now_ns: int) -> Lease | None:
        end_ns = now_ns if schedule.stop_ns is None else min(now_ns, schedule.stop_ns - 1)
        if end_ns < schedule.first_ns:
            return None
        passed = (end_ns - schedule.first_ns) // schedule.every_ns * schedule.every_ns
        return lease(schedule.node, schedule.first_ns + passed - T0)


def _renewal_after(schedule: Heartbeats, now_ns: int) -> int | None:
    first, every = schedule.first_ns, schedule.every_ns
    at_ns = first if now_ns < first else first + ((now_ns - first) // every + 1) * every
    return None if schedule.stop_ns is not None and at_ns >= schedule.stop_ns else at_ns


def _next_ms(at_ns: int | None) -> int:
    if at_ns is None:
        return 1 << 62
    return -(-at_ns // MILLISECOND_NS) * MILLISECOND_NS


def _set_clock(lab: Lab, now_ns: int) -> None:
    moved = now_ns - lab.wall
    lab.wall += moved
    lab.steady += moved
    lab.awake += moved


def _kind(event: Event) -> str:
    assert isinstance(event, (Put, Gone))
    return event.kind


def _versions(lab: Lab, news: Iterable[Event]) -> Iterator[Event]:
    """As a watch tells them: in their next version, and without anybody's reasons."""
    for event in news:
        if isinstance(event, Put):
            yield Put(event.kind, lab.version(event.obj))
        elif isinstance(event, Gone):
            yield Gone(event.kind, event.key)
