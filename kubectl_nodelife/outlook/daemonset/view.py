"""One DaemonSet as its controller sees it now: placement, pods, counts, what it would do next; why
a pod does not do its work, and which pods run another image than the revision whose hash they have.

Such an image is an old one under a new hash (kubernetes#111280), or the pod was edited by hand.
Images that admission rewrites differ in all pods of a revision alike, and are no pod's fault: these
count only where another revision of the set holds that very image.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.controllers.daemonset.history import (
    hash_label,
    revision_to_keep,
    split_revisions,
)
from kubectl_nodelife.controllers.daemonset.memory import TrackedSet
from kubectl_nodelife.controllers.daemonset.node_status_index import (
    ROLLING_UPDATE,
    NodeStatusIndex,
    status_from_tally,
)
from kubectl_nodelife.controllers.daemonset.placement import PlacementDecision
from kubectl_nodelife.controllers.daemonset.pods_on_node import NodeDecision, pod_age_key
from kubectl_nodelife.controllers.daemonset.rolling_update import (
    UpdateImpossibleError,
    UpdateStep,
    plan_update,
)
from kubectl_nodelife.controllers.daemonset.sync import create_pod, decisions
from kubectl_nodelife.engine.actions import created_pod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import history_of, template_of
from kubectl_nodelife.workloads.pending import Obstacle, Origin, pending_reason

Key = tuple[str, str]


def lacking_to_count(unread: Container[str]) -> str:
    """The kind that counts depend on and that was not read; "" where they can be counted."""
    return "nodes" if "Node" in unread else "pods" if "Pod" in unread else ""


def cache_for(
    objects: Iterable[KubeObject], namespace: str | None, rules: Behaviour, name: str = ""
) -> Cache:
    """A cache of what the sets of a namespace (None: of all), or the one of that name, depend on.

    Pods that another controller has are nothing to a DaemonSet, but for the room that they take,
    where the release's rules look at that.
    """
    cache = Cache()
    cache.fill((obj for obj in objects if rules.suspends or _counts(obj, namespace, name)), 0)
    return cache


def _counts(obj: KubeObject, namespace: str | None, name: str) -> bool:
    if not isinstance(obj, Pod):
        return True
    if namespace is not None and obj.metadata.namespace != namespace:
        return False
    owner = controller_of(obj.metadata) if obj.metadata.owner_references else None
    return owner is None or (owner.kind == "DaemonSet" and name in ("", owner.name))


@dataclass(eq=False)
class DaemonSets:
    """All sets of a cache, with the controller that judges them.

    `unread`: kinds that were not read; `beside`: pods that are nothing to a DaemonSet but for the
    room that they take; `annotations`: those of namespaces, by name.
    """

    cache: Cache
    settings: Settings
    now_ns: int
    unread: Container[str] = ()
    beside: Iterable[Pod] = ()
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = DaemonSetController(self.settings)
        for _ in self.controller.start(self.cache, self.now_ns):
            pass  # it only fills its indexes and asks to be woken

    def all_pods(self) -> Iterable[Pod]:
        """All pods that were read."""
        return {pod.key: pod for pod in (*self.beside, *self.cache.pods.values())}.values()

    @cached_property
    def _by_node(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self.all_pods():
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        return by_node

    def pods_on(self, node: str) -> list[Pod]:
        """All pods that were read of the node."""
        return self._by_node.get(node, [])

    def set_keys(
        self, namespace: str | None = None, labels: LabelSelector | None = None
    ) -> list[Key]:
        """The sets' (namespace, name), in order; of one namespace and with these labels, or all."""
        return sorted(
            each.key
            for each in self.cache.all("DaemonSet")
            if (namespace is None or each.namespace == namespace)
            and (labels is None or matches(labels, each.metadata.labels))
        )

    def view(self, key: Key) -> SetView | None:
        """One set, or None where there is no such set, or its template cannot be read."""
        tracked = self.controller.index.by_key.get(key)
        return SetView(self, tracked) if tracked is not None else None

    def fault(self, key: Key) -> str:
        """Why a set that is there has no view, "" if it has one."""
        return self.controller.index.invalid.get(key, "")


