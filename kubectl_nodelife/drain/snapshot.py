"""The cluster that a plan is made from, which kinds of objects were read at all, and the part of it
that a plan is about.

A kind that was not read is not the same as a kind without objects: a missing list of budgets must
not look like a cluster without budgets, and a plan from such a dump must not say `ready`, since
what was not read may stop the drain. `Unread` has the kinds that a plan depends on and that were
not read. `Scope` has the nodes of a plan with their pods, and the owners and budgets of these, all
read off the present of the snapshot, in which every budget is counted already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.drain.results import KindNotRead
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.heartbeat import sign_of_life
from kubectl_nodelife.engine.settings import NEWEST, Settings, make_settings, parse_profile
from kubectl_nodelife.kube.kinds import ADMISSION_KINDS, KINDS, kind_of_type
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import Unreadable
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE, TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.kube.workload import Namespace, PodDisruptionBudget
from kubectl_nodelife.sim.disruption import BudgetLedger
from kubectl_nodelife.sim.kubectl.options import DrainOptions, asked_daemon_set
from kubectl_nodelife.sim.present import Branch, goes_on, join
from kubectl_nodelife.sim.timing import LearntTerms, TimesToReady, Timing
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.budgets import budget_index, can_ignore_budgets, is_healthy
from kubectl_nodelife.workloads.force_advice import (
    ForceAdvice,
    NodeReadiness,
    Release,
    force_advice,
    kubelet_reports,
    node_readiness,
)
from kubectl_nodelife.workloads.owners import NEVER, Replacement
from kubectl_nodelife.workloads.pod_classes import pods_among
from kubectl_nodelife.workloads.scheduling import claim_names
from kubectl_nodelife.workloads.waves import BudgetKey

LEASE_DURATION_SECONDS = 40
"""A Lease's leaseDurationSeconds where it does not say."""

T = TypeVar("T", bound=KubeObject)

_ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)
_NO_END_NS: Final = 1 << 70

_NO_LABELS: Mapping[str, str] = {}
_NEWEST = Release()


Change = tuple["PlanSnapshot", tuple[KubeObject, ...], tuple[KubeObject, ...]]
"""What a cluster was before, the objects that are put there, and those that are gone."""


