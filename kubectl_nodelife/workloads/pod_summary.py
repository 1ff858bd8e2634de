"""What depends on names and specs of a cluster's pods alone, kept up while they come and go.

A daemon keeps it for its cache (`engine.cache.PodIndex`), so that a play that begins need not walk
through all pods: which of them keep others away, which have a uid that an earlier play gave or
none, and the room that the pods of each node take. Whoever keeps none walks (`sim`). There is no
upstream to follow; kube-scheduler's cache keeps the same by node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.workloads.pod_classes import PodClasses
from kubectl_nodelife.workloads.scheduling import PodRequirements
from kubectl_nodelife.workloads.topology import anti_affinity_terms

Key = tuple[str, str]
Rooms = dict[PodRequirements, int]

MADE_UID_ENDS: Final = "-4000-8000-000000000000"
"""How the uids end that plays give."""

_MOST_TEMPLATES: Final = 4096
"""So many more pod templates may be known than at first before those that are gone are let go."""


class _Cluster(Protocol):
    pod_index: Any
    pods: dict[Key, Pod]

    def pods_on(self, node: str) -> list[Pod]: ...


def summary_of(cluster: _Cluster) -> PodSummary | None:
    """What is kept of a cache's pods, as they are now; None: nothing, they must be walked."""
    summary = cluster.pod_index
    if not isinstance(summary, PodSummary):
        return None
    for _ in summary.catch_up(cluster.pods_on):
        pass
    return summary


def pods_among(cluster: _Cluster, kept: Callable[[PodSummary], Iterable[Key]]) -> Iterable[Pod]:
    """Those pods of a cache among which those are that someone looks for: what is kept of them
    (`PodSummary.keep_off`, …), or all.
    """
    summary = summary_of(cluster)
    return (
        cluster.pods.values() if summary is None else map(cluster.pods.__getitem__, kept(summary))
    )


class PodSummary:
    """Of all pods of a cache. `keep_off`: those with a required anti-affinity to others; `made`:
    those whose uid an earlier play may have given; `nameless`: those without a uid.

    A node whose pods changed is counted anew when they are asked for (`catch_up`).
    """

    def __init__(self, nodes: Iterable[str], unbound: Iterable[Pod]) -> None:
        """`nodes`: those with pods, all still to be counted; `unbound`: the pods without a node."""
        self.keep_off: dict[Key, None] = {}
        self.made: dict[Key, None] = {}
        self.nameless: dict[Key, None] = {}
        self._rooms: dict[str, Rooms] = {}
        self._stale = set(nodes)
        self._classes, self._most = PodClasses(), 0
        for pod in unbound:
            self._note(pod)

    def copy(self) -> PodSummary:
        """Another one that is kept up by itself."""
        other = PodSummary(self._stale, ())
        other.keep_off, other.made = dict(self.keep_off), dict(self.made)
        other.nameless, other._rooms = dict(self.nameless), dict(self._rooms)
        other._classes, other._most = self._classes, self._most
        return other

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went or changed; the cache has it already."""
        if (
            old is not None
            and new is not None
            and old.spec is new.spec
            and old.metadata is new.metadata
            and (old.status.phase in TERMINAL_PHASES) is (new.status.phase in TERMINAL_PHASES)
        ):
            return
        for pod in (old, new):
            if pod is not None and pod.spec.node_name:
                self._stale.add(pod.spec.node_name)
        if old is not None:
            for pods in (self.keep_off, self.made, self.nameless):
                pods.pop(old.key, None)
        if new is not None:
            self._note(new)

    def catch_up(self, pods_on: Callable[[str], Sequence[Pod]]) -> Iterator[None]:
        """Count what changed, node by node; pods may change between two of these steps."""
        stale = self._stale
        if self._most and self._classes.templates() > self._most:
            self._classes, self._most = PodClasses(), 0
            stale |= self._rooms.keys()
        while stale:
            name = stale.pop()
            pods = pods_on(name)
            for pod in pods:
                self._note(pod)
            rooms = self._classes.rooms_on(pods).get(name)
            if rooms:
                self._rooms[name] = rooms
            else:
                self._rooms.pop(name, None)
            yield
        self._most = self._most or self._classes.templates() + _MOST_TEMPLATES

    def rooms(self) -> dict[str, Rooms]:
        """The room that pods take of each node, and how many take the same; once caught up."""
        return dict(self._rooms)

    def _note(self, pod: Pod) -> None:
        meta = pod.metadata
        if not meta.uid:
            self.nameless[pod.key] = None
        elif meta.uid.endswith(MADE_UID_ENDS):
            self.made[pod.key] = None
        if pod.spec.affinity is not None and anti_affinity_terms(pod):
            self.keep_off[pod.key] = None
