"""Judges of what a daemon believes while mutated events come, from outside of its cache and rules.

A model is kept of what each event said last, in plain dicts, and after each event it is held
against the daemon's view; each decision is held against the model: on what is gone, set aside or
another object nothing is decided, no node is called lost that gave a sign of life within the grace
period, no pod is evicted that tolerates its node's taints for ever, and no node gets a second pod
of a set.
"""

from collections import Counter
from collections.abc import Callable

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Gone, Put, Unreadable
from kubectl_nodelife.engine.guard import is_harm
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import tolerates
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    LABEL_CONTROLLER_REVISION_HASH,
    NAMESPACE_NODE_LEASE,
    NO_EXECUTE,
)

Target = tuple[str, tuple[str, str]]
Shown = Callable[[str, tuple[str, str]], KubeObject | None]
"""The object as the cluster shows it."""


class WrongBelief(AssertionError):
    """The daemon takes something for true that no event has said, or decides against it."""


class Beliefs:
    """`judged`: how many of which judgements were made. `grace_ns`: of a node's silence. `plans`:
    the daemon decides on what it has planned as well, such as on a pod that is not made yet.
    """

    def __init__(self, grace_ns: int, *, plans: bool) -> None:
        self._plans = plans
        self.judged: Counter[str] = Counter()
        self._grace_ns = grace_ns
        self._last: dict[Target, KubeObject] = {}
        self._unreadable: set[Target] = set()
        self._life_ns: dict[str, int] = {}
        self._renewed: dict[str, int] = {}
        self._news: Target | None = None

    # What the events say

    def sees(self, event: Event, now_ns: int) -> None:
        """An event, before the daemon has it. What is decided in the same instant may rest on what
        was known before.
        """
        self._news = None
        if not isinstance(event, (Put, Gone, Unreadable)):
            return
        key = event.obj.key if isinstance(event, Put) else event.key
        target = self._news = event.kind, key
        before = self._last.get(target)
        self._unreadable.discard(target)
        if isinstance(event, Put):
            self._last[target] = event.obj
        elif isinstance(event, Gone):
            self._last.pop(target, None)
        else:
            self._unreadable.add(target)
        if event.kind == "Lease" and key[0] == NAMESPACE_NODE_LEASE:
            self._note_renewal(key[1], event, before, now_ns)

    def _note_renewal(
        self, node: str, event: Event, before: KubeObject | None, now_ns: int
    ) -> None:
        """A Lease that is renewed further, and stays there for a pass to see, is a sign of life."""
        lease = event.obj if isinstance(event, Put) else None
        if not isinstance(lease, Lease):
            self._life_ns.pop(node, None)
            return
        renewed = int(lease.spec.renew_time or 0)
        if isinstance(before, Lease) and renewed > self._renewed.get(node, 0):
            self._life_ns[node] = now_ns
        self._renewed[node] = max(renewed, self._renewed.get(node, 0))

    # What the daemon believes

    def check_view(self, cache: Cache, observed: Shown) -> None:
        """Its view of the cluster, object by object, and the indexes beside it."""
        for target, obj in self._last.items():
            if target in self._unreadable or cache.is_quarantined(*target):
                continue
            self.judged["objects"] += 1
            if observed(*target) != obj:
                raise WrongBelief(f"{target} is not as it was seen last")
        for kind in {kind_of(obj) for obj in self._last.values()}:
            for obj in cache.all(kind):
                target = kind, obj.key
                if observed(*target) is not None and target not in {*self._last, *self._unreadable}:
                    raise WrongBelief(f"{target} is gone")
        pods = {pod.key: pod for pod in cache.pods.values()}
        for node in {pod.spec.node_name for pod in pods.values()} - {""}:
            self.judged["indexes"] += 1
            there = {pod.key for pod in pods.values() if pod.spec.node_name == node}
            if {pod.key for pod in cache.pods_on(node)} != there:
                raise WrongBelief(f"the pods on node {node} are not these")

    def decides(self, action: actions.Action, cache: Cache, now_ns: int) -> None:
        """A decision that would be a write, when it was taken."""
        if not action.writes or isinstance(action, actions.RecordEvent):
            return
        self.judged[type(action).__name__] += 1
        target = action.target
        if target in self._unreadable and target != self._news:
            raise WrongBelief(f"{type(action).__name__} of {target}, which cannot be read")
        exists = isinstance(action, (actions.NodeAction, actions.PodAction)) and not isinstance(
            action, actions.CreatePod
        )
        if exists and not self._plans and target != self._news:
            known = self._last.get(target)
            if known is None or (action.uid and known.uid != action.uid):
                raise WrongBelief(f"{type(action).__name__} of {target}, which is gone or another")
        if isinstance(action, actions.SetNodeConditions) and is_harm(action):
            silent_ns = now_ns - self._life_ns.get(action.node, 0)
            renewed_now = self._news == ("Lease", (NAMESPACE_NODE_LEASE, action.node))
            if silent_ns <= self._grace_ns and not renewed_now:
                silent_s = silent_ns // SECOND_NS
                raise WrongBelief(f"node {action.node} is called lost after {silent_s}s")
        if isinstance(action, actions.MarkPodNotReady):
            self._check_mark(action, cache)
        if isinstance(
            action, (actions.DeletePod, actions.SetPodCondition)
        ) and action.controller == ("taint-eviction"):
            self._check_eviction(action, cache)
        if isinstance(action, actions.CreatePod):
            self._check_create(action, cache)

    def _check_mark(self, action: actions.MarkPodNotReady, cache: Cache) -> None:
        pod = cache.pods.get(action.target[1])
        node = cache.node(pod.spec.node_name) if pod is not None else None
        if node is None:
            raise WrongBelief(f"{action.target} is marked, and its node is gone")

    def _check_eviction(self, action: actions.PodAction, cache: Cache) -> None:
        pod = cache.pods.get(action.target[1]) or self._last.get(action.target)
        node = cache.node(pod.spec.node_name) if isinstance(pod, Pod) else None
        if not isinstance(pod, Pod) or node is None:
            return  # upstream's timers outlive the node
        taints = [t for t in node.spec.taints if t.effect == NO_EXECUTE]
        for taint in taints:
            counts = next((t for t in pod.spec.tolerations if tolerates(t, taint)), None)
            if counts is None or counts.toleration_seconds is not None:
                return
        raise WrongBelief(f"{action.target} is evicted, and tolerates {taints}")

    def _check_create(self, action: actions.CreatePod, cache: Cache) -> None:
        if action.node not in cache.nodes:
            raise WrongBelief(f"a pod is made for node {action.node}, which is gone")
        if cache.get("DaemonSet", (action.namespace, action.owner)) is None:
            raise WrongBelief(f"a pod is made for the set {action.owner}, which is gone")
        for pod in cache.pods_of(action.owner_uid):
            labels = pod.metadata.labels or {}
            same = labels.get(LABEL_CONTROLLER_REVISION_HASH) == action.revision
            running = pod.status.phase not in ("Failed", "Succeeded")
            alive = running and pod.metadata.deletion_timestamp is None
            if pod.name != action.pod and alive and same and pod.spec.node_name == action.node:
                raise WrongBelief(f"a second pod of {action.owner} on {action.node}")
