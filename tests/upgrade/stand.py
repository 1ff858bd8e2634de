"""A cluster small enough to read: what the upgrade controller decides is done at once.

Kubelets renew their Leases every ten seconds, the lifecycle controller follows cordons with its
taint, the scheduler places canaries and kubelets start and stop them; each of these can be switched
off. Drain verdicts are what a test says, else `ready` with every ordinary pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_RUN,
    ANNOTATION_WISH,
    RunDocument,
    Step,
    StepNode,
    Wish,
    document_of,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.gone_nodes import is_ordinary
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CordonOwner,
    NodeBefore,
    NodeMark,
    NodeState,
    WorkMark,
    encode_mark,
    mark_of,
    unproven,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_from
from kubectl_nodelife.controllers.upgrade.ports import (
    DrainVerdict,
    UpgradePorts,
    UpgradeView,
    WorkReport,
)
from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.engine.upgrade_actions import (
    SetGate,
    StartWork,
)
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, OwnerReference, Time
from kubectl_nodelife.kube.node import (
    Lease,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from kubectl_nodelife.kube.pod import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import (
    LABEL_ZONE,
    NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
)
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetSpec

START_NS = 1_800_000_000 * SECOND_NS
RUN = "r1"
GRACE_NS = 50 * SECOND_NS
CORDON_TAINT = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
LEASE_KEY = ("kube-system", "kubectl-nodelife-upgrade")


class Stand:
    """The cluster, the leader's controller, and what was decided so far (`did`)."""

    def __init__(self, *, grown: bool = True, cold: bool = False, **policy: Any) -> None:
        self.cache = Cache()
        self.now_ns = START_NS
        self.policy: UpgradePolicy = policy_from(
            {"work": {"mode": "run", "command": "true"}, "canaryImage": "pause", **policy}
        )
        self.verdicts: dict[str, DrainVerdict] = {}
        self.daemon_sets: list[DaemonSet] = []
        self.zone_states: dict[str, str] = {}
        self.short_of_room: Callable[[str, Collection[str]], str] = lambda name, leaving: ""
        self.lifecycle = self.scheduler = self.kubelets = True
        self.canary_waits = ""
        self.canary_stays = False
        self.refuse: dict[str, tuple[int, str]] = {}
        self.blind = ""
        self.unread: tuple[str, ...] = ()
        self.gate_command: str | None = None
        self.gate_runs = 0
        self.did: list[Action] = []
        self._version = 0
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
        self.controller = UpgradeController(self.policy, self._ports(), epoch, began)

    # What stands in the cluster

    def put(self, obj: KubeObject) -> None:
        """Store the object under a new version."""
        self._version += 1
        meta = replace(obj.metadata, resource_version=str(self._version))
        self.cache.set(type(obj).__name__, obj.key, replace(obj, metadata=meta))
        if isinstance(obj, Lease):
            self.cache.set("Lease", obj.key, replace(obj, metadata=meta))

    def add_nodes(self, *names: str, zone: str = "a", **fields: Any) -> None:
        """Ready nodes with a beating kubelet."""
        for name in names:
            self.put(self.new_node(name, zone=zone, **fields))
            self.cache.apply(Heartbeats(name, START_NS - 10 * SECOND_NS, 10 * SECOND_NS), START_NS)

    def new_node(
        self,
        name: str,
        *,
        zone: str = "a",
        labels: Mapping[str, str] | None = None,
        uid: str = "",
        born_ns: int = START_NS - 60 * MINUTE_NS,
        taints: tuple[Taint, ...] = (),
        allocatable: dict[str, str | int | float] | None = None,
        cordoned: bool = False,
        boot_id: str = "boot-1",
        version: str = "v1.35.0",
    ) -> Node:
        meta = ObjectMeta(
            name=name,
            uid=uid or f"uid-{name}",
            creation_timestamp=Time(born_ns),
            labels={LABEL_ZONE: zone, **(labels or {})},
        )
        status = NodeStatus(
            conditions=(NodeCondition("Ready", "True", "KubeletReady"),),
            allocatable=allocatable or {"cpu": "4", "memory": "16Gi"},
            node_info=NodeSystemInfo(kubelet_version=version, boot_id=boot_id),
        )
        return Node(metadata=meta, spec=NodeSpec(cordoned, taints), status=status)

    def mark(self, name: str, state: NodeState, **fields: Any) -> None:
        """A node in that state by the hand of this run, named in its document."""
        node = self.node(name)
        cordon = fields.pop("cordon", CordonOwner.OURS if state in _CORDONED else CordonOwner.NONE)
        info = node.status.node_info
        before = fields.pop(
            "before",
            NodeBefore(
                uid=node.uid,
                boot_id=info.boot_id,
                allocatable=dict(node.status.allocatable or {}),
            ),
        )
        stamp = format_time(self.now_ns)
        mark = NodeMark(
            run=RUN,
            state=state,
            epoch=fields.pop("epoch", self.epoch),
            since=stamp,
            cordon=cordon,
            before=before,
            work=fields.pop("work", WorkMark(started=stamp)),
            **fields,
        )
        cordoned = cordon is not CordonOwner.NONE
        taints = tuple(t for t in node.spec.taints if t != CORDON_TAINT)
        if cordoned:
            taints += (CORDON_TAINT,)
        if state is NodeState.PROVING:
            taints += (unproven(RUN),)
        annotations = {**(node.metadata.annotations or {}), ANNOTATION: encode_mark(mark)}
        self.put(
            replace(
                node,
                metadata=replace(node.metadata, annotations=annotations),
                spec=replace(node.spec, unschedulable=cordoned, taints=taints),
            )
        )
        entry = {"uid": node.uid, "zone": (node.metadata.labels or {})[LABEL_ZONE], "pool": ""}
        nodes = {**self.document.step.nodes, name: StepNode(**entry)}
        self.write(step=replace(self.document.step, nodes=nodes))

    def edit(self, name: str, *, spec: dict[str, Any] | None = None, **status: Any) -> None:
        """Another hand changes the node."""
        node = self.node(name)
        self.put(
            replace(
                node,
                spec=replace(node.spec, **(spec or {})),
                status=replace(node.status, **status),
            )
        )

    def label(self, name: str, **labels: str) -> None:
        """Another hand labels the node."""
        node = self.node(name)
        merged = {**(node.metadata.labels or {}), **labels}
        self.put(replace(node, metadata=replace(node.metadata, labels=merged)))

    def ready(self, name: str, status: str = "True") -> None:
        """The node's Ready condition."""
        self.edit(name, conditions=(NodeCondition("Ready", status, "KubeletReady"),))

    def silence(self, name: str) -> None:
        """The kubelet renews its Lease no more."""
        first = START_NS - 10 * SECOND_NS
        event = Heartbeats(name, first, 10 * SECOND_NS, self.now_ns)
        self.cache.apply(event, self.now_ns)

    def add_pod(
        self, name: str, node: str, *, owner: str = "rs", kind: str = "ReplicaSet", **fields: Any
    ) -> Pod:
        """A Ready pod."""
        reference = OwnerReference(kind, owner, f"uid-{owner}", "apps/v1", True)
        made = Pod(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                uid=f"uid-{name}-{self._version}",
                creation_timestamp=Time(fields.pop("born_ns", self.now_ns - MINUTE_NS)),
                owner_references=(reference,) if owner else (),
            ),
            spec=PodSpec(node_name=node, tolerations=fields.pop("tolerations", ())),
            status=PodStatus(
                phase="Running",
                conditions=(PodCondition("Ready", fields.pop("ready", "True")),),
                container_statuses=(
                    ContainerStatus("c", container_id=fields.pop("container", f"c-{name}")),
                ),
            ),
        )
        self.put(made)
        return made

    def add_daemon_set(self, name: str = "cni") -> DaemonSet:
        """A DaemonSet that is to run on every node."""
        meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
        self.daemon_sets.append(DaemonSet(metadata=meta, spec=DaemonSetSpec()))
        return self.daemon_sets[-1]

    # The run's Lease

    @property
    def document(self) -> RunDocument:
        """The run's document."""
        lease = self.cache.get("Lease", LEASE_KEY)
        document = document_of(lease if isinstance(lease, Lease) else None)
        assert document is not None
        return document

    def write(self, **fields: Any) -> None:
        """Another hand, or an earlier pass, has written the document so."""
        self._annotate(ANNOTATION_RUN, encode_document(replace(self.document, **fields)))

    def wish(self, verb: str, **fields: Any) -> None:
        """A person asks something of the leader."""
        self._annotate(ANNOTATION_WISH, encode_document(Wish(verb=verb, **fields)))  # type: ignore[arg-type]

    def _annotate(self, key: str, text: str) -> None:
        lease = self.cache.get("Lease", LEASE_KEY)
        assert lease is not None
        annotations = {**(lease.metadata.annotations or {}), key: text}
        self.put(replace(lease, metadata=replace(lease.metadata, annotations=annotations)))

    # Time

    def step(self) -> list[Action]:
        """One pass of the controller; what it decides is done. Events are left out."""
        view = UpgradeView(
            cache=self.cache,
            clock_ns=self.now_ns,
            blind=self.blind,
            unread=self.unread,
            gate_command=self.gate_command,
            gate_runs=self.gate_runs,
        )
        actions = self.controller.step(view, self.now_ns)
        for action in actions:
            self._carry_out(action)
        told = [action for action in actions if not isinstance(action, RecordEvent)]
        self.did += told
        return told

    def settle(self) -> list[Action]:
        """Passes at one instant until nothing more is decided."""
        found: list[Action] = []
        for _ in range(50):
            self._world()
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
        self.controller.work_report(name, WorkReport(try_, code))

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

    def claimed(self) -> list[str]:
        """Names of the nodes claimed so far."""
        return [a.node for a in self.did if type(a).__name__ == "ClaimNode"]  # type: ignore[attr-defined]

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
        return self.controller.memory.nodes[name].waits_for

    # The rest of the world

    def _carry_out(self, action: Action) -> None:
        word = type(action).__name__
        if word in self.refuse:
            self.controller.outcome(action, *self.refuse[word])
            return
        if not action.writes or isinstance(action, RecordEvent):
            return
        kind, key = action.target
        obj = action.effect(self.cache.get(kind, key), self.now_ns)
        if obj is None or (kind == "Pod" and word == "EvictPod"):
            self.cache.set(kind, key, None)
        else:
            self.put(obj)

    def _world(self) -> None:
        for node in list(self.cache.nodes.values()):
            has = CORDON_TAINT in node.spec.taints
            if self.lifecycle and node.spec.unschedulable != has:
                taints = tuple(t for t in node.spec.taints if t != CORDON_TAINT)
                taints += (CORDON_TAINT,) if node.spec.unschedulable else ()
                self.put(replace(node, spec=replace(node.spec, taints=taints)))
        for pod in list(self.cache.pods.values()):
            if pod.name.startswith("nodelife-canary-"):
                self._canary(pod)

    def _canary(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            if not self.canary_stays:
                self.cache.set("Pod", pod.key, None)
            return
        node = pod.metadata.owner_references[0].name
        if self.scheduler and not pod.spec.node_name:
            waiting = ContainerStateWaiting(*self.canary_waits.split(": ", 1))
            runs = ContainerState(running=ContainerStateRunning())
            if self.canary_waits:
                runs = ContainerState(waiting=waiting)
            is_ready = self.kubelets and not self.canary_waits
            scheduled = PodCondition("PodScheduled", "True")
            ready = PodCondition("Ready", "True" if is_ready else "False")
            self.put(
                replace(
                    pod,
                    spec=replace(pod.spec, node_name=node),
                    status=replace(
                        pod.status,
                        phase="Running",
                        conditions=(scheduled, ready),
                        pod_ip="10.0.0.9",
                        container_statuses=(ContainerStatus("canary", state=runs),),
                    ),
                )
            )

    def _ports(self) -> UpgradePorts:
        return UpgradePorts(
            drains=self,
            room=self,
            daemons=self,
            zones=self,
            images=self,
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

    def states(self, cache: Cache, now_ns: int) -> Mapping[str, str]:
        """Zone states."""
        return self.zone_states

    def counts(self, node: Node) -> bool:
        """Which nodes count in their zones."""
        return True

    def image_for(self, cache: Cache, node: Node) -> str:
        """Images."""
        return ""


_CORDONED = {NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING, NodeState.FAILED}
