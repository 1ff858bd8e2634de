"""Lists what nobody cleans up once enforcing ends, with the kubectl lines that would do it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import is_own
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import UNKNOWN
from kubectl_nodelife.kube.workload import DaemonSet

MOST: Final = 10
"""So many lines of each sort are told."""


def left_behind(
    cache: Cache,
    eviction: TaintEvictionController | None,
    controllers: Collection[str],
    now_ns: int,
) -> list[str]:
    """A line for each thing, of the controllers that were enforced."""
    sorts = []
    if "node-lifecycle" in controllers:
        sorts += [_tainted(cache), _unknown(cache)]
    if "taint-eviction" in controllers and eviction is not None:
        sorts.append(_evictions(cache, eviction, now_ns))
    if "daemonset" in controllers:
        sorts.append(_rollouts(cache))
    return [line for sort in sorts for line in _some(list(sort))]


def _some(lines: list[str]) -> list[str]:
    what = lines[0].partition("/")[0] if lines else ""
    more = [f"{what}: and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [*lines[:MOST], *more]


def _tainted(cache: Cache) -> Iterator[str]:
    for name in sorted(cache.nodes):
        taints = [f"{t.key}:{t.effect}" for t in cache.nodes[name].spec.taints if is_own(t)]
        if taints:
            off = " ".join(f"{taint}-" for taint in taints)
            yield f"node/{name} keeps {', '.join(taints)}: kubectl taint node {name} {off}"


def _unknown(cache: Cache) -> Iterator[str]:
    for name in sorted(cache.nodes):
        ready = cache.nodes[name].ready()
        if ready is not None and ready.status == UNKNOWN:
            yield f"node/{name} is Unknown until its kubelet posts: kubectl describe node {name}"


def _evictions(cache: Cache, eviction: TaintEvictionController, now_ns: int) -> Iterator[str]:
    for node in sorted(eviction.workers.nodes()):
        for work in eviction.pending(node):
            namespace, name = work.pod
            left = format_duration(max(0, work.due_ns - now_ns) // SECOND_NS * SECOND_NS)
            yield (
                f"pod/{name} was to be evicted in {left}: kubectl delete pod -n {namespace} {name}"
            )


def _rollouts(cache: Cache) -> Iterator[str]:
    for found in cache.all("DaemonSet"):
        assert isinstance(found, DaemonSet)
        status = found.status
        if status.updated_number_scheduled < status.desired_number_scheduled:
            namespace, name = found.key
            yield (
                f"daemonset/{name} has {status.updated_number_scheduled} of "
                f"{status.desired_number_scheduled} pods up to date: "
                f"kubectl rollout undo -n {namespace} daemonset/{name}"
            )