class SetView:
    """One set at one instant."""

    def __init__(self, sets: DaemonSets, tracked: TrackedSet) -> None:
        self.tracked, self._sets = tracked, sets
        self.settings, self.now_ns = sets.settings, sets.now_ns
        self.unread, self.cache = sets.unread, sets.cache
        self._context = sets.controller.context(tracked, sets.cache, sets.now_ns)
        self._context.backoff = self._context.backoff.fork()  # which counts what is decided
        revisions = sets.controller.index.revisions.get(tracked.daemon_set.namespace, {})
        self.revisions = history_of(tracked.daemon_set, revisions.values())
        candidates, _ = split_revisions(self.daemon_set.spec.template, self.revisions)
        self.current = revision_to_keep(candidates) if candidates else None
        self.revision_hash = hash_label(self.current) if self.current is not None else ""
        self.node_index: NodeStatusIndex = tracked.refresh(sets.now_ns, self.revision_hash)

    @property
    def daemon_set(self) -> DaemonSet:
        """The set."""
        return self.tracked.daemon_set

    @property
    def knows_updated(self) -> bool:
        """True if it is known which pods are of the present template."""
        tracked = self.tracked
        by_label = tracked.rules.generation_label_counts and tracked.generation is not None
        read = "ControllerRevision" not in self.unread and not self._revisions_missing
        return read or by_label

    @property
    def _revisions_missing(self) -> bool:
        """True if the set's pods name revisions, and none of the set's was read: a dump of some
        namespaces holds only theirs."""
        hash_ = LABEL_CONTROLLER_REVISION_HASH
        return not self.revisions and any(hash_ in (p.metadata.labels or {}) for p in self.pods())

    def status(self) -> DaemonSetStatus:
        """The status that the controller would write."""
        return status_from_tally(self.daemon_set, self.node_index.tally, observe=True)

    def nodes(self) -> Iterator[tuple[str, PlacementDecision | None, list[Pod]]]:
        """(node, verdict, its pods, the oldest first), in name order.

        Nodes that do not exist but have a pod of the set are among them, without a verdict.
        """
        names = set(self.cache.nodes) | set(self.tracked.pods.by_node)
        for name in sorted(names):
            facts = self.node_index.facts(name)
            verdict = facts.verdict if facts is not None else None
            yield name, verdict, self.pods_on(name)

    def pods_on(self, node: str) -> list[Pod]:
        """The set's pods on a node, the oldest first."""
        return sorted(self.tracked.pods.on_node(node) or (), key=pod_age_key)

    def pods(self) -> Iterable[Pod]:
        """All the set's pods that count."""
        return self.tracked.pods.claimed()

    def pending(self, pod: Pod) -> Obstacle | None:
        """What keeps a pod without a node off its node; None: our filters do not say."""
        daemon_set, selector = self.daemon_set, self.tracked.template.spec.node_selector or {}
        annotations = self._sets.annotations.get(daemon_set.namespace)
        origin = Origin(f"DaemonSet {daemon_set.name}", selector, annotations)
        reason = pending_reason(pod, self.cache.nodes, self._sets.pods_on, origin)
        return None if reason is None else reason.obstacle

    def all_pods(self) -> Iterable[Pod]:
        """The pods of the cluster, as far as they were read."""
        return self._sets.all_pods()

    @cached_property
    def decisions(self) -> dict[str, NodeDecision]:
        """The decisions of the create step, by node."""
        return dict(decisions(self._context, self.node_index, self.revision_hash))

    @cached_property
    def doomed(self) -> dict[Key, str]:
        """The pods that the create step deletes, and why."""
        decided = self.decisions.values()
        return {each.pod.key: each.because for decision in decided for each in decision.delete}

    @cached_property
    def after_create_step(self) -> SetView:
        """The set once the pods of the create step are made and deleted, which a sync waits for
        before it updates (`updateDaemonSet`); this view where there are none.
        """
        decided, doomed = self.decisions, self.doomed
        taken: set[str] = set()
        made = [
            create_pod(self._context, node, self.revision_hash, each.create_because, taken)
            for node, each in decided.items()
            if each.create_because
        ]
        if not doomed and not made:
            return self
        pods = (
            delete_pod(pod, self.now_ns) if key in doomed else pod
            for key, pod in self.cache.pods.items()
        )
        created = (created_pod(each.manifest, self.now_ns) for each in made)
        unchanged = (self.cache.nodes.values(), [self.daemon_set], self.revisions)
        objects = chain(*unchanged, filter(None, pods), created)
        namespace, name = self.daemon_set.key
        cache = cache_for(objects, namespace, self.tracked.rules, name)
        view = replace(self._sets, cache=cache).view(self.daemon_set.key)
        assert view is not None
        return view

    def update_step(self) -> UpdateStep | None:
        """The rolling update's next step; None for another strategy, or where it cannot go on."""
        if self.daemon_set.spec.update_strategy.type != ROLLING_UPDATE or not self.knows_updated:
            return None
        then = self.after_create_step
        try:
            return plan_update(then.tracked, then.node_index, self.revision_hash, self.now_ns)
        except UpdateImpossibleError:
            return None

    def revision_of(self, pod: Pod) -> str:
        """The number of the pod's revision, else its hash, "" where it has none."""
        label = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH, "")
        for revision in self.revisions:
            if label and hash_label(revision) == label:
                return str(revision.revision)
        return label


