"""Signs that another writer is at work, or that we are the ones cut off: they open the breaker.

- *surprise*: a write that only such a controller makes, on what we enforce, and that is not ours by
  what we have sent and by the node's managedFields. What the API server notes of an object's fields
  is exact where our own memory is not: it shows our writes of before a restart, and a second writer
  that does the same as we a moment later. Times there have whole seconds; of two writers in one
  second it says nothing;
- *nodes gone*: many Node objects vanish within ten minutes with pods on them that are no
  DaemonSet's. What vanished while we did not watch counts from the moment it is missed, and the
  count is kept with the journal of writes: a restart must not make a wiped list of nodes look like
  one that was always short;
- *all at once*: many nodes fall silent while our own connection was in trouble, or kubelets set
  Ready right after we had called their nodes lost, twice on several nodes: what we read is stale.

`Tripwires` receives what the cluster shows, what we send and when something went wrong on the way.
A person must say `daemon resume` then; but *all at once* is over once nothing went wrong for two
grace periods, the time after which a node's silence counts again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec

from kubectl_nodelife.daemon.foreign_writes import ForeignWriteDetector
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.guard import NODES_GONE, Breaker, Guard, is_harm
from kubectl_nodelife.kube.field_managers import TAINTS, condition_field, manager_of
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import Ref
from kubectl_nodelife.kube.wellknown import CONTROLLER_MANAGERS

OURS, A_PERSON, A_MANAGER, UNKNOWN = "ours", "a person", "a manager", ""
_OUR_PREFIX: Final = "kubectl-nodelife-"
_KUBELET: Final = "kubelet"
MADE: Final = ("f:metadata", "f:ownerReferences")
"""The fields that the maker of a pod owns."""

Path = tuple[str, ...]
ReadObject = Callable[[Get], Awaitable[Answer]]

WITHIN_NS: Final = 600 * SECOND_NS
_MARK: Final = "nodes"
_KEEP_NS: Final = SECOND_NS

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
        """`gone`: what is kept beyond the term, and the process. `before`: the last term's, some of
        whose writes may be seen only now. `ask_writer` is called where a read of a pod would show
        more.
        """
        self.grace_ns = 40 * SECOND_NS
        self.ask_writer: Callable[[str, Ref, Path], None] = lambda rule, target, path: None
        self._guard = guard
        self._cache = cache
        self._controllers = frozenset(controllers)
        self._detector = ForeignWriteDetector(cache, None, None)
        self._ours: OrderedDict[tuple[type[actions.Action], object], int] = OrderedDict()
        if before is not None:
            self._ours.update(before._ours)
        self._gone = gone or GoneNodes()
        self._silent: deque[tuple[int, str]] = deque()
        self._trouble_ns = 0
        self._called_lost: dict[str, int] = {}
        self._revived: deque[tuple[int, str]] = deque()
        self._stood_still: dict[str, int] = before._stood_still if before is not None else {}

    # What it receives

    def sends(self, action: actions.Action) -> None:
        """We are about to send this. Each time it is sent explains one time that it is seen."""
        if isinstance(action, actions.SetNodeConditions) and is_harm(action):
            self._called_lost[action.node] = 0  # and when it is seen, that instant
        if _is_controller_only(action) or isinstance(action, actions.CreatePod):
            key = type(action), action.target
            self._ours[key] = self._ours.pop(key, 0) + 1
            if len(self._ours) > _OURS_KEPT:
                self._ours.popitem(last=False)

    def refused(self, action: actions.Action) -> None:
        """The API server has refused what we sent: it explains nothing that is seen."""
        self._is_ours(type(action), action.target)

    def decides(self, action: actions.Action, now_ns: int) -> None:
        """A decision of ours: how many nodes fall silent."""
        if isinstance(action, actions.SetNodeConditions) and is_harm(action):
            self._silent.append((now_ns, action.node))
            self._check_silence(now_ns)

    def trouble(self, now_ns: int) -> None:
        """A watch broke, a renewal failed, or a request took too long."""
        self._trouble_ns = now_ns
        self._check_silence(now_ns)

    def sees(
        self, event: Event, now_ns: int, earlier: dict[Ref, KubeObject | None] | None = None
    ) -> None:
        """Look at an event of the cluster before the cache has taken it in.

        `earlier`: each object as it was seen since the cache took something in, None where it is
        gone; kept up here.
        """
        earlier = {} if earlier is None else earlier
        if isinstance(event, Gone):
            earlier[event.target] = None
            if event.kind == "Node" and self._gone.gone(event.key[1], self._cache, now_ns):
                self.check_gone(now_ns)
        elif isinstance(event, Put):
            target = event.target
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
        """A kubelet that posts status right after we called its node lost was never silent."""
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
        counts = Counter(name for _, name in self._revived)
        twice = [name for name, many in counts.items() if many > 1]
        if len(twice) >= max(REVIVED_LEAST, REVIVED_SHARE * len(self._cache.nodes)):
            self._trouble_ns = now_ns
            self._stood_still = {name: self._renewed_ns(name, now_ns) for name in twice}
            because = (
                f"the kubelets of {len(twice)} nodes reported right after these were called lost, "
                "twice each: what is read of them is old"
            )
            self._open(ALL_AT_ONCE, because, now_ns, recovery_passes=True)

    def _judge(self, action: actions.Action, seen: KubeObject, now_ns: int) -> None:
        if action.controller not in self._controllers or not _is_controller_only(action):
            return
        sent = self._is_ours(type(action), action.target)
        who, name = writer_of(action, seen) if isinstance(seen, Node) else (UNKNOWN, "")
        if who in (OURS, A_PERSON) or (sent and who != A_MANAGER):
            return
        kind, (namespace, key) = action.target
        where = f"{kind} {namespace}/{key}" if namespace else f"{kind} {key}"
        words = {actions.SetNodeConditions: "calls it lost", actions.AddTaints: "taints it"}
        what = words.get(type(action), "evicts it")
        because = f"another {action.controller} controller {what}: {where}"
        because += f", written by field manager {name}" if name else ""
        self._open(SURPRISE, because, now_ns)
        if isinstance(action, actions.SetPodCondition):
            path = ("f:status", "f:conditions", condition_field(action.condition.type))
            self.ask_writer(SURPRISE, action.target, path)

    def _is_ours(self, type_: type[actions.Action], target: object) -> bool:
        """True if we have sent that once more than it was seen or refused; it counts as seen."""
        sent = self._ours.pop((type_, target), 0)
        if sent > 1:
            self._ours[type_, target] = sent - 1
        return sent > 0

    def _pod_came(self, pod: Pod, now_ns: int) -> None:
        owner = controller_of(pod.metadata)
        if "daemonset" not in self._controllers or owner is None or owner.kind != "DaemonSet":
            return
        if not self._is_ours(actions.CreatePod, ("Pod", pod.key)):
            where = f"{pod.namespace}/{pod.name}"
            because = f"another DaemonSet controller made pod {where}"
            self._open(SURPRISE, because, now_ns)
            self.ask_writer(SURPRISE, ("Pod", pod.key), MADE)

    def close_when_calm(self, now_ns: int) -> None:
        """Close `all at once` where the connection has worked for two grace periods, and Leases
        move again that had stood still: from a replica that goes on to be old all would begin anew.

        One that an earlier term or process opened counts from the first look at it.
        """
        if (ALL_AT_ONCE, "") in self._guard.breakers:
            self._trouble_ns = self._trouble_ns or now_ns
            if not self._is_trouble_recent(now_ns) and self._leases_move(now_ns):
                how = "the connection has worked for two grace periods"
                self._guard.close(ALL_AT_ONCE, how)

    def _leases_move(self, now_ns: int) -> bool:
        """True if most nodes that contradicted us, of those with a Lease, were seen to renew it."""
        names = [name for name in self._stood_still if name in self._cache.nodes]
        there = [name for name in names if self._renewed_ns(name, now_ns)]
        moved = [n for n in there if self._renewed_ns(n, now_ns) > self._stood_still[n]]
        if there and 2 * len(moved) <= len(there):
            return False
        self._stood_still = {}
        return True

    def _renewed_ns(self, node: str, now_ns: int) -> int:
        """The time in the node's Lease as the watch has shown it; 0: there is none."""
        heartbeat = self._cache.heartbeat(node)
        renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
        return (renewal[0] or 0) if renewal is not None else 0

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
                f"{silent} of {len(self._cache.nodes)} nodes stopped reporting while the "
                "connection to the API server was in trouble"
            )
            self._open(ALL_AT_ONCE, because, now_ns, recovery_passes=True)

    def _is_trouble_recent(self, now_ns: int) -> bool:
        return now_ns - self._trouble_ns <= 2 * self.grace_ns

    def _open(self, rule: str, because: str, now_ns: int, *, recovery_passes: bool = False) -> None:
        if (rule, "") not in self._guard.breakers:
            self._guard.open(Breaker(rule, because, now_ns, recovery_passes=recovery_passes))


