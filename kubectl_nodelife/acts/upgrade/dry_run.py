"""`start --dry-run`: the same controller on live data, with its own writes laid over what is seen.

Nothing is sent but reads. Each decision's effect is laid over the observed cache for every pass,
and what would follow in the cluster follows after assumed times: evicted pods stop, and those that
somebody makes anew are Ready on another node; Jobs end, canaries are scheduled, Ready and gone
again; a node's machine meets its targets once its work has taken the assumed time, or gives way to
a new one of the same name. No Lease is held, so that several may look on, also while a run is under
way elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.acts.upgrade.sentences import sentences_of
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_RUN,
    OVER,
    RunDocument,
    RunPhase,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    LABEL_STATE,
    NodeState,
    UnreadableMark,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import NODE_INFO_FIELDS, UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts, UpgradeView, WorkReport
from kubectl_nodelife.engine.actions import (
    Action,
    CreateCanary,
    CreateJob,
    DeleteCanary,
    EvictPod,
    RecordEvent,
    StartWork,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import EXIT_FAILED
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, Time, controller_of
from kubectl_nodelife.kube.node import Lease, LeaseSpec, Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import ContainerStatus, Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE

POD_STOPS_S: Final = 2
POD_STARTS_S: Final = 2
LIFECYCLE_S: Final = 1
_OURS: Final = "nodelife.dev/"


_WORKED: Final = (NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING, NodeState.DONE)
_CORDON_TAINT: Final = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
_STOPPED_NS: Final = POD_STOPS_S * SECOND_NS
_REMADE_NS: Final = _STOPPED_NS + POD_STARTS_S * SECOND_NS

Target = tuple[str, tuple[str, str]]
Laid = list[tuple[int, Action]]


class DryRun:
    """See the module. `work_ns`: how long the work on a node is assumed to take."""

    def __init__(
        self,
        cache: LiveCache,
        policy: UpgradePolicy,
        ports: UpgradePorts,
        run: RunDocument,
        work_ns: int,
        tell: Callable[[str], None],
    ) -> None:
        self._observed = cache
        self._policy = policy
        self._ports = ports
        self._work_ns = work_ns
        self._tell = tell
        self._controller: UpgradeController | None = None
        self._laid: dict[Target, Laid] = {}
        self._cordoned_ns: dict[str, tuple[bool, int]] = {}
        self._work_ends: list[tuple[int, str, int]] = []
        self._moved: dict[str, str] = {}
        self._replaced_ns: dict[str, int] = {}
        self._versions = itertools.count(1)
        namespace, name = policy.lease_key
        notes = {ANNOTATION_RUN: encode_document(run)}
        meta = ObjectMeta(name=name, namespace=namespace, annotations=notes, resource_version="1")
        self._lease = Lease(metadata=meta, spec=LeaseSpec(lease_transitions=0))

    async def run(self) -> int:
        """Decide until the run would be over; the exit code."""
        cache = self._observed
        following = asyncio.get_running_loop().create_task(cache.run())
        try:
            while cache.waiting_for():
                await cache.gather(1.0)
            cache.begin()
            while (code := self.step()) is None:
                await asyncio.sleep(0.2)
                await cache.gather(0.8)
            return code
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def step(self) -> int | None:
        """One pass; the exit code where the run would be over, or stop after failures."""
        now_ns = self._observed.clock.now_ns()
        if self._controller is None:
            self._controller = UpgradeController(self._policy, self._ports, 0, now_ns)
        for end_ns, node, number in list(self._work_ends):
            if now_ns >= end_ns:
                self._work_ends.remove((end_ns, node, number))
                self._controller.work_report(node, WorkReport(number, 0))
        view = UpgradeView(
            cache=self._view(now_ns),
            clock_ns=now_ns,
            blind=self._observed.blind(),
            unread=tuple(self._observed.unread()),
            gate_command="" if self._policy.gate else None,
            gate_runs=2,
        )
        actions = self._controller.step(view, now_ns)
        for action in actions:
            self._lay(action, view.cache, now_ns)
            for line in sentences_of(action) if not isinstance(action, RecordEvent) else ():
                self._tell(f"(dry run) {line}")
        return self._over(self._controller) if not actions else None

    def _over(self, controller: UpgradeController) -> int | None:
        p = controller.last
        if p is None:
            return None
        run = p.document
        if run.phase in OVER:
            return EXIT_FAILED if run.left or run.failed else 0
        paused = run.phase is RunPhase.PAUSED and not p.flying
        return EXIT_FAILED if paused else None

    def _lay(self, action: Action, view: Cache, now_ns: int) -> None:
        """Remember what is decided; the work begins its assumed time."""
        if isinstance(action, StartWork):
            self._work_ends.append((now_ns + self._work_ns, action.node, action.try_))
        elif action.writes and not isinstance(action, RecordEvent):
            laid = self._laid.setdefault(action.target, [])
            laid.append((now_ns, action))
            after = action.effect(view.get(*action.target), now_ns)
            if isinstance(after, Node):
                cordoned = bool(after.spec.unschedulable)
                if self._cordoned_ns.get(after.name, (None, 0))[0] != cordoned:
                    self._cordoned_ns[after.name] = (cordoned, now_ns)
                self._note_replacement(after, now_ns)

    def _note_replacement(self, node: Node, now_ns: int) -> None:
        """With `--replace` the machine gives way once the work has taken its time."""
        mark = mark_of(node)
        if (
            self._policy.work.mode is WorkMode.REPLACE
            and mark is not None
            and mark.state is NodeState.WORKING
        ):
            self._replaced_ns.setdefault(node.uid, now_ns + self._work_ns)

    # What is seen, with what is laid over it

    def _view(self, now_ns: int) -> Cache:
        view = self._observed.cache.fork()
        view.set("Lease", self._lease.key, self._lease)
        # nodes first: what moves goes where the writes have left nodes open
        for (kind, key), laid in sorted(self._laid.items(), key=lambda item: item[0][0] == "Pod"):
            obj = view.get(kind, key)
            if isinstance(obj, Node):
                obj = self._node_after(obj, laid, now_ns)
            elif isinstance(obj, Pod):
                obj = self._pod_after(obj, laid, view, now_ns)
            else:
                obj = self._after(obj, laid, now_ns)
            if obj is not None:
                version = str(1_000_000_000_000 + next(self._versions))
                obj = replace(obj, metadata=replace(obj.metadata, resource_version=version))
            view.set(kind, key, obj)
        for node in list(view.nodes.values()):
            for changed in self._followed(node, view, now_ns):
                view.set(type(changed).__name__, changed.key, changed)
        return view

    def _node_after(self, node: Node, laid: Laid, now_ns: int) -> Node:
        """The node as our writes leave it; from its replacement on those to the newcomer count."""
        for at_ns, action in (*laid, (now_ns, None)):
            replaced_ns = self._replaced_ns.get(node.uid)
            if replaced_ns is not None and replaced_ns <= at_ns:
                node = newcomer(node, replaced_ns)
            if action is not None and action.uid == node.uid:
                after = action.effect(node, at_ns)
                node = after if isinstance(after, Node) else node
        return node

    def _pod_after(self, pod: Pod, laid: Laid, view: Cache, now_ns: int) -> KubeObject | None:
        """The pod that was evicted, or the one that its owner has made in its place since."""
        for at_ns, action in laid:
            if pod.uid != action.uid:
                continue
            age_ns = now_ns - at_ns
            if age_ns < _STOPPED_NS:
                return action.effect(pod, at_ns)
            if not isinstance(action, EvictPod) or age_ns < _REMADE_NS or not is_remade(pod):
                return None
            node = self._moved.get(pod.uid) or emptiest_node(view)
            if not node:
                return None
            self._moved[pod.uid] = node
            pod = replacement(pod, node, at_ns + _REMADE_NS)
        return pod

    def _after(self, obj: KubeObject | None, laid: Laid, now_ns: int) -> KubeObject | None:
        """The object as the writes, and what follows from them, leave it."""
        for at_ns, action in laid:
            if isinstance(action, CreateCanary):
                obj = obj or canary(action, at_ns, now_ns)
            elif isinstance(action, CreateJob):
                obj = obj or job(action, is_done=now_ns - at_ns >= self._work_ns)
            elif isinstance(action, DeleteCanary) and now_ns - at_ns >= _STOPPED_NS:
                obj = None
            else:
                obj = action.effect(obj, at_ns)
        return obj

    def _followed(self, node: Node, view: Cache, now_ns: int) -> Iterator[KubeObject]:
        """What lifecycle controller, machine and kubelet would do to a node of ours."""
        try:
            mark = mark_of(node)
        except UnreadableMark:
            return
        cordoned, since_ns = self._cordoned_ns.get(node.name, (False, now_ns))
        if now_ns - since_ns >= LIFECYCLE_S * SECOND_NS and node.name in self._cordoned_ns:
            taints = tuple(t for t in node.spec.taints if t.key != TAINT_NODE_UNSCHEDULABLE)
            taints = (*taints, _CORDON_TAINT) if cordoned else taints
            node = replace(node, spec=replace(node.spec, taints=taints))
        elif node.name in self._cordoned_ns and not cordoned:
            node = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, _CORDON_TAINT)))
        if mark is not None and self._has_worked(node, mark.state, view, now_ns):
            node = meeting(node, self._policy)
            if any(target.key == "bootID" for target in self._policy.target):
                yield from (restarted(pod) for pod in view.pods_on(node.name))
        yield node

    def _has_worked(self, node: Node, state: NodeState, view: Cache, now_ns: int) -> bool:
        if state in _WORKED:
            return True
        if state is not NodeState.WORKING:
            return False
        began = [at for at, action in self._laid[("Node", ("", node.name))]][-1]
        return now_ns - began >= self._work_ns


def is_remade(pod: Pod) -> bool:
    """True if somebody makes another in its place, on some node."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind not in ("DaemonSet", "Node", "Job")


