"""Signs that somebody else is at work, or that we are the ones cut off: they open the breaker.

- *surprise*: a write that only such a controller makes, on what we enforce, and that is not ours by
  what we have sent and by the node's managedFields (`field_writers.py`);
- *nodes gone*: many Node objects vanish with pods on them that are no DaemonSet's;
- *all at once*: many nodes fall silent while our own connection was in trouble, or kubelets set
  Ready right after we had called their nodes lost, twice on several nodes: what we read is stale.

Pure but for what it remembers: it is told what the cluster shows, what we send and when something
went wrong on the way. A person must say `daemon resume` then; but *all at once* is over once
nothing went wrong for two grace periods, the time in which a node's silence tells again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Final

from kubectl_nodelife.daemon.enforce.field_writers import (
    A_MANAGER,
    A_PERSON,
    MADE,
    NOT_TOLD,
    OURS,
    Path,
    Target,
    writer_of,
)
from kubectl_nodelife.daemon.enforce.gone_nodes import GoneNodes
from kubectl_nodelife.daemon.follow.foreign_writes import ForeignWriteDetector
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    CreatePod,
    SetNodeConditions,
    SetPodCondition,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.guard import NODES_GONE, Breaker, Guard
from kubectl_nodelife.engine.write_risk import is_harm
from kubectl_nodelife.kube.field_managers import condition_field
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS

ShownObjects = dict[tuple[str, Key], KubeObject | None]
"""(kind, key) -> the object as it was seen last; None: gone."""

SURPRISE, ALL_AT_ONCE = "surprise", "all at once"
GONE_LEAST: Final = 3
SILENT_SHARE: Final = 0.30
REVIVED_SHARE: Final = 0.01
REVIVED_LEAST: Final = 3
"""So many nodes, and that share of them, may contradict us twice within ten minutes."""

_RIGHT_AFTER_NS: Final = 10 * SECOND_NS
_REMEMBERED_NS: Final = 600 * SECOND_NS
_OURS_KEPT: Final = 100_000


class Tripwires:
    """One term's. `controllers`: those that enforce."""

    def __init__(
        self,
        guard: Guard,
        cache: Cache,
        controllers: Collection[str],
        gone: GoneNodes | None = None,
        before: Tripwires | None = None,
    ) -> None:
        """`gone`: what outlives the term, and the process. `before`: the last term's, some of whose
        writes may be seen only now. `ask_writer` is called where a read of a pod would tell more.
        """
        self.grace_ns = 40 * SECOND_NS
        self.ask_writer: Callable[[str, Target, Path], None] = lambda rule, target, path: None
        self._guard = guard
        self._cache = cache
        self._controllers = frozenset(controllers)
        self._detector = ForeignWriteDetector(cache, None, None)
        self._ours: OrderedDict[tuple[type[Action], object], int] = OrderedDict()
        if before is not None:
            self._ours.update(before._ours)
        self._gone = gone or GoneNodes()
        self._silent: deque[tuple[int, str]] = deque()
        self._trouble_ns = 0
        self._called_lost: dict[str, int] = {}
        self._revived: deque[tuple[int, str]] = deque()

    # What is told

    def sends(self, action: Action) -> None:
        """We are about to send this. Each time it is sent explains one time that it is seen."""
        if isinstance(action, SetNodeConditions) and is_harm(action):
            self._called_lost[action.node] = 0  # and when it is seen, that instant
        if _is_telling(action) or isinstance(action, CreatePod):
            key = type(action), action.target
            self._ours[key] = self._ours.pop(key, 0) + 1
            if len(self._ours) > _OURS_KEPT:
                self._ours.popitem(last=False)

    def decides(self, action: Action, now_ns: int) -> None:
        """A decision of ours: how many nodes fall silent."""
        if isinstance(action, SetNodeConditions) and is_harm(action):
            self._silent.append((now_ns, action.node))
            self._check_silence(now_ns)

    def trouble(self, now_ns: int) -> None:
        """A watch broke, a renewal failed, or a request took too long."""
        self._trouble_ns = now_ns
        self._check_silence(now_ns)

    def sees(self, event: Event, now_ns: int, earlier: ShownObjects | None = None) -> None:
        """Look at an event of the cluster before the cache has taken it in.

        `earlier`: what was seen of each object since the cache took something in, kept up here.
        """
        earlier = {} if earlier is None else earlier
        if isinstance(event, Gone):
            earlier[event.kind, event.key] = None
            if event.kind == "Node":
                self._node_gone(event.key[1], now_ns)
        elif isinstance(event, Put):
            target = event.kind, event.obj.key
            old = earlier[target] if target in earlier else self._cache.get(*target)
            earlier[target] = event.obj
            if isinstance(old, Node) and isinstance(event.obj, Node):
                self._note_revival(old, event.obj, now_ns)
            if old is not None and event.kind in ("Node", "Pod"):
                for action in self._detector.compare(old, event.obj, now_ns):
                    self._judge(action, event.obj, now_ns)
            elif old is None and isinstance(event.obj, Pod):
                self._pod_came(event.obj, now_ns)
            elif event.kind == "Node":
                self._gone.came(event.obj.name)

    # What follows

    def _note_revival(self, old: Node, new: Node, now_ns: int) -> None:
        """A kubelet that is heard right after we called its node lost was never silent."""
        before, after = old.ready(), new.ready()
        if new.name not in self._called_lost or after is None:
            return
        if after.status == "Unknown":
            if before is not None and before.status != "Unknown":
                self._called_lost[new.name] = now_ns
            return
        since_ns = self._called_lost[new.name]
        if after.status != "True" or not since_ns:
            return
        del self._called_lost[new.name]
        if now_ns - since_ns > _RIGHT_AFTER_NS:
            return
        self._revived.append((now_ns, new.name))
        while self._revived[0][0] < now_ns - _REMEMBERED_NS:
            self._revived.popleft()
        twice = sum(n > 1 for n in Counter(name for _, name in self._revived).values())
        if twice >= max(REVIVED_LEAST, REVIVED_SHARE * len(self._cache.nodes)):
            self._trouble_ns = now_ns
            because = (
                f"the kubelets of {twice} nodes were heard right after these were called lost, "
                "twice each: what is read of them is old"
            )
            self._open(ALL_AT_ONCE, because, now_ns, recovery_passes=True)

    def _judge(self, action: Action, seen: KubeObject, now_ns: int) -> None:
        if action.controller not in self._controllers or not _is_telling(action):
            return
        sent = self._is_ours(type(action), action.target)
        who, name = writer_of(action, seen) if isinstance(seen, Node) else (NOT_TOLD, "")
        if who in (OURS, A_PERSON) or (sent and who != A_MANAGER):
            return
        kind, (namespace, key) = action.target
        where = f"{kind} {namespace}/{key}" if namespace else f"{kind} {key}"
        words = {SetNodeConditions: "calls it lost", AddTaints: "taints it"}
        what = words.get(type(action), "evicts it")
        because = f"another {action.controller} controller {what}: {where}"
        because += f", written by field manager {name}" if name else ""
        self._open(SURPRISE, because, now_ns)
        if isinstance(action, SetPodCondition):
            path = ("f:status", "f:conditions", condition_field(action.condition.type))
            self.ask_writer(SURPRISE, action.target, path)

    def _is_ours(self, type_: type[Action], target: object) -> bool:
        """True if we have sent that once more than it was seen."""
        sent = self._ours.pop((type_, target), 0)
        if sent > 1:
            self._ours[type_, target] = sent - 1
        return sent > 0

    def _pod_came(self, pod: Pod, now_ns: int) -> None:
        owner = controller_of(pod.metadata)
        if "daemonset" not in self._controllers or owner is None or owner.kind != "DaemonSet":
            return
        if not self._is_ours(CreatePod, ("Pod", pod.key)):
            where = f"{pod.namespace}/{pod.name}"
            because = f"another DaemonSet controller made pod {where}"
            self._open(SURPRISE, because, now_ns)
            self.ask_writer(SURPRISE, ("Pod", pod.key), MADE)

    def _node_gone(self, name: str, now_ns: int) -> None:
        if self._gone.gone(name, self._cache, now_ns):
            self.check_gone(now_ns)

    def close_when_calm(self, now_ns: int) -> None:
        """Close `all at once` where the connection has worked for two grace periods.

        One that an earlier term or process opened counts from the first look at it.
        """
        if (ALL_AT_ONCE, "") in self._guard.breakers:
            self._trouble_ns = self._trouble_ns or now_ns
            if not self._is_trouble_recent(now_ns):
                how = "the connection has worked for two grace periods"
                self._guard.close(ALL_AT_ONCE, how)

    def check_gone(self, now_ns: int) -> None:
        """Open the breaker if too many nodes are gone, or if it is not known how many are."""
        if self._gone.unreadable:
            self._open(NODES_GONE, self._gone.unreadable, now_ns)
        gone, there = self._gone.count(now_ns), len(self._cache.nodes)
        share = self._guard.caps.nodes_gone_share
        if share is not None and gone >= max(GONE_LEAST, int(share * there) + 1):
            because = f"{gone} nodes with pods on them are gone within ten minutes"
            self._open(NODES_GONE, because, now_ns)

    def _check_silence(self, now_ns: int) -> None:
        while self._silent and self._silent[0][0] < now_ns - self.grace_ns:
            self._silent.popleft()
        silent = len({name for _, name in self._silent})
        recent = self._trouble_ns and self._is_trouble_recent(now_ns)
        if recent and silent and silent > SILENT_SHARE * len(self._cache.nodes):
            because = (
                f"{silent} of {len(self._cache.nodes)} nodes fell silent while the connection to "
                "the API server was in trouble"
            )
            self._open(ALL_AT_ONCE, because, now_ns, recovery_passes=True)

    def _is_trouble_recent(self, now_ns: int) -> bool:
        return now_ns - self._trouble_ns <= 2 * self.grace_ns

    def _open(self, rule: str, because: str, now_ns: int, *, recovery_passes: bool = False) -> None:
        if (rule, "") not in self._guard.breakers:
            self._guard.open(Breaker(rule, because, now_ns, recovery_passes=recovery_passes))


def _is_telling(action: Action) -> bool:
    """True if only such a controller writes this: people taint, delete and patch too."""
    return isinstance(action, (SetNodeConditions, SetPodCondition)) or (
        isinstance(action, AddTaints) and is_harm(action)
    )