class PlanSnapshot:
    """A cluster at one moment, which is not changed any more: a `Cache` of it, with what was read.

    `kinds_read`: the kinds whose objects were read, None for all of them. `now_ns`: the moment,
    nanoseconds since the epoch. `unreadable`: objects that are there and cannot be read. `release`:
    what the cluster's release does about lost nodes. `settings`: its controllers'.
    """

    def __init__(
        self,
        cluster: Cache | Iterable[KubeObject],
        now_ns: int,
        kinds_read: Collection[str] | None = None,
        unreadable: Sequence[Unreadable] = (),
        release: Release = _NEWEST,
        settings: Settings | None = None,
    ) -> None:
        """`cluster`: its objects, where no cache holds them yet."""
        self.now_ns = now_ns
        self.settings = settings or make_settings(parse_profile(NEWEST), {})
        self.release = release
        self.unreadable = tuple(unreadable)
        self.kinds_read = None if kinds_read is None else frozenset(kinds_read)
        if not isinstance(cluster, Cache):
            objects, cluster = cluster, Cache()
            cluster.fill(objects, now_ns)
        self.cache = with_uids(cluster)
        self._before: Change | None = None
        self._silent: dict[str, str | None] = {}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self.cache.nodes

    @cached_property
    def pods(self) -> Sequence[Pod]:
        """The pods, each with a uid."""
        return [*self.cache.pods.values()]

    def all_of(self, type_: type[T]) -> list[T]:
        """All objects of a type, as they came."""
        return [*self.cache.all(kind_of_type(type_).name)]  # type: ignore[list-item]

    def all(self, kind: str) -> Iterable[KubeObject]:
        """All objects of a kind, as they came."""
        return self.cache.all(kind)

    def changed(
        self, objects: Sequence[KubeObject], without: Sequence[KubeObject] = ()
    ) -> PlanSnapshot:
        """The cluster with these objects in place of those of their names, or besides them."""
        cache = self.cache.fork()
        for gone in without:
            cache.apply(Gone(kind_of_type(type(gone)).name, gone.key), self.now_ns)
        for obj in objects:
            cache.apply(Put(kind_of_type(type(obj)).name, obj), self.now_ns)
        changed = PlanSnapshot(
            cache, self.now_ns, self.kinds_read, self.unreadable, self.release, self.settings
        )
        changed._before = (self, tuple(objects), tuple(without))
        return changed

    # --- the present -----------------------------------------------------------------------------

    @cached_property
    def present(self) -> Branch:
        """The cluster's present with its controllers, joined; not to be played: it is forked."""
        return self._join(late_renew=False)

    @cached_property
    def _present_if_slow(self) -> Branch:
        """The same, where kubelets that are late are slow, and not silent."""
        return self._join(late_renew=True)

    def branch(self, timing: Timing, *, late_renew: bool = False) -> Branch:
        """A branch of the present in which things take as long as that timing says."""
        branch = (self._present_if_slow if late_renew else self.present).fork_under(timing)
        branch.react_after(timing)
        return branch

    @property
    def present_kinds(self) -> frozenset[str]:
        """The kinds of which an object that is not there is known not to exist."""
        return _ALL_KINDS if self.kinds_read is None else self.kinds_read

    def _join(self, *, late_renew: bool) -> Branch:
        if self._before is not None:
            before, objects, without = self._before
            branch = (before._present_if_slow if late_renew else before.present).fork()
            for gone in without:
                branch.world.api.drop(kind_of_type(type(gone)).name, gone.key)
            for changed in objects:
                branch.world.api.put(kind_of_type(type(changed)).name, changed)
            return branch
        kinds = self.present_kinds
        present = join(self.cache, self.settings, self.now_ns, kinds, late_renew=late_renew)
        branch = present.begin(_NO_END_NS)
        branch.world.scheduler.count_rooms()
        changes = branch.world.api.changes
        branch.step()
        if branch.world.api.changes == changes:
            return branch
        return present.begin(_NO_END_NS)

    # --- Owners and Volumes ----------------------------------------------------------------------

    def was_read(self, kind: str) -> bool:
        """True if objects of that kind were read, so that a missing one does not exist."""
        return self.kinds_read is None or kind in self.kinds_read

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object of that kind and name, or None."""
        return self.cache.find(kind, namespace, name)

    # --- indexes ---------------------------------------------------------------------------------

    def pods_on(self, node: str) -> list[Pod]:
        """The pods bound to the node, by namespace and name, as the API lists them."""
        return sorted(self.cache.pods_on(node), key=lambda pod: pod.key)

    @cached_property
    def pods_by_namespace(self) -> dict[str, list[Pod]]:
        """The pods of each namespace."""
        by_namespace: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            by_namespace[pod.metadata.namespace].append(pod)
        return dict(by_namespace)

    @cached_property
    def budgets(self) -> SelectorIndex[PodDisruptionBudget]:
        """The budgets, by what they select."""
        return budget_index(self.all_of(PodDisruptionBudget))

    def budgets_of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that match the pod."""
        return self.budgets.find(pod.namespace, pod.metadata.labels)

    @cached_property
    def namespaces(self) -> dict[str, Namespace]:
        """The namespaces by name."""
        return {namespace.name: namespace for namespace in self.all_of(Namespace)}

    @cached_property
    def namespace_labels(self) -> dict[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {n.name: n.metadata.labels or _NO_LABELS for n in self.namespaces.values()}

    # --- kubelets --------------------------------------------------------------------------------

    @cached_property
    def late(self) -> dict[str, int]:
        """The nodes whose Ready is True or False and whose last heartbeat is late: when it came,
        ns since the epoch. Each of them has a kubelet that the present holds to be silent.
        """
        counts, since_ns = self.settings.leases_count, {}
        silent = self.present.world.kubelets.silent
        for name, node in self.nodes.items():
            if name not in silent:
                continue
            sign, ready = sign_of_life(node, self.cache, self.now_ns, counts), node.ready()
            lost = ready is None or ready.status == "Unknown"
            if sign.at_ns is not None and sign.is_late(self.now_ns) and not lost:
                since_ns[name] = sign.at_ns
        return since_ns

    def force_advice(self, pod: Pod) -> ForceAdvice:
        """The advice on forcing the pod away from its node."""
        of_node = self.readiness(pod.spec.node_name)
        return force_advice(pod, of_node, self.release, self.now_ns)

    @cached_property
    def _leases(self) -> dict[str, Lease]:
        return {
            lease.name: lease
            for lease in self.all_of(Lease)
            if lease.namespace == NAMESPACE_NODE_LEASE
        }

    def silent_kubelet(self, node_name: str) -> str | None:
        """Why the node's kubelet is held to be gone, in a sentence; None where it is not.

        By the cluster's own word (Ready Unknown) unless it renews its Lease, as every forecast has
        it; or by a Lease that ran out before this moment. A node without a Lease is never called
        lost on its age.
        """
        node = self.nodes.get(node_name)
        if node is None:
            return f"node {node_name} does not exist"
        if node_name not in self._silent:
            self._silent[node_name] = self._why_silent(node_name, node)
        return self._silent[node_name]

    def readiness(self, node_name: str) -> NodeReadiness:
        """The facts of a node, for advice about pods that hang on it."""
        node, lease = self.nodes.get(node_name), self._leases.get(node_name)
        if node is None:
            return NodeReadiness(name=node_name, exists=False)
        return node_readiness(node, lease.spec.renew_time if lease is not None else None)

    def renewal_ns(self, node_name: str) -> int | None:
        """How often the node's kubelet renews its Lease: four times in its length; None: not known.

        Kubernetes: pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction.
        """
        lease = self._leases.get(node_name)
        seconds = lease.spec.lease_duration_seconds if lease is not None else None
        return seconds * SECOND_NS // 4 if seconds else None

    def _why_silent(self, node_name: str, node: Node) -> str | None:
        ready = node.ready()
        if ready is not None and ready.status == "Unknown":
            sign = sign_of_life(node, self.cache, self.now_ns, self.settings.leases_count)
            back = goes_on(node, sign, self.now_ns)
            return None if back else f"the kubelet of {node_name} stopped posting node status"
        of_node = self.readiness(node_name)
        if of_node.heartbeat_from_lease and kubelet_reports(
            of_node, self.release.heartbeat_ns, self.now_ns
        ):
            return None
        lease = self._leases.get(node_name)
        if lease is None or lease.spec.renew_time is None:
            return None
        age_ns = self.now_ns - lease.spec.renew_time
        limit_ns = (lease.spec.lease_duration_seconds or LEASE_DURATION_SECONDS) * SECOND_NS
        if age_ns <= limit_ns:
            return None
        return f"the kubelet of {node_name} has not renewed its Lease for {age_ns // SECOND_NS} s"

    def out_of_service(self, node_name: str) -> bool:
        """True if the pod garbage collector removes terminating pods of the node by force."""
        node = self.nodes.get(node_name)
        return (node is not None and self.release.collects_out_of_service) and any(
            taint.key == TAINT_NODE_OUT_OF_SERVICE for taint in node.spec.taints
        )


def with_uids(cluster: Cache) -> Cache:
    """The cluster with a uid on each pod: hand-written ones have none, and a play goes by them."""
    among = pods_among(cluster, lambda summary: summary.nameless)
    nameless = [pod for pod in among if not pod.metadata.uid]
    if nameless:
        cluster = cluster.copy()
    for pod in nameless:
        metadata = replace(pod.metadata, uid=f"{pod.namespace}/{pod.name}")
        cluster.set("Pod", pod.key, replace(pod, metadata=metadata))
    return cluster


OWNERS: Final = frozenset(
    {"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController", "Job", "DaemonSet"}
)

WHY: Final = {
    "Node": "a node that was not read may take a replacement",
    "Pod": "without pods there is nothing to say about a drain",
    "PodDisruptionBudget": "a budget may hold evictions up or stop them",
    "DaemonSet": "kubectl drain reads that of each daemon pod, and refuses the node without",
    "Namespace": "nothing can be evicted in a namespace that is being deleted",
    "Lease": "without its Lease a kubelet that stopped lately seems to run",
    "PersistentVolumeClaim": "a claim may tie a replacement to this node or to its zone",
    "PersistentVolume": "a volume may tie a replacement to this node or to its zone",
} | dict.fromkeys(ADMISSION_KINDS, "it may refuse evictions")
_WHY_OWNER: Final = "it decides whether and when pods are replaced, and what budgets expect"


def kinds_needed(pod: Pod, options: DrainOptions) -> set[str]:
    """The kinds that decide whether this pod goes, and what comes of it."""
    kinds = {"Lease", *ADMISSION_KINDS}
    if not options.disable_eviction:
        kinds.add("Namespace")
        if not can_ignore_budgets(pod):
            kinds.add("PodDisruptionBudget")
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind in OWNERS:
        kinds |= {owner.kind, "Node"}
    if claim_names(pod):
        kinds |= {"PersistentVolumeClaim", "PersistentVolume"}
    return kinds


def _hangs(pod: Pod, unreadable: Unreadable, kinds: set[str], budgets: bool) -> bool:
    """True if the pod's answer depends on an object that cannot be read."""
    namespace, name = unreadable.key
    owner = controller_of(pod.metadata)
    owns = (owner.kind, (pod.namespace, owner.name)) if owner is not None else None
    if unreadable.kind == "Pod":
        # One more of the same owner, or one that counts for the same budget.
        return owns in unreadable.related or (budgets and namespace == pod.namespace)
    if unreadable.kind not in kinds:
        return False
    if unreadable.kind == "Lease":
        return name == pod.spec.node_name
    if unreadable.kind == "Namespace":
        return name == pod.namespace
    if unreadable.kind in OWNERS:
        return (unreadable.kind, unreadable.key) == owns
    return namespace in ("", pod.namespace)


class Unread:
    """The kinds that were needed and not read, gathered over all pods."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self._snapshot = snapshot
        self._kinds: set[str] = set()

    def of(self, pod: Pod, options: DrainOptions) -> list[str]:
        """Those that this pod's answer hangs on."""
        if self._snapshot.kinds_read is None:
            return []
        missing = kinds_needed(pod, options) - self._snapshot.kinds_read
        self._kinds |= missing
        return sorted(missing)

    def of_filters(self, pod: Pod, options: DrainOptions) -> list[str]:
        """What kubectl's filters read of the pod, a DaemonSet, and was not read or cannot be: where
        it is gone, or may not be read, kubectl touches nothing on the node.
        """
        name = asked_daemon_set(pod, options)
        if not name or self._snapshot.kinds_read is None:
            return []
        if "DaemonSet" not in self._snapshot.kinds_read:
            self._kinds.add("DaemonSet")
            return ["DaemonSet"]
        key = (pod.namespace, name)
        unreadable = self._snapshot.unreadable
        return [str(u) for u in unreadable if u.kind == "DaemonSet" and u.key == key]

    def unreadable_for(self, pod: Pod, budgets: bool, options: DrainOptions) -> list[str]:
        """The objects that cannot be read and that this pod's answer hangs on.

        `budgets`: whether a budget matches the pod, whose counts then hang on all pods that it may
        match.
        """
        if not self._snapshot.unreadable:
            return []
        kinds = kinds_needed(pod, options)
        return [
            str(each)
            for each in self._snapshot.unreadable
            if _hangs(pod, each, kinds, budgets and not options.disable_eviction)
        ]

    def unreadable_on(self, node: str) -> list[str]:
        """The pods of the node that cannot be read; whether they go is not known."""
        bound = ("Node", ("", node))
        return [
            str(each)
            for each in self._snapshot.unreadable
            if each.kind == "Pod" and bound in each.related
        ]

    def pods(self) -> bool:
        """True if not even the pods were read, so that a node without any may have many."""
        if self._snapshot.was_read("Pod"):
            return False
        self._kinds.add("Pod")
        return True

    def listed(self) -> list[KindNotRead]:
        """All of them, with why they count."""
        return [KindNotRead(kind, WHY.get(kind, _WHY_OWNER)) for kind in sorted(self._kinds)]


BELONG_TO_NODES = frozenset({"DaemonSet", "Node"})
"""Owners whose pods a drain does not move."""

NO_REPLACEMENT = Replacement(NEVER, why="no controller owns it")


class Scope:
    """The part of a snapshot that a plan for `nodes` is about, at the plan's moment.

    `pods`: the pods of each planned node, in the API's order. `world`: the snapshot's present,
    which is not changed: each run has a fork of it.
    """

    def __init__(self, snapshot: PlanSnapshot, nodes: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.nodes = tuple(nodes)
        self.pods: dict[str, list[Pod]] = {name: snapshot.pods_on(name) for name in nodes}
        self._rules: dict[str, Replacement] = {}
        self._ready: dict[str, int] = {}
        admitted = map(self.world.api.default_tolerations.admit, self.all_pods())
        self.world.scheduler.placement.prepare(admitted)

    @property
    def world(self) -> World:
        """See the class."""
        return self.snapshot.present.world

    @property
    def admission(self) -> Admission:
        """What the API server refuses."""
        return self.world.api.admission

    def ledger(self, key: BudgetKey) -> BudgetLedger:
        """A budget as it stands."""
        return self.world.disruption.ledger(key)

    @property
    def times(self) -> TimesToReady:
        """How long pods take to be Ready."""
        terms = self.world.kubelets.terms
        assert isinstance(terms, LearntTerms)
        return terms.times

    def all_pods(self) -> Iterable[Pod]:
        """The pods of all planned nodes."""
        return chain.from_iterable(self.pods.values())

    def budgets_of(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """The budgets that match the pod."""
        return tuple(ledger.budget.key for ledger in self.world.disruption.budgets_of(pod))

    @cached_property
    def own_budgets(self) -> frozenset[BudgetKey]:
        """The budgets that match one of the plan's own pods."""
        return frozenset(key for pod in self.all_pods() for key in self.budgets_of(pod))

    def rule_of(self, pod: Pod) -> Replacement:
        """How the pod's owner replaces it; `NO_REPLACEMENT` where a drain does not move it."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind in BELONG_TO_NODES:
            return NO_REPLACEMENT
        rule = self._rules.get(owner.uid)
        if rule is None:
            rule = self._rules[owner.uid] = self.world.owners.rule_of(pod)
        return rule

    def pods_of(self, owner_uid: str) -> list[Pod]:
        """All pods of an owner."""
        return self.world.api.store.pods_of(owner_uid)

    def ready_pods(self, owner_uid: str) -> int:
        """How many of them are Ready."""
        if owner_uid not in self._ready:
            self._ready[owner_uid] = sum(map(is_healthy, self.pods_of(owner_uid)))
        return self._ready[owner_uid]
