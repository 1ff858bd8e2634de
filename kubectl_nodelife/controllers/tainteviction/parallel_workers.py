"""The taint manager with its eight workers apart, so that their races can be looked for.

Follows `Run`, `worker` and `handleNodeUpdate` of pkg/controller/tainteviction/taint_eviction.go: an
update of a node or a pod goes to the worker of the node's name; a worker that takes a pod first
takes all nodes that wait for it; what counts is what the cache shows by then. How long an update is
under way and a worker busy is chance upstream. Here a seed decides it, some thousandths of a second
each, so that a race once found comes again.

Which worker handles a node is `hash` there (`worker_of`): FNV-1a of 32 bits over the node's name.
Upstream keeps the order of what concerns one node by giving all of it to one worker, while the
order between workers is chance. Elsewhere in this folder everything happens in the order in which
it is reported, which is one of upstream's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.controllers.tainteviction.controller import TaintEvictionController
from kubectl_nodelife.controllers.tainteviction.timed_workers import Key
from kubectl_nodelife.engine.actions import Action, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions
from kubectl_nodelife.engine.settings import Settings

WORKERS: Final = 8
_OFFSET_BASIS: Final = 2166136261
_PRIME: Final = 16777619


def worker_of(node_name: str, workers: int = WORKERS) -> int:
    """The worker's number, 0 or more and below `workers`."""
    value = _OFFSET_BASIS
    for byte in node_name.encode():
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value % workers


_WORKER: Final = "worker"
_LONGEST_US: Final = 5_000


class _WorkerInput(msgspec.Struct):
    """The queue of one worker: causes by node, and (node, cause) by pod, in order."""

    nodes: dict[str, Action | None] = {}
    pods: dict[Key, tuple[str, Action | None]] = {}
    is_busy: bool = False

    def fork(self) -> _WorkerInput:
        """The same for another controller."""
        return _WorkerInput(dict(self.nodes), dict(self.pods), self.is_busy)


class ParallelTaintEviction(TaintEvictionController):
    """See the module."""

    def __init__(self, settings: Settings, seed: int) -> None:
        super().__init__(settings)
        self._seed = seed
        self._pauses = 0
        self._waiting = [_WorkerInput() for _ in range(WORKERS)]
        self._node_of: dict[Key, str] = {}

    def fork(self, cache: Cache) -> ParallelTaintEviction:
        """Another one with the same memory."""
        other = super().fork(cache)
        assert isinstance(other, ParallelTaintEviction)
        other._waiting = [w.fork() for w in self._waiting]
        other._node_of = dict(self._node_of)
        return other

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """A worker's turn; else as its base."""
        number = key[1] if isinstance(key, tuple) and key[0] == _WORKER else None
        if not isinstance(number, int):
            yield from super().reconcile(key, cache, now_ns)
            return
        waiting = self._waiting[number]
        nodes, waiting.nodes = waiting.nodes, {}
        for name, cause in nodes.items():
            yield from super()._node_changed(name, cache, now_ns, cause)
        if waiting.pods:
            pod_key = next(iter(waiting.pods))
            name, cause = waiting.pods.pop(pod_key)
            pod = cache.pods.get(pod_key)
            if pod is None or pod.spec.node_name == name:  # else another worker has it
                yield from super()._pod_changed(pod_key, cache, now_ns, cause)
        waiting.is_busy = bool(waiting.nodes or waiting.pods)
        if waiting.is_busy:
            yield Requeue(self.name, key, now_ns + self._pause_ns())

    def _node_changed(
        self, name: str, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterator[Action | Requeue]:
        number = worker_of(name)
        self._waiting[number].nodes.setdefault(name, cause)
        yield from self._wake(number, now_ns)

    def _pod_changed(
        self, key: Key, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterator[Action | Requeue]:
        pod = cache.pods.get(key)
        name = self._node_of.pop(key, "") if pod is None else pod.spec.node_name
        if pod is not None:
            self._node_of[key] = name
        number = worker_of(name)
        self._waiting[number].pods.setdefault(key, (name, cause))
        yield from self._wake(number, now_ns)

    def _wake(self, number: int, now_ns: int) -> Iterator[Requeue]:
        waiting = self._waiting[number]
        if not waiting.is_busy:
            waiting.is_busy = True
            yield Requeue(self.name, (_WORKER, number), now_ns + self._pause_ns())

    def _pause_ns(self) -> int:
        """The next of the pauses that follow from the seed; a hash, since nothing here is drawn."""
        self._pauses += 1
        return (1 + worker_of(f"{self._seed}/{self._pauses}", _LONGEST_US)) * 1_000
