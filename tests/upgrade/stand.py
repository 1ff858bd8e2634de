"""A cluster small enough to read: what the upgrade controller decides is done at once.

Kubelets renew their Leases every ten seconds, the lifecycle controller follows cordons with its
taint, the scheduler places canaries and kubelets start and stop them; each of these can be switched
off. Drain verdicts are what a test says, else `ready` with every ordinary pod.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.zones import compute_zone_state
from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_RUN,
    RunDocument,
    Step,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import NodeMark, mark_of
from kubectl_nodelife.controllers.upgrade.memory import HostState, UpgradePorts
from kubectl_nodelife.controllers.upgrade.newcomers import is_ordinary
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_from
from kubectl_nodelife.engine.actions import (
    Action,
    NodeMarkPatch,
    RecordEvent,
    SetGate,
    StartWork,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.workload import DaemonSet
from tests.upgrade.stand_cluster import GRACE_NS, LEASE_KEY, RUN, START_NS, StandCluster


class Stand(StandCluster):
    """The cluster, the leader's controller, and what was decided so far (`did`)."""

    def __init__(self, *, grown: bool = True, cold: bool = False, **policy: Any) -> None:
        super().__init__()
        self.policy: UpgradePolicy = policy_from(
            {"work": {"mode": "run", "command": "true"}, "canaryImage": "pause", **policy}
        )
        self.verdicts: dict[str, DrainVerdict] = {}
        self.short_of_room: Callable[[str, Collection[str]], str] = lambda name, leaving: ""
        self.refuse: dict[str, tuple[int, str]] = {}
        self.blind = ""
        self.clock_ns = 0
        self.pods_listed_ns: dict[str, int] | None = None
        self.unread: tuple[str, ...] = ()
        self.gate_command: str | None = None
        self.gate_runs = 0
        self.did: list[Action] = []
        step = Step(pool="", k=9, window=0) if grown else Step()
        self.put(
            Lease(
                metadata=ObjectMeta(
                    name=LEASE_KEY[1],
                    namespace=LEASE_KEY[0],
                    annotations={
                        ANNOTATION_RUN: encode_document(
                            RunDocument(run=RUN, started=format_time(START_NS), step=step)
                        )
                    },
                )
            )
        )
        self.lead(1, cold=cold)

    def lead(self, epoch: int, *, cold: bool = False) -> None:
        """A leader with an empty memory; one that is not `cold` began a grace period ago."""
        began = self.now_ns if cold else self.now_ns - GRACE_NS
        self.epoch = epoch
        self.lease_transitions(epoch)
        self.controller = UpgradeController(self.policy, self._ports(), epoch, began)

    def lease_transitions(self, epoch: int) -> None:
        """The Lease as it is once somebody leads in that epoch."""
        lease = self.cache.get("Lease", LEASE_KEY)
        assert isinstance(lease, Lease)
        self.put(replace(lease, spec=replace(lease.spec, lease_transitions=epoch)))

    # Time

    def step(self) -> list[Action]:
        """One pass of the controller; what it decides is done. Events are left out."""
        self.controller.host = HostState(
            clock_ahead_ns=(self.clock_ns or self.now_ns) - self.now_ns,
            blind=self.blind,
            unread=self.unread,
            gate_command=self.gate_command,
            gate_runs=self.gate_runs,
            pods_listed_ns=self.pods_listed_ns,
        )
        actions = self.controller.make_pass(self.cache, self.now_ns)
        for action in actions:
            self._carry_out(action)
        told = [action for action in actions if not isinstance(action, RecordEvent)]
        self.did += told
        return told

    def settle(self) -> list[Action]:
        """Passes at one instant until nothing more is decided."""
        found: list[Action] = []
        for _ in range(50):
            self.react()
            actions = self.step()
            found += actions
            if not [a for a in actions if a.writes or isinstance(a, (StartWork, SetGate))]:
                return found
        raise AssertionError(f"no end of {found[-3:]}")

    def run(self, seconds: float, every: float = 5) -> list[Action]:
        """Time passes, a pass at least every few seconds."""
        found = self.settle()
        end = self.now_ns + int(seconds * SECOND_NS)
        while self.now_ns < end:
            self.now_ns = min(end, self.now_ns + int(every * SECOND_NS))
            found += self.settle()
        return found

    def ends(self, name: str, code: int, try_: int = 1) -> None:
        """The command on the node ends."""
        self.controller.work_ended(name, try_, code)

    # What is to be seen

    def node(self, name: str) -> Node:
        """The node."""
        found = self.cache.node(name)
        assert found is not None, name
        return found

    def state(self, name: str) -> str:
        """The node's state, "" where it has no mark."""
        mark = mark_of(self.node(name))
        return mark.state if mark is not None else ""

    def mark_of(self, name: str) -> NodeMark:
        """The node's mark."""
        mark = mark_of(self.node(name))
        assert mark is not None, name
        return mark

    def went_through(self, name: str) -> list[str]:
        """The states that the node has entered, in order."""
        found = [a for a in self.did if isinstance(a, NodeMarkPatch) and a.node == name]
        return [a.to for a in found if a.to]

    def claimed(self) -> list[str]:
        """Names of the nodes claimed so far."""
        return [a.node for a in self.did if a.word == "ClaimNode"]

    @property
    def gates(self) -> dict[str, str]:
        """The gates that hold, and why."""
        assert self.controller.last is not None
        return self.controller.last.gates

    @property
    def skipped(self) -> dict[str, str]:
        """Why nodes are not candidates."""
        assert self.controller.last is not None
        return self.controller.last.skipped

    @property
    def holds(self) -> dict[str, tuple[str, str]]:
        """What holds candidates."""
        assert self.controller.last is not None
        return self.controller.last.holds

    def waits_for(self, name: str) -> str:
        """What the node waits for in its state."""
        return self.controller.memory.progress_of(name).waits_for

    # The rest of the world

    def _carry_out(self, action: Action) -> None:
        word = action.word
        if word in self.refuse:
            self.controller.outcome(Outcome(action, *self.refuse[word]), self.cache, self.now_ns)
            return
        if not action.writes or isinstance(action, RecordEvent):
            return
        kind, key = action.target
        obj = action.effect(self.cache.get(kind, key), self.now_ns)
        if obj is None or (kind == "Pod" and word == "EvictPod"):
            self.cache.set(kind, key, None)
        else:
            self.put(obj)

    def _ports(self) -> UpgradePorts:
        return UpgradePorts(
            drain=self.verdict,
            room=self.shortage,
            daemon_sets=self.sets_for,
            zone_state=lambda ready, down: compute_zone_state(ready, down, 0.55),
            counts_in_zone=lambda node: True,
            grace_period_ns=GRACE_NS,
        )

    def verdict(
        self, cache: Cache, node: str, draining: Collection[str], now_ns: int
    ) -> DrainVerdict:
        """The drain planner."""
        pods = tuple(pod.key for pod in cache.pods_on(node) if is_ordinary(pod))
        said = self.verdicts.get(node)
        if said is None:
            return DrainVerdict("ready", moving=pods, evictable=pods)
        return said if said.moving else said._replace(moving=pods)

    def shortage(
        self, cache: Cache, node: str, moving: Any, leaving: Mapping[str, Any], now_ns: int
    ) -> str:
        """The virtual scheduler."""
        return self.short_of_room(node, leaving.keys())

    def sets_for(self, cache: Cache, node: Node) -> Collection[DaemonSet]:
        """DaemonSet placement."""
        return self.daemon_sets