def replacement(pod: Pod, node: str, at_ns: int) -> Pod:
    """The pod as its owner makes it anew: on that node, Ready, made at that time.

    It keeps its name, also where the real one would not: then nothing else is to be told apart.
    """
    meta = replace(pod.metadata, uid=f"dry-{pod.uid}", creation_timestamp=Time(at_ns))
    meta = replace(meta, deletion_timestamp=None, deletion_grace_period_seconds=None)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node))


def emptiest_node(view: Cache) -> str:
    """The schedulable node with the fewest pods, "" where there is none."""
    free = [
        (len(list(view.pods_on(node.name))), node.name)
        for node in view.nodes.values()
        if not node.spec.unschedulable
        and not any(taint.effect != "PreferNoSchedule" for taint in node.spec.taints)
    ]
    return min(free)[1] if free else ""


def job(action: CreateJob, *, is_done: bool) -> KubeObject:
    """The Job, complete once its time is over."""
    meta = {**action.manifest["metadata"], "uid": f"dry-{action.name}"}
    conditions = [{"type": "Complete", "status": "True"}] if is_done else []
    status = {"conditions": conditions}
    return decode("Job", {**action.manifest, "metadata": meta, "status": status})


def newcomer(node: Node, at_ns: int) -> Node:
    """The machine that takes the node's place, made at that time and marked by nobody."""
    meta = node.metadata
    labels = {key: value for key, value in (meta.labels or {}).items() if key != LABEL_STATE}
    notes = {key: value for key, value in (meta.annotations or {}).items() if key != ANNOTATION}
    meta = replace(meta, uid=f"dry-{meta.uid}", creation_timestamp=Time(at_ns))
    taints = tuple(
        taint
        for taint in node.spec.taints
        if taint.key != TAINT_NODE_UNSCHEDULABLE and not taint.key.startswith(_OURS)
    )
    spec = replace(node.spec, unschedulable=False, taints=taints)
    return replace(node, metadata=replace(meta, labels=labels, annotations=notes), spec=spec)


