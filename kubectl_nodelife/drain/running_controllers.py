"""The cluster's own controllers while a plan is played: they go on with what they had begun.

A node that is late turns Unknown, a pod whose toleration ends is deleted by the taint manager, and
its replacement counts for the budget that a drain waits for. They run until nothing of that is left
to come, an hour at most; where no node is in trouble they decide nothing, and do not run at all.
A drain moves no pod of a DaemonSet: its controller is among them only where a pod of one is being
deleted, since the next one takes the room on that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import Action, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Heartbeats
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.sign_of_life import sign_of_life
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS
from kubectl_nodelife.sim.joined import joined_kubelets
from kubectl_nodelife.sim.kubelet_state import HeartbeatSchedule, KubeletTerms
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting
from kubectl_nodelife.sim.world import World

HORIZON_NS: Final = HOUR_NS
NAMES: Final = ("node-lifecycle", "taint-eviction", "pod-gc")
_LEAST_NS: Final = 2 * MINUTE_NS
"""Pod-gc finds a pod on a node that is gone in the round after 40 s of quarantine."""


def in_trouble(node: Node, cache: Cache, now_ns: int, settings: Settings) -> bool:
    """True if a controller may have something to decide about the node's pods by itself."""
    if not node.is_ready or no_execute_taints(node.spec.taints):
        return True
    return sign_of_life(node, cache, now_ns, settings.leases_count).is_late(now_ns)


def reporting_kubelets(
    store: Cache, now_ns: int, settings: Settings
) -> dict[str, HeartbeatSchedule]:
    """The kubelets that go on where those that are late are slow, by node."""
    scenario = Scenario("", "plan", join=True)
    setting = Setting(scenario, settings.profile, now_ns, store, frozenset()).under(settings)
    return joined_kubelets(replace(setting, late_kubelets_renew=True))


class JoinedControllers:
    """The controllers at the moment of a plan, joined once and forked for each of its plays.

    `reporting`: the kubelets that go on; `overdue`: what the controllers do at that very moment.
    """

    def __init__(
        self,
        store: Cache,
        now_ns: int,
        settings: Settings,
        reporting: Mapping[str, HeartbeatSchedule],
        *,
        daemon_sets: bool = False,
    ) -> None:
        """`store`: all that the plays hold; it is not changed. `daemon_sets`: whether it holds any,
        each with all its pods.
        """
        names = (*NAMES, "daemonset") if daemon_sets else NAMES
        made = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
        posts_ns = KubeletTerms().for_leases(settings.leases_count).post_every_ns
        self.reporting = reporting
        self.silent = store.nodes.keys() - reporting.keys()
        self.engine = Engine(made, store.copy(), join=True)
        beats = [
            Heartbeats(name, beats.first_ns, beats.every_ns, None, beats.post_ns, posts_ns)
            for name, beats in reporting.items()
        ]
        self.overdue = [decided for decided in self.engine.turns(now_ns, beats) if decided]


class RunningControllers:
    """See the module. `deleted`: what they deleted, as (instant in ns since the epoch, action)."""

    def __init__(self, world: World, joined: JoinedControllers) -> None:
        self.deleted: list[tuple[int, DeletePod]] = []
        self._world = world
        self._start_ns = world.api.now_ns
        self._silent = joined.silent
        self._quiet = False
        self._engine = joined.engine.fork(world.api.numbers)
        found = self._engine.controllers
        self._lifecycle = next(c for c in found if isinstance(c, NodeLifecycleController))
        self._taints = [c for c in found if isinstance(c, TaintEvictionController)]
        for decided in joined.overdue:
            self._carry_out(decided, self._start_ns)
        self.step(())

    def next_due(self) -> int | None:
        """When they look again, ns since the epoch; None: nothing is left that they would do."""
        return None if self._quiet else self._engine.next_due()

    def step(self, events: Iterable[Event]) -> None:
        """They receive the events, and what they decide happens at once."""
        world, engine = self._world, self._engine
        now_ns = world.api.now_ns
        while True:
            for decided in engine.turns(now_ns, events):
                self._carry_out(decided, now_ns)
            if not world.api.pending:
                break
            _, events = world.advance(now_ns)
        self._quiet = not self._is_under_way(now_ns)

    def _carry_out(self, decided: Sequence[Action], now_ns: int) -> None:
        for action in decided:
            if isinstance(action, DeletePod):
                self.deleted.append((now_ns, replace(action, cause=None)))
        self._world.start_all(decided, now_ns)

    def _is_under_way(self, now_ns: int) -> bool:
        """True if a timer runs, a node waits for its taint, or a silent one for its verdict."""
        since_ns = now_ns - self._start_ns
        if since_ns < _LEAST_NS or since_ns > HORIZON_NS:
            return since_ns < _LEAST_NS
        memory, nodes = self._lifecycle.memory, self._world.api.store.nodes
        if any(len(queue) for queue in memory.zones.queues.values()):
            return True
        if any(taints.workers.nodes() for taints in self._taints):
            return True
        ready = (nodes[name].ready() for name in self._silent if name in nodes)
        return any(found is not None and found.status != "Unknown" for found in ready)
