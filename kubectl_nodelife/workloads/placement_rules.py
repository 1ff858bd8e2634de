"""The demands of pods on a node, with the counts behind their rules kept up while pods come and go.

Rules are those that look beyond a single node: topology spread, and affinity and anti-affinity
between pods. They are counted once for a class of pods that are alike, when first asked for.

`SchedulerCache` is what the simulated scheduler asks of the cluster: nodes, what their pods leave,
volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Protocol

from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.workloads.pod_classes import Demands, PodClass
from kubectl_nodelife.workloads.scheduling import NodeInfo, PodRequirements
from kubectl_nodelife.workloads.topology import (
    InterPodAffinity,
    TopologySpread,
    affinity_terms,
    anti_affinity_terms,
    hard_constraints,
)
from kubectl_nodelife.workloads.volumes import NO_NEEDS, VolumeNeeds, Volumes, volume_needs


class SchedulerCache(Volumes, Protocol):
    """The cluster as the scheduler sees it now."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""

    @property
    def empty_selector_spreads(self) -> bool:
        """True if a spread constraint with an empty selector counts every pod of the namespace."""

    def pod_count(self, name: str) -> int:
        """How many pods are bound to the node."""

    def stock(self, name: str) -> NodeInfo:
        """The node's room beside its pods; the caller's own copy."""

    def placed(self, namespace: str | None) -> Iterable[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""

    def placed_anti_affinity(self) -> Iterable[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""

    def default_selector(self, pod: Pod) -> tuple[LabelSelector | None, str]:
        """What selects the pods that the scheduler spreads with this one by default, or the uid of
        their owner where that was not read; None and "": it spreads none.

        Follows `DefaultSelector`: the Services and the owner that select the pod.
        """

    def keeps_off(self, node: Node) -> str | None:
        """Why no pod goes to the node though the filters let it, or None."""


class PlacementRules:
    """The rules of all classes of pods that were asked about. It receives changes, as
    `PlacementSimulator` does.
    """

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        self._anti_affinity = any(True for _ in cache.placed_anti_affinity())
        self._counted: dict[PodClass, PodRequirements] = {}
        self._spreads: SelectorIndex[TopologySpread] = SelectorIndex()
        self._spreading: list[TopologySpread] = []
        self._interpods: list[InterPodAffinity] = []

    def fork(self, cache: SchedulerCache) -> PlacementRules:
        """Another one with the same counts, made by sharing."""
        other = copy(self)
        other._cache = cache
        other._spreading = [spread.fork() for spread in self._spreading]
        other._interpods = [interpod.fork() for interpod in self._interpods]
        spreads = dict(zip(self._spreading, other._spreading, strict=True))
        interpods = dict(zip(self._interpods, other._interpods, strict=True))
        other._counted = {
            class_: PodRequirements(
                wanted.pod,
                spreads[wanted.spread] if wanted.spread is not None else None,
                interpods[wanted.interpod] if wanted.interpod is not None else None,
            )
            for class_, wanted in self._counted.items()
        }
        other._spreads = SelectorIndex()
        for spread in other._spreading:
            other._file(spread)
        return other

    def class_of(self, pod: Pod, demands: Demands) -> PodClass:
        """The pod's class; labels count where some pod has a required anti-affinity to others."""
        return demands.class_of(pod, self._anti_affinity)

    def wanted(self, pod: Pod, demands: Demands) -> PodRequirements:
        """The pod's demands, its volumes included."""
        class_ = self.class_of(pod, demands)
        shared = demands.wanted if class_ is demands.plain else self._of_class(class_)
        volumes = pod.spec.volumes
        if not volumes or not any(v.persistent_volume_claim or v.ephemeral for v in volumes):
            return shared
        needs = self.volume_needs(pod)
        if needs is NO_NEEDS:
            return shared
        return PodRequirements(pod, shared.spread, shared.interpod, needs, self._cache)

    def volume_needs(self, pod: Pod) -> VolumeNeeds:
        """The demands of the pod's volumes on a node."""
        return volume_needs(pod, self._cache, created_anew=True)

    def after(
        self,
        wanted: PodRequirements,
        node: Node,
        coming: Iterable[Pod],
        leaving: Iterable[Pod],
    ) -> PodRequirements:
        """A pod's demands as they are once these have come to the node, and those have left it.

        Follows `AddPod` and `RemovePod` of the plugins' PreFilterExtensions. InterPodAffinity has
        none for a pod that no rule concerned before: its PreFilter says Skip.
        """
        spread = wanted.spread.fork() if wanted.spread is not None else None
        interpod = wanted.interpod
        interpod = interpod.fork() if interpod is not None and interpod.concerns() else None
        for others, by in ((coming, 1), (leaving, -1)):
            for other in others:
                if spread is not None:
                    spread.suppose(other, node, by)
                if interpod is not None:
                    interpod.change(other, node, by)
        changed = copy(wanted)
        changed.spread, changed.interpod = spread, interpod
        return changed

    def are_counted(self) -> bool:
        """True if some class's rules are counted, so that a new pod may make room for another."""
        return bool(self._counted)

    # What changes

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or changed in something that a filter looks at."""
        moved = old is None or new is None or old.metadata.labels != new.metadata.labels
        if moved or any(spread.honours_taints() for spread in self._spreading):
            self._forget()

    def pod_moved(self, pod: Pod, name: str, by: int) -> None:
        """A pod takes room on the node from now on (`by` 1), or no longer (-1)."""
        node = self._cache.nodes.get(name)
        if pod.spec.affinity is not None and not self._anti_affinity and anti_affinity_terms(pod):
            # From now on labels divide classes that were one.
            self._anti_affinity = True
            self._forget()
        if node is not None:
            for interpod in self._interpods:
                interpod.change(pod, node, by)

    def pod_changed(self, old: Pod | None, new: Pod | None, before: str, after: str) -> None:
        """A pod changed that takes room on these nodes, "" for none; terminating ones are not
        spread any more.
        """
        if not self._spreading:
            return
        counted_before = before if _counts_for_spread(old) else ""
        counted_after = after if _counts_for_spread(new) else ""
        if counted_before != counted_after:
            self._spread(old, counted_before, -1)
            self._spread(new, counted_after, 1)

    def _spread(self, pod: Pod | None, name: str, by: int) -> None:
        node = self._cache.nodes.get(name) if name else None
        if pod is None or node is None:
            return
        # Each once, though two of its selectors match.
        for spread in dict.fromkeys(self._spreads.find(pod.namespace, pod.metadata.labels)):
            spread.change(pod, node, by)

    def _forget(self) -> None:
        """All counts are taken anew when they are next needed."""
        self._counted.clear()
        self._spreads, self._spreading, self._interpods = SelectorIndex(), [], []

    # The counts of a class

    def _of_class(self, class_: PodClass) -> PodRequirements:
        requirements = self._counted.get(class_)
        if requirements is None:
            sample = class_.sample
            requirements = PodRequirements(
                sample, self._spread_of(sample), self._interpod_of(sample)
            )
            self._counted[class_] = requirements
        return requirements

    def _spread_of(self, pod: Pod) -> TopologySpread | None:
        if not hard_constraints(pod):
            return None
        all_of_them = self._cache.empty_selector_spreads
        spread = TopologySpread(pod, self._cache.nodes.values(), empty_selects_all=all_of_them)
        for placed, node in self._cache.placed(pod.namespace):
            if placed.metadata.deletion_timestamp is None:
                spread.change(placed, node, 1)
        self._spreading.append(spread)
        self._file(spread)
        return spread

    def _file(self, spread: TopologySpread) -> None:
        for selector in spread.selectors():
            self._spreads.add(spread.namespace, selector, spread)

    def _interpod_of(self, pod: Pod) -> InterPodAffinity | None:
        terms = affinity_terms(pod) + anti_affinity_terms(pod)
        if not terms and not self._anti_affinity:
            return None
        interpod = InterPodAffinity(pod, self._cache.namespace_labels)
        if all(t.namespace_selector is None and t.namespaces == {pod.namespace} for t in terms):
            # Its own terms are about its namespace alone; elsewhere only others' terms count.
            for other, node in self._cache.placed(pod.namespace) if terms else ():
                interpod.change(other, node, 1)
            for other, node in self._cache.placed_anti_affinity():
                if not terms or other.namespace != pod.namespace:
                    interpod.change(other, node, 1)
        else:
            for other, node in self._cache.placed(None):
                interpod.change(other, node, 1)
        self._interpods.append(interpod)
        return interpod


def _counts_for_spread(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is None
