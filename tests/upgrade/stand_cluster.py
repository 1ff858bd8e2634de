"""The objects and the other programs of the stand: nodes, pods, lifecycle controller, scheduler.

Each change of an object gives it a new version, as the API server does.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    StepNode,
    UpgradeRequest,
    Verb,
    document_of,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CordonOwner,
    NodeBefore,
    NodeMark,
    NodeState,
    WorkMark,
    encode_mark,
    unproven,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Lease, Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
)
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import LABEL_ZONE, NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetSpec
from tests import objects

START_NS = 1_800_000_000 * SECOND_NS
RUN = "r1"
GRACE_NS = 50 * SECOND_NS
CORDON_TAINT = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
LEASE_KEY = ("kube-system", "kubectl-nodelife-upgrade")


_CORDONED = {NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING, NodeState.FAILED}


class StandCluster:
    """What stands in the cluster, and what its other programs do about it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.now_ns = START_NS
        self.epoch = 1
        self.daemon_sets: list[DaemonSet] = []
        self.lifecycle = self.scheduler = self.kubelets = True
        self.canary_waits = ""
        self.canary_stays = False
        self._version = 0

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
        return objects.typed(
            objects.node(
                name,
                "True",
                "KubeletReady",
                uid=uid or None,
                created=born_ns,
                zone=zone,
                labels=labels,
                taints=taints,
                allocatable=allocatable or {"cpu": "4", "memory": "16Gi"},
                status={"nodeInfo": {"kubeletVersion": version, "bootID": boot_id}},
                unschedulable=cordoned,
            )
        )

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
        """Somebody else changes the node."""
        node = self.node(name)
        self.put(
            replace(
                node,
                spec=replace(node.spec, **(spec or {})),
                status=replace(node.status, **status),
            )
        )

    def label(self, name: str, **labels: str) -> None:
        """Somebody else labels the node."""
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
        container = {"name": "c", "containerID": fields.pop("container", f"c-{name}")}
        made: Pod = objects.typed(
            objects.pod(
                name,
                node,
                uid=f"uid-{name}-{self._version}",
                created=fields.pop("born_ns", self.now_ns - MINUTE_NS),
                owner=objects.owner(kind, owner) if owner else None,
                status={"containerStatuses": [container]},
                **{"ready": True, **fields},
            )
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
        """Another writer, or an earlier pass, has written the document so."""
        self._annotate(ANNOTATION_RUN, encode_document(replace(self.document, **fields)))

    def request(self, verb: str, **fields: Any) -> None:
        """A person asks something of the leader."""
        self._annotate(
            ANNOTATION_REQUEST, encode_document(UpgradeRequest(verb=Verb(verb), **fields))
        )

    def _annotate(self, key: str, text: str) -> None:
        lease = self.cache.get("Lease", LEASE_KEY)
        assert lease is not None
        annotations = {**(lease.metadata.annotations or {}), key: text}
        self.put(replace(lease, metadata=replace(lease.metadata, annotations=annotations)))

    def react(self) -> None:
        """One round of what the other programs do."""
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