def canary(action: CreateCanary, at_ns: int, now_ns: int) -> KubeObject:
    """The canary as scheduler and kubelet would have it by now."""
    runs = now_ns - at_ns >= POD_STARTS_S * SECOND_NS
    conditions = [{"type": "PodScheduled", "status": "True"}]
    if runs:
        since = format_time(at_ns + POD_STARTS_S * SECOND_NS)
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": since})
    manifest = action.manifest
    return decode(
        "Pod",
        {
            **manifest,
            "metadata": {**manifest["metadata"], "uid": f"dry-{action.pod}"},
            "spec": {**manifest["spec"], "nodeName": action.node},
            "status": {
                "phase": "Running" if runs else "Pending",
                "podIP": "192.0.2.1" if runs else "",
                "conditions": conditions,
            },
        },
    )


def meeting(node: Node, policy: UpgradePolicy) -> Node:
    """The node as it would meet its targets."""
    info, meta, status = node.status.node_info, node.metadata, node.status
    labels, annotations = dict(meta.labels or {}), dict(meta.annotations or {})
    for target in policy.target:
        if target.kind == "nodeInfo":
            value = f"dry-{node.name}" if target.key == "bootID" else target.value
            info = replace(info, **{NODE_INFO_FIELDS[target.key]: value})
        elif target.kind == "condition":
            others = tuple(c for c in status.conditions if c.type != target.key)
            met = NodeCondition(target.key, target.value, "DryRun")
            status = replace(status, conditions=(*others, met))
        elif target.kind in ("label", "annotation"):
            (labels if target.kind == "label" else annotations)[target.key] = target.value
    meta = replace(meta, labels=labels, annotations=annotations)
    return replace(node, metadata=meta, status=replace(status, node_info=info))


def restarted(pod: KubeObject) -> Pod:
    """A pod with other containers, as after a reboot."""
    assert isinstance(pod, Pod)
    known = pod.status.container_statuses or [
        ContainerStatus(name=container.name, ready=True) for container in pod.spec.containers
    ]
    statuses = [replace(status, container_id=f"dry://{pod.uid}/{status.name}") for status in known]
    return replace(pod, status=replace(pod.status, container_statuses=statuses))
