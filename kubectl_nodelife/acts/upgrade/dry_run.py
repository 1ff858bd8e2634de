"""`start --dry-run`: the same controller on live data, with its own deeds laid over what is seen.

Nothing is sent but reads. Each decision's effect is laid over the observed cache for every pass,
and what would follow in the cluster follows after assumed times: evicted pods go, the work ends and
meets its target, the canary is scheduled, Ready, and gone again. No Lease is held, so that several
may look on, also while a run is under way elsewhere.
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
    document_of,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import NodeState, UnreadableMark, mark_of
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
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
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Lease, LeaseSpec, Node, Taint
from kubectl_nodelife.kube.pod import ContainerStatus, Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE

POD_STOPS_S: Final = 2
POD_STARTS_S: Final = 2
LIFECYCLE_S: Final = 1
_WORKED: Final = (NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING, NodeState.DONE)
_CORDON_TAINT: Final = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)

Target = tuple[str, tuple[str, str]]


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
        self._laid: dict[Target, list[tuple[int, Action]]] = {}
        self._cordoned_ns: dict[str, tuple[bool, int]] = {}
        self._work_ends: list[tuple[int, str, int]] = []
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
            now_ns = cache.clock.now_ns()
            controller = UpgradeController(self._policy, self._ports, 0, now_ns)
            while True:
                if self._pass(controller) and self._is_over():
                    return 0
                await asyncio.sleep(0.2)
                await cache.gather(0.8)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _pass(self, controller: UpgradeController) -> bool:
        """One pass; whether nothing was decided."""
        now_ns = self._observed.clock.now_ns()
        for end_ns, node, number in list(self._work_ends):
            if now_ns >= end_ns:
                self._work_ends.remove((end_ns, node, number))
                controller.work_report(node, WorkReport(number, 0))
        blind = self._observed.blind()
        view = UpgradeView(
            cache=self._view(now_ns),
            clock_ns=now_ns,
            blind=blind,
            unread=tuple(self._observed.unread()),
            gate_command="" if self._policy.gate else None,
            gate_runs=2,
        )
        actions = controller.step(view, now_ns)
        for action in actions:
            self._lay(action, view.cache, now_ns)
            for line in sentences_of(action) if not isinstance(action, RecordEvent) else ():
                self._tell(f"(dry run) {line}")
            if action.writes and not isinstance(action, RecordEvent):
                after = self._view(now_ns).get(*action.target)
                controller.outcome(action, 200, "", after)
        return not actions

    def _is_over(self) -> bool:
        lease = self._view(self._observed.clock.now_ns()).get("Lease", self._policy.lease_key)
        run = document_of(lease if isinstance(lease, Lease) else None)
        return run is not None and run.phase in OVER

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

    # What is seen, with what is laid over it

    def _view(self, now_ns: int) -> Cache:
        view = self._observed.cache.fork()
        view.set("Lease", self._lease.key, self._lease)
        for (kind, key), laid in self._laid.items():
            obj = view.get(kind, key)
            for at_ns, action in laid:
                obj = self._after(action, obj, at_ns, now_ns)
            if obj is not None:
                version = str(1_000_000_000_000 + next(self._versions))
                obj = replace(obj, metadata=replace(obj.metadata, resource_version=version))
            view.set(kind, key, obj)
        for node in list(view.nodes.values()):
            for changed in self._followed(node, view, now_ns):
                view.set(type(changed).__name__, changed.key, changed)
        return view

    def _after(
        self, action: Action, obj: KubeObject | None, at_ns: int, now_ns: int
    ) -> KubeObject | None:
        """The object as the deed, and what follows from it, leaves it."""
        age_s = (now_ns - at_ns) // SECOND_NS
        if isinstance(action, (EvictPod, DeleteCanary)):
            gone = age_s >= POD_STOPS_S or obj is None or obj.uid != action.uid
            stays = obj is not None and obj.uid != action.uid
            return obj if stays else None if gone else action.effect(obj, at_ns)
        if isinstance(action, CreateCanary):
            return obj or _canary(action, at_ns, now_ns)
        if isinstance(action, CreateJob):
            done = now_ns - at_ns >= self._work_ns
            conditions = [{"type": "Complete", "status": "True"}] if done else []
            meta = {**action.manifest["metadata"], "uid": f"dry-{action.name}"}
            return obj or decode(
                "Job", {**action.manifest, "metadata": meta, "status": {"conditions": conditions}}
            )
        return action.effect(obj, at_ns)

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
            node = _meeting(node, self._policy)
            if any(target.key == "bootID" for target in self._policy.target):
                yield from (_restarted(pod) for pod in view.pods_on(node.name))
        yield node

    def _has_worked(self, node: Node, state: NodeState, view: Cache, now_ns: int) -> bool:
        if state in _WORKED:
            return True
        if state is not NodeState.WORKING:
            return False
        began = [at for at, action in self._laid[("Node", ("", node.name))]][-1]
        return now_ns - began >= self._work_ns


def _canary(action: CreateCanary, at_ns: int, now_ns: int) -> KubeObject:
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


def _meeting(node: Node, policy: UpgradePolicy) -> Node:
    """The node as it would meet its targets."""
    info, meta = node.status.node_info, node.metadata
    fields = {"kubeletVersion": "kubelet_version", "osImage": "os_image", "bootID": "boot_id"}
    fields |= {
        "kernelVersion": "kernel_version",
        "containerRuntimeVersion": "container_runtime_version",
    }
    labels, annotations = dict(meta.labels or {}), dict(meta.annotations or {})
    for target in policy.target:
        if target.kind == "nodeInfo":
            value = f"dry-{node.name}" if target.key == "bootID" else target.value
            info = replace(info, **{fields[target.key]: value})
        elif target.kind in ("label", "annotation"):
            (labels if target.kind == "label" else annotations)[target.key] = target.value
    meta = replace(meta, labels=labels, annotations=annotations)
    return replace(node, metadata=meta, status=replace(node.status, node_info=info))


def _restarted(pod: KubeObject) -> Pod:
    """A pod with other containers, as after a reboot."""
    assert isinstance(pod, Pod)
    known = pod.status.container_statuses or [
        ContainerStatus(name=container.name, ready=True) for container in pod.spec.containers
    ]
    statuses = [replace(status, container_id=f"dry://{pod.uid}/{status.name}") for status in known]
    return replace(pod, status=replace(pod.status, container_statuses=statuses))