def _is_controller_only(action: actions.Action) -> bool:
    """True if only such a controller writes this: people taint, delete and patch too."""
    return isinstance(action, (actions.SetNodeConditions, actions.SetPodCondition)) or (
        isinstance(action, actions.AddTaints) and is_harm(action)
    )


def writer_of(action: actions.Action, node: Node) -> tuple[str, str]:
    """(which of the four, the field manager's name) of what was seen to be done to a node."""
    if isinstance(action, actions.SetNodeConditions):
        fields = frozenset(condition_field(c.type) for c in action.conditions)
    elif isinstance(action, actions.AddTaints):
        fields = frozenset((TAINTS,))
    else:
        return UNKNOWN, ""
    entries = [e for e in node.managers.entries if e.fields & fields and e.name != _KUBELET]
    newest_ns = max((e.time_ns for e in entries), default=0)
    names = sorted({e.name for e in entries if e.time_ns == newest_ns})
    if len(names) != 1:
        return UNKNOWN, " or ".join(names)
    return kind_of_writer(names[0]), names[0]


def kind_of_writer(name: str) -> str:
    """Which of the four a field manager is; other programs and controllers look alike."""
    if name.startswith(_OUR_PREFIX):
        return OURS
    if name == "kubectl" or name.startswith("kubectl-"):
        return A_PERSON
    return A_MANAGER if name in CONTROLLER_MANAGERS else UNKNOWN


