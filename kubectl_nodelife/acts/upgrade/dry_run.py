"""`start --dry-run`: the same controller on live data, with its own deeds laid over what is seen.

Nothing is sent but reads. Each decision's effect is laid over the observed cache for every pass,
and what would follow in the cluster follows after assumed times (`assumed.py`). No Lease is held,
so that several may look on, also while a run is under way elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.acts.upgrade.assumed import (
    LIFECYCLE_S,
    POD_STARTS_S,
    POD_STOPS_S,
    canary,
    emptiest_node,
    is_remade,
    job,
    meeting,
    newcomer,
    replacement,
    restarted,
)
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
from kubectl_nodelife.controllers.upgrade.marks import NodeState, UnreadableMark, mark_of
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
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
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Lease, LeaseSpec, Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE

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
        # nodes first: what moves goes where the deeds have left nodes open
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
        """The node as our deeds leave it; from its replacement on those to the newcomer count."""
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
        """The object as the deeds, and what follows from them, leave it."""
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