NOT_SCHEDULED = "not scheduled"


class TroubleKind(enum.Enum):
    """What keeps the pod."""

    LEAVING = enum.auto()
    FINISHED = enum.auto()
    UNSCHEDULED = enum.auto()
    WAITING_CONTAINER = enum.auto()
    NODE_DOWN = enum.auto()
    UNREADY = enum.auto()


class PodTrouble(NamedTuple):
    """The kind, in words, and whether the pod's node is there and not Ready."""

    kind: TroubleKind
    words: str
    node_down: bool = False


def trouble_of(view: SetView, pod: Pod) -> PodTrouble | None:
    """Why the pod does not do its work; None if it does."""
    node = view.cache.nodes.get(pod.spec.node_name)
    node_down = node is not None and not node.is_ready
    if pod.metadata.deletion_timestamp is not None:
        words = "terminating, and its node is not Ready" if node_down else "terminating"
        return PodTrouble(TroubleKind.LEAVING, words, node_down)
    if pod.status.phase in TERMINAL_PHASES:
        return PodTrouble(TroubleKind.FINISHED, pod.status.reason or pod.status.phase, node_down)
    if not pod.spec.node_name:
        return PodTrouble(TroubleKind.UNSCHEDULED, _unscheduled(view, pod))
    if pod.ready():
        return None
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            words = f"container {status.name} waits: {waiting.reason}"
            return PodTrouble(TroubleKind.WAITING_CONTAINER, words, node_down)
    if node_down:
        return PodTrouble(TroubleKind.NODE_DOWN, "its node is not Ready", node_down)
    return PodTrouble(TroubleKind.UNREADY, "not Ready")


def _unscheduled(view: SetView, pod: Pod) -> str:
    obstacle = view.pending(pod)
    if obstacle is not None:
        return f"{NOT_SCHEDULED}: {obstacle.because}"
    scheduled = pod.status.condition("PodScheduled")
    why = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    return f"{NOT_SCHEDULED}: {why}" if why else NOT_SCHEDULED


def other_images(view: SetView) -> Iterator[str]:
    """Sentences on such pods, one for each container and pair of images."""
    held = {hash_label(revision): _images(template_of(revision)) for revision in view.revisions}
    numbers = {hash_label(revision): revision.revision for revision in view.revisions}
    pods: dict[str, list[Pod]] = {}
    for pod in view.pods():
        label = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH, "")
        if label in held and pod.metadata.deletion_timestamp is None:
            pods.setdefault(label, []).append(pod)
    for label, alike in pods.items():
        odd: dict[tuple[str, str], list[str]] = {}
        for pod in alike:
            for container in pod.spec.containers:
                image = container.image
                if image and held[label].get(container.name, image) != image:
                    odd.setdefault((container.name, image), []).append(pod.name)
        for (container_name, image), names in odd.items():
            elsewhere = any(images.get(container_name) == image for images in held.values())
            if elsewhere or len(names) < len(alike):
                runs = "1 pod runs" if len(names) == 1 else f"{len(names)} pods run"
                yield (
                    f"{runs} {image}, and revision {numbers[label]}, whose hash they carry, holds "
                    f"{held[label][container_name]}: {', '.join(sorted(names)[:3])}"
                )


def _images(template: Mapping[str, object]) -> dict[str, str]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return {c["name"]: c["image"] for c in containers or () if isinstance(c, dict) and "image" in c}
