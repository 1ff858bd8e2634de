"""How much of a controller's work is carried out at once, as by upstream's workers.

Follows `nodeUpdateWorkerSize` (pkg/controller/nodelifecycle: eight nodes of a pass, and eight of
the queue of changed nodes), ConcurrentDaemonSetSyncs (pkg/controller/daemon) and the loops of
pkg/controller/podgc, which take orphans and unscheduled pods one after another and all others at
once. Firings of taint-eviction run for themselves. What a guard holds takes no worker.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    PodAction,
    RemoveTaints,
    SetNodeLabels,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.daemonset_actions import (
    AdoptObject,
    CreateControllerRevision,
    CreatePod,
    DaemonSetAction,
)
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE

NODE_WORKERS: Final = 8
DAEMON_SET_SYNCS: Final = 2


class Slots:
    """At most so many keys at once; of one key as much as wants to, in the order of asking."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[Hashable] = Counter()
        self._waiting: deque[tuple[Hashable, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, key: Hashable) -> AsyncIterator[None]:
        """While a slot is held for the key."""
        if key in self._held or (self._has_room_for(key) and not self._waiting):
            self._held[key] += 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((key, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(key)
                raise
        try:
            yield
        finally:
            self._give_back(key)

    def _has_room_for(self, key: Hashable) -> bool:
        return key in self._held or len(self._held) < self._most

    def _give_back(self, key: Hashable) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        waiting, self._waiting = self._waiting, deque()
        for other, turn in waiting:
            if turn.cancelled():
                continue
            if self._has_room_for(other):
                self._held[other] += 1
                turn.set_result(None)
            else:
                self._waiting.append((other, turn))


class WorkerSlots:
    """The workers of all controllers. `daemon_set_syncs`: of the flag of that name."""

    def __init__(self, cache: Cache, daemon_set_syncs: int = DAEMON_SET_SYNCS) -> None:
        self._cache = cache
        self._pass = Slots(NODE_WORKERS)
        self._node_queue = Slots(NODE_WORKERS)
        self._in_turn = Slots(1)
        self._sets = Slots(max(1, daemon_set_syncs))
        self._free = Slots(1_000_000)

    def of(self, action: Action) -> tuple[Slots, Hashable]:
        """Which slots the action needs one of, and for which key."""
        if action.controller == "node-lifecycle":
            return (self._node_queue if _is_of_node_queue(action) else self._pass), self.node(
                action
            )
        if action.controller == "pod-gc" and self._is_in_turn(action):
            return self._in_turn, action.target
        if action.controller == "daemonset":
            return self._sets, self._set_of(action)
        return self._free, action.target

    def node(self, action: Action) -> Hashable:
        """The node that the action is about, or on which its pod is."""
        kind, key = action.target
        if kind == "Pod":
            pod = self._cache.pods.get(key)
            return ("", pod.spec.node_name) if pod is not None else key
        return key

    def _is_in_turn(self, action: Action) -> bool:
        """Whether it is about an orphan, or a pod that was never scheduled."""
        pod = self._cache.pods.get(action.target[1])
        never = pod is not None and not pod.spec.node_name
        return isinstance(action, PodAction) and (bool(action.if_node_gone) or never)

    def _set_of(self, action: Action) -> Hashable:
        if isinstance(action, CreatePod):
            return action.namespace, action.owner
        if isinstance(action, DaemonSetAction):
            return action.namespace, action.name
        if isinstance(action, AdoptObject):
            return action.namespace, action.owner.name
        if isinstance(action, CreateControllerRevision):
            obj: KubeObject | None = action.revision
        else:
            obj = self._cache.get(*action.target)
        owner = controller_of(obj.metadata) if obj is not None else None
        return (action.target[1][0], owner.name) if owner is not None else action.target


def _is_of_node_queue(action: Action) -> bool:
    """Whether it is a node worker's, not the pass's: taints that mirror conditions, and labels."""
    if isinstance(action, (AddTaints, RemoveTaints)):
        return any(taint.effect == NO_SCHEDULE for taint in action.taints)
    return isinstance(action, SetNodeLabels)


def is_of_pass(action: Action) -> bool:
    """Whether the pass of its controller ends only after it: node-lifecycle's begins anew one
    period after that, pod-gc's run as well.
    """
    if action.controller == "pod-gc":
        return True
    if action.controller != "node-lifecycle" or isinstance(action, AddTaints):
        return False  # of the loop of 100 ms, or of the node workers
    return not _is_of_node_queue(action)
