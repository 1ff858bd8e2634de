"""How much of a controller's work is carried out at once, as by upstream's workers.

Follows pkg/controller/nodelifecycle (`nodeUpdateWorkerSize`: eight nodes of a pass and eight of the
queue of changed nodes; `podUpdateWorkerSize`: four pods of the queue of pods; the loop that adds
NoExecute taints takes one node after another), ConcurrentDaemonSetSyncs (pkg/controller/daemon) and
the loops of pkg/controller/podgc, which take orphans and unscheduled pods one after another and all
others at once. Firings of taint-eviction run for themselves. What a guard holds takes no worker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from typing import Final

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.dependent_writes import (
    NODE_LIFECYCLE,
    is_of_node_queue,
    is_of_pod_queue,
    is_of_taint_loop,
    queue_key,
)
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE

NODE_WORKERS: Final = 8
POD_WORKERS: Final = 4
DAEMON_SET_SYNCS: Final = 2


class Slots:
    """At most so many keys at once; of one key as much as wants to. What was decided first goes
    first, so that what has begun is ended before more is begun.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, list[asyncio.Future[None]]] = {}
        self._in_order: list[tuple[int, int, Hashable]] = []  # of the keys that wait, a heap
        self._count = 0

    @asynccontextmanager
    async def taken(self, key: Hashable, order: int = 0) -> AsyncIterator[None]:
        """While a slot is held for the key. `order`: the number of the decision."""
        if key in self._held or (len(self._held) < self._most and not self._waiting):
            self._held[key] += 1
        else:
            turn = self._wait(key, order)
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

    def _wait(self, key: Hashable, order: int) -> asyncio.Future[None]:
        """Queue up; what waits for a key that waits already goes with the first of it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._count += 1
            heappush(self._in_order, (order, self._count, key))
        self._waiting.setdefault(key, []).append(turn)
        return turn

    def _give_back(self, key: Hashable) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        while self._in_order and len(self._held) < self._most:
            _, _, other = heappop(self._in_order)
            for turn in self._waiting.pop(other):
                if not turn.cancelled():
                    self._held[other] += 1
                    turn.set_result(None)


class WorkerSlots:
    """The workers of all controllers. `daemon_set_syncs`: of the flag of that name."""

    def __init__(self, cache: Cache, daemon_set_syncs: int = DAEMON_SET_SYNCS) -> None:
        self._cache = cache
        self._pass = Slots(NODE_WORKERS)
        self._node_queue = Slots(NODE_WORKERS)
        self._pod_queue = Slots(POD_WORKERS)
        self._taint_loop = Slots(1)
        self._in_turn = Slots(1)
        self._sets = Slots(max(1, daemon_set_syncs))
        self._free = Slots(1_000_000)

    def of(self, action: actions.Action) -> tuple[Slots, Hashable]:
        """Which slots the action needs one of, and for which key."""
        if action.controller == NODE_LIFECYCLE:
            return self._of_node_lifecycle(action), queue_key(action, self._cache)[2]
        if action.controller == "pod-gc" and self._is_in_turn(action):
            return self._in_turn, action.target
        if action.controller == "daemonset":
            return self._sets, self._set_of(action)
        return self._free, action.target

    def _of_node_lifecycle(self, action: actions.Action) -> Slots:
        if is_of_node_queue(action):
            return self._node_queue
        if is_of_pod_queue(action):
            return self._pod_queue
        if is_of_taint_loop(action) and not self._is_tainted(action):
            return self._taint_loop
        return self._pass

    def _is_tainted(self, action: actions.Action) -> bool:
        """True if the node has a lost node's taint already: a pass exchanges it at once."""
        node = self._cache.node(action.target[1][1])
        return node is not None and any(
            node.has_taint(key, NO_EXECUTE)
            for key in (TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE)
        )

    def _is_in_turn(self, action: actions.Action) -> bool:
        """True if it is about an orphan, or a pod that was never scheduled."""
        pod = self._cache.pods.get(action.target[1])
        never = pod is not None and not pod.spec.node_name
        return isinstance(action, actions.PodAction) and (bool(action.if_node_gone) or never)

    def _set_of(self, action: actions.Action) -> Hashable:
        if isinstance(action, actions.CreatePod):
            return action.namespace, action.owner
        if isinstance(action, (actions.UpdateDaemonSetStatus, actions.RaiseCollisionCount)):
            return action.namespace, action.name
        if isinstance(action, actions.AdoptObject):
            return action.namespace, action.owner.name
        if isinstance(action, actions.CreateControllerRevision):
            obj: KubeObject | None = action.revision
        else:
            obj = self._cache.get(*action.target)
        owner = controller_of(obj.metadata) if obj is not None else None
        return (action.target[1][0], owner.name) if owner is not None else action.target