class WriterLookup:
    """Names the writer of a pod in open breakers: by a read, since no watch keeps managedFields."""

    def __init__(self, read: ReadObject, guard: Guard, on_change: Callable[[], None]) -> None:
        """`on_change` is called once a breaker says more than it did."""
        self._read = read
        self._guard = guard
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, rule: str, target: Ref, path: Path) -> None:
        """Name the owner of the field in the breaker of that rule."""
        task = asyncio.get_running_loop().create_task(self._look(rule, target, path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, rule: str, target: Ref, path: Path) -> None:
        answer = await self._read(Get(*target))
        meta = (answer.raw or {}).get("metadata") or {}
        if answer.ok and (name := manager_of(meta.get("managedFields"), path)):
            self._guard.add_to(rule, f"written by field manager {name}")
            log.warning("%s %s: written by field manager %s", target[0], "/".join(target[1]), name)
            self._on_change()


class _Kept(msgspec.Struct):
    """`gone`: name -> when, in ns since the epoch. `there`: the nodes seen last."""

    gone: dict[str, int] = {}
    there: list[str] = []


class GoneNodes:
    """Counts Node objects that vanished within ten minutes while pods of no DaemonSet were on them.
    Without `intents` it remembers for as long as the process runs.

    `unreadable`: why it is not known what was gone before, "" where it is.
    """

    def __init__(self, intents: Intents | None = None) -> None:
        self._intents = intents
        text = intents.mark(_MARK) if intents is not None else ""
        self.unreadable, stored = "", _Kept()
        try:
            stored = msgspec.json.decode(text, type=_Kept) if text else stored
        except msgspec.MsgspecError as error:
            self.unreadable = f"which nodes were gone before cannot be read: {error}"
        self._gone = stored.gone
        self._there = set(stored.there)
        self._changed = False
        self._kept_ns = 0

    def begin(self, cache: Cache, now_ns: int) -> None:
        """All lists are read: what was there when we last looked, and is not now."""
        for name in sorted(self._there - cache.nodes.keys()):
            self.gone(name, cache, now_ns)
        self._there = set(cache.nodes)
        self._changed = True

    def came(self, name: str) -> None:
        """A node is there."""
        if name not in self._there:
            self._there.add(name)
            self._changed = True

    def gone(self, name: str, cache: Cache, now_ns: int) -> bool:
        """A node is not there any more; whether it counts."""
        self._there.discard(name)
        self._changed = True
        owners = (controller_of(pod.metadata) for pod in cache.pods_on(name))
        if all(owner is not None and owner.kind == "DaemonSet" for owner in owners):
            return False
        self._gone[name] = now_ns
        return True

    def count(self, now_ns: int) -> int:
        """How many have vanished within ten minutes."""
        self._gone = {name: at for name, at in self._gone.items() if at > now_ns - WITHIN_NS}
        return len(self._gone)

    def forget(self) -> None:
        """A person has seen it, and said go on."""
        self._gone, self._changed, self.unreadable = {}, True, ""

    def keep(self, now_ns: int) -> None:
        """Bring it to the disk, at most once a second."""
        if self._intents is None or not self._changed or now_ns < self._kept_ns + _KEEP_NS:
            return
        self._changed, self._kept_ns = False, now_ns
        text = msgspec.json.encode(_Kept(self._gone, sorted(self._there))).decode()
        try:
            self._intents.mark(_MARK, text)
        except sqlite3.Error as error:
            log.error("which nodes are gone is lost with the process, it is not kept: %s", error)
