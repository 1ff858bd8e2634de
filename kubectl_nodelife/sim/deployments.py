"""The Deployment controller of the virtual cluster, and what its ReplicaSets do when it scales
them.

Follows pkg/controller/deployment (`rolloutRolling`, `rolloutRecreate`, `reconcileNewReplicaSet`,
`reconcileOldReplicaSets`, `cleanupUnhealthyReplicas`, `scaleDownOldReplicaSetsForRollingUpdate`)
with its util (`NewRSNewReplicas`, `ResolveFenceposts`), and pkg/controller/replicaset with
`ActivePodsWithRanks` for the pods that a ReplicaSet deletes first. A Deployment is followed from
its first change, or from the start where its roll-out is under way and all its pods were read,
until all its pods are those of its template. Pods that its ReplicaSets lose meanwhile are replaced
by `owners.py`. Left out: the Deployment's own status and conditions, roll-backs except by applying
the earlier template, proportional scaling while a roll-out is under way, the progress deadline, and
old ReplicaSets beyond revisionHistoryLimit, which have no pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, Final, NamedTuple, Self, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import canonical_json, safe_encode
from kubectl_nodelife.controllers.daemonset.pods_on_node import available_from, is_past
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions.action import created_pod
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import (
    KubeObject,
    LabelSelector,
    ObjectMeta,
    Time,
    controller_of,
    new_controller_ref,
)
from kubectl_nodelife.kube.names import fnv1a_32
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.workload import (
    Deployment,
    DeploymentStrategy,
    IntOrString,
    NotAPercentage,
    ReplicaSet,
    ScaleSpec,
    scaled_value,
)
from kubectl_nodelife.sim.api import Api, ForkedWorld, WorldPart, creation, event_record
from kubectl_nodelife.sim.clients import in_turn
from kubectl_nodelife.sim.owners import Bind
from kubectl_nodelife.sim.timeline import OWNER, Agenda, Happening
from kubectl_nodelife.workloads.owners import LABEL_POD_TEMPLATE_HASH, is_active, replicas_of

RECREATE: Final = "Recreate"
DEFAULT_SHARE: Final = "25%"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaCount(NamedTuple):
    """A ReplicaSet of the Deployment: how many pods it is to have, and how many are available."""

    name: str
    replicas: int
    available: int


def next_step(
    wanted: int,
    strategy: DeploymentStrategy,
    new: ReplicaCount,
    old: Sequence[ReplicaCount],
    *,
    old_pods: bool,
) -> dict[str, int]:
    """The replicas that one sync gives to ReplicaSets, by name; empty where it changes nothing.

    `old`: the others, the oldest first; `old_pods`: whether any pod of theirs is still there.
    """
    if strategy.type == RECREATE:
        down = {one.name: 0 for one in old if one.replicas}
        if down or old_pods:
            return down
        return {new.name: wanted} if new.replicas != wanted else {}
    surge, unavailable = fenceposts(strategy, wanted)
    count = _new_replicas(wanted, surge, new, old)
    if count != new.replicas:
        return {new.name: count}
    return _scaled_down(wanted, unavailable, new, old)


def fenceposts(strategy: DeploymentStrategy, wanted: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers: the first is rounded up, the second down, and they are
    not both 0. Follows `ResolveFenceposts` and `MaxUnavailable`.
    """
    rolling = strategy.rolling_update
    surge = _scaled(rolling.max_surge if rolling else None, wanted, up=True)
    unavailable = _scaled(rolling.max_unavailable if rolling else None, wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def _new_replicas(wanted: int, surge: int, new: ReplicaCount, old: Sequence[ReplicaCount]) -> int:
    """Follows `reconcileNewReplicaSet` and `NewRSNewReplicas`."""
    if new.replicas >= wanted:
        return wanted
    room = wanted + surge - new.replicas - _replicas(old)
    return new.replicas + max(0, min(room, wanted - new.replicas))


def _scaled_down(
    wanted: int, unavailable: int, new: ReplicaCount, old: Sequence[ReplicaCount]
) -> dict[str, int]:
    """Scale down old ReplicaSets: first by pods that are not available, then by as many others as
    may be missing. Follows `reconcileOldReplicaSets`.
    """
    least = wanted - unavailable
    most = _replicas(old) + new.replicas - least - (new.replicas - new.available)
    if not _replicas(old) or most <= 0:
        return {}
    cleaned, budget = {}, most
    for one in old:
        count = min(budget, max(0, one.replicas - one.available))
        if count:
            cleaned[one.name] = one.replicas - count
            budget -= count
    lower = dict(cleaned)
    budget = new.available + sum(one.available for one in old) - least
    for one in old:
        replicas = cleaned.get(one.name, one.replicas)
        count = min(replicas, max(0, budget))
        if count:
            lower[one.name] = replicas - count
            budget -= count
    return lower


def _replicas(sets: Iterable[ReplicaCount]) -> int:
    return sum(one.replicas for one in sets)


def _scaled(value: IntOrString | None, total: int, *, up: bool) -> int:
    """An int as it is, a percentage of `total` rounded; one that is neither counts as 0."""
    value = DEFAULT_SHARE if value is None else value
    try:
        return max(0, scaled_value(value, total, up=up))
    except NotAPercentage:
        return 0


def first_to_go(pods: Iterable[Pod], related: Iterable[Pod], now_ns: int) -> list[Pod]:
    """A ReplicaSet's active pods in the order in which it deletes them.

    `related`: the active pods of all ReplicaSets of the same Deployment. Follows
    `ActivePodsWithRanks.Less`.
    """
    on_node = Counter(pod.spec.node_name for pod in related)

    def less(one: Pod, other: Pod) -> int:
        plain, theirs = _rank(one, on_node), _rank(other, on_node)
        if plain != theirs:
            return -1 if plain < theirs else 1
        by_uid = -1 if one.uid < other.uid else 1
        if one.ready() and other.ready() and _ready_time(one) != _ready_time(other):
            return _compare_ages(_ready_time(one), _ready_time(other), now_ns) or by_uid
        if _restarts(one) != _restarts(other):
            return _restarts(other) - _restarts(one)
        created = one.metadata.creation_timestamp, other.metadata.creation_timestamp
        return _compare_ages(*created, now_ns) or by_uid

    return sorted(pods, key=cmp_to_key(less))


def _rank(pod: Pod, on_node: Mapping[str, int]) -> tuple[int, ...]:
    """The order before ages: unbound, phase, not Ready, deletion cost, related pods on its node."""
    cost = (pod.metadata.annotations or {}).get(POD_DELETION_COST, "0")
    return (
        int(bool(pod.spec.node_name)),
        _PHASES.get(pod.status.phase, 0),
        int(pod.ready()),
        int(cost) if cost.lstrip("-").isdecimal() else 0,
        -on_node[pod.spec.node_name] if pod.spec.node_name else 0,
    )


def _ready_time(pod: Pod) -> Time | None:
    ready = pod.status.condition("Ready")
    return ready.last_transition_time if ready is not None else None


def _restarts(pod: Pod) -> int:
    """Follows `compareMaxContainerRestarts`, init containers left out."""
    return max((s.restart_count for s in pod.status.container_statuses or ()), default=0)


def _compare_ages(one: Time | None, other: Time | None, now_ns: int) -> int:
    """The younger first, by the logarithm of the ages: pods of about the same age are equal. Pods
    without a time come first. Follows `logarithmicRankDiff`.
    """
    if one is None or other is None:
        return (one is not None) - (other is not None)
    return max(0, now_ns - one).bit_length() - max(0, now_ns - other).bit_length()


class Deployments(WorldPart):
    """The Deployment controller of the virtual cluster."""

    def __init__(self, api: Api, agenda: Agenda, bind: Bind) -> None:
        super().__init__(api, agenda)
        self._bind = bind
        self._followed: dict[str, Key] = {}
        """The keys of the Deployments that are followed, by uid."""
        self._causes: dict[str, Action | None] = {}
        self._sets: dict[str, str] = {}
        """Of their ReplicaSets: the Deployment's uid, by that of the set."""
        self._due: set[tuple[str, int]] = set()
        self._coming: Counter[str] = Counter()
        """By the set's uid: how many pods wait for its controller's client."""
        self._going: dict[str, None] = {}
        """The uids of pods whose deletion waits for it."""

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        other._bind = world.agenda.mine(self._bind)
        other._followed, other._sets = dict(self._followed), dict(self._sets)
        other._causes, other._due = dict(self._causes), set(self._due)
        other._coming, other._going = Counter(self._coming), dict(self._going)
        return other

    def begin(self) -> None:
        """Follow roll-outs that are under way, and from now on every change."""
        self._api.on_object(self._object_changed)
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        for obj in list(self._api.store.all("Deployment")):
            deployment = cast(Deployment, obj)
            if self._is_under_way(deployment):
                self._follow(deployment, None)

    def _is_under_way(self, deployment: Deployment) -> bool:
        """True if its roll-out had begun, and all pods that its ReplicaSets count exist. False if
        it was read without its template, since then this cannot be known.
        """
        if not deployment.spec.template:
            return False
        sets = self._sets_of(deployment)
        new = _new_set(deployment, sets)
        if new is None or (
            replicas_of(new) == replicas_of(deployment)
            and not any(replicas_of(one) for one in sets if one is not new)
        ):
            return False
        return all(len(self._active(one)) == replicas_of(one) for one in sets)

    # --- changes in the cluster ------------------------------------------------------------------

    def _object_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        if kind == "Deployment":
            if new is None:
                self._forget(cast(KubeObject, old).uid)
            elif old is None or cast(Deployment, old).spec != cast(Deployment, new).spec:
                self._follow(cast(Deployment, new), None)
        elif kind == "ReplicaSet" and self._sets:
            uid = self._sets.get(cast(KubeObject, new or old).uid)
            if uid is not None:
                self._wake(uid)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if self._sets:
            self._wake_owner(cast(Pod, new or old), cause)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        if self._sets:
            for _, pod, cause in changes:
                self._wake_owner(pod, cause)

    def _wake_owner(self, pod: Pod, cause: Action | None) -> None:
        owner = controller_of(pod.metadata)
        uid = self._sets.get(owner.uid) if owner is not None else None
        if uid is not None:
            self._causes[uid] = cause
            self._wake(uid)

    def _follow(self, deployment: Deployment, cause: Action | None) -> None:
        self._followed[deployment.uid] = deployment.key
        self._causes[deployment.uid] = cause
        self._wake(deployment.uid)

    def _forget(self, uid: str) -> None:
        self._followed.pop(uid, None)
        self._causes.pop(uid, None)
        self._sets = {one: of for one, of in self._sets.items() if of != uid}

    def _wake(self, uid: str, at_ns: int | None = None) -> None:
        """Sync at that instant, by default now."""
        due = (uid, self._api.now_ns if at_ns is None else at_ns)
        if due not in self._due:
            self._due.add(due)
            self._agenda.add(due[1], OWNER, self._sync, uid)

    # --- a sync ----------------------------------------------------------------------------------

    def _sync(self, uid: str, at_ns: int) -> None:
        """Follows `syncDeployment`."""
        self._due.discard((uid, at_ns))
        deployment = self._api.store.get("Deployment", self._followed.get(uid, ("", "")))
        if not isinstance(deployment, Deployment) or deployment.uid != uid:
            self._forget(uid)
            return
        if deployment.spec.paused:
            return
        sets = self._sets_of(deployment)
        self._sets.update((one.uid, uid) for one in sets)
        new = _new_set(deployment, sets)
        old = [one for one in sets if one is not new]
        old_pods = any(self._api.store.pods_of(one.uid) for one in old)
        current = self._scaled(deployment, new) if new is not None else ReplicaCount("", 0, 0)
        step = next_step(
            replicas_of(deployment),
            deployment.spec.strategy,
            current,
            [self._scaled(deployment, one) for one in old],
            old_pods=old_pods,
        )
        waits = deployment.spec.strategy.type == RECREATE and (
            old_pods or any(map(replicas_of, old))
        )
        if new is None and not waits:
            new = self._make_set(deployment)
            self._sets[new.uid] = uid
            if count := step.pop("", 0):
                step[new.name] = count
            self._wake(uid)
        by_name = {one.name: one for one in (*old, *((new,) if new is not None else ()))}
        for name, count in step.items():
            self._scale(deployment, by_name[name], count)
        if new is not None and not step:
            self._rest(deployment, new, old)

    def _rest(self, deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> None:
        """A sync that scales nothing: it is complete, or waits for pods to be available."""
        wanted, done = replicas_of(deployment), self._scaled(deployment, new)
        if (done.replicas, done.available) == (wanted, wanted) and not any(map(replicas_of, old)):
            why = f'ReplicaSet "{new.name}" has successfully progressed.'
            cause = self._causes.get(deployment.uid)
            self._api.note(event_record(deployment, "NewReplicaSetAvailable", why, cause=cause))
            self._forget(deployment.uid)
            return
        later = [
            since
            for pod in self._active(new)
            if (since := available_from(pod, deployment.spec.min_ready_seconds))
            and since > self._api.now_ns
        ]
        if later:
            self._wake(deployment.uid, min(later))

    def _sets_of(self, deployment: Deployment) -> list[ReplicaSet]:
        """Its ReplicaSets, the oldest first."""
        owned = [
            cast(ReplicaSet, one)
            for one in self._api.store.all("ReplicaSet")
            if (owner := controller_of(one.metadata)) is not None and owner.uid == deployment.uid
        ]
        return sorted(owned, key=lambda one: (one.metadata.creation_timestamp or 0, one.name))

    def _active(self, owner: ReplicaSet) -> list[Pod]:
        return [pod for pod in self._api.store.pods_of(owner.uid) if is_active(pod)]

    def _scaled(self, deployment: Deployment, one: ReplicaSet) -> ReplicaCount:
        least, now_ns = deployment.spec.min_ready_seconds, self._api.now_ns
        since = (available_from(pod, least) for pod in self._active(one))
        available = sum(s is not None and is_past(s, now_ns, True) for s in since)
        return ReplicaCount(one.name, replicas_of(one), available)

    # --- what it does ----------------------------------------------------------------------------

    def _make_set(self, deployment: Deployment) -> ReplicaSet:
        """The ReplicaSet of the present template, without pods. Follows `getNewReplicaSet`."""
        spec, api = deployment.spec, self._api
        hashed = safe_encode(str(fnv1a_32(canonical_json(spec.template))))
        label = {LABEL_POD_TEMPLATE_HASH: hashed}
        meta = spec.template.get("metadata") or {}
        labels = {**(meta.get("labels") or {}), **label}
        selector = spec.selector or LabelSelector()
        replica_set = ReplicaSet(
            metadata=ObjectMeta(
                name=f"{deployment.name}-{hashed}",
                namespace=deployment.namespace,
                uid=api.new_name("")[1],
                labels=labels,
                creation_timestamp=whole_seconds(api.now_ns),
                owner_references=(new_controller_ref("Deployment", deployment),),
            ),
            spec=ScaleSpec(
                replicas=0,
                selector=replace(selector, match_labels={**(selector.match_labels or {}), **label}),
                min_ready_seconds=spec.min_ready_seconds,
                template={**spec.template, "metadata": {**meta, "labels": labels}},
            ),
        )
        api.put("ReplicaSet", replica_set, self._causes.get(deployment.uid))
        return replica_set

    def _scale(self, deployment: Deployment, one: ReplicaSet, count: int) -> None:
        """Follows `scaleReplicaSetAndRecordEvent`, and `manageReplicas` of the ReplicaSet."""
        before = replicas_of(one)
        up = "up" if count > before else "down"
        why = f"Scaled {up} replica set {one.name} from {before} to {count}"
        cause = self._causes.get(deployment.uid)
        scaled = self._api.note(event_record(deployment, "ScalingReplicaSet", why, cause=cause))
        one = replace(one, spec=replace(one.spec, replicas=count))
        self._api.put("ReplicaSet", one, scaled)
        self._wake(deployment.uid)
        active = [pod for pod in self._active(one) if pod.uid not in self._going]
        for _ in range(count - len(active) - self._coming[one.uid]):
            self._coming[one.uid] += 1
            self._in_turn(self._make_in_turn, one, why, scaled)
        if len(active) > count:
            related = [pod for each in self._sets_of(deployment) for pod in self._active(each)]
            going = first_to_go(active, related, self._api.now_ns)
            for pod in going[: len(active) - count]:
                self._going[pod.uid] = None
                self._in_turn(self._delete, pod, why, scaled)

    def _in_turn(self, write: Happening, about: KubeObject, because: str, cause: Action) -> None:
        """Write once the client of the ReplicaSet controller has a token."""
        in_turn(self._agenda, "ReplicaSet", self._api.now_ns, write, about, because, cause)

    def _make_in_turn(self, owner: ReplicaSet, because: str, cause: Action, at_ns: int) -> None:
        """Make a pod that the set still lacks."""
        self._coming[owner.uid] -= 1
        present = self._api.store.get("ReplicaSet", owner.key)
        if isinstance(present, ReplicaSet) and len(self._active(present)) < replicas_of(present):
            self._make_pod(present, because, cause)

    def _make_pod(self, owner: ReplicaSet, because: str, cause: Action) -> None:
        if owner.namespace in self._api.admission.terminating:
            return
        template = owner.spec.template
        meta: Mapping[str, Any] = template.get("metadata") or {}
        name, uid = self._api.new_name(f"{owner.name}-")
        manifest = {"metadata": {"name": name, "uid": uid}, "spec": template.get("spec") or {}}
        pod = created_pod(manifest, self._api.now_ns)
        pod = replace(
            pod,
            metadata=replace(
                pod.metadata,
                namespace=owner.namespace,
                generate_name=f"{owner.name}-",
                labels=dict(meta.get("labels") or {}),
                annotations=meta.get("annotations"),
                owner_references=(new_controller_ref("ReplicaSet", owner),),
            ),
        )
        pod = self._bind(self._api.default_tolerations.admit(pod))
        self._api.put("Pod", pod, self._api.note(creation(pod, because, cause)))

    def _delete(self, doomed: Pod, because: str, cause: Action, at_ns: int) -> None:
        self._going.pop(doomed.uid, None)
        pod = self._api.store.pods.get(doomed.key)
        if pod is None or pod.uid != doomed.uid or not is_active(pod):
            return
        self._api.delete_pod(pod, because, cause)


def _new_set(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The oldest ReplicaSet of the present template. Follows `FindNewReplicaSet`."""
    wanted = _without_hash(deployment.spec.template)
    return next((one for one in sets if _without_hash(one.spec.template) == wanted), None)


def _without_hash(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows `EqualIgnoreHash`."""
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != LABEL_POD_TEMPLATE_HASH}
    rest = {k: v for k, v in meta.items() if k not in ("labels", "creationTimestamp")}
    return {**template, "metadata": {**rest, "labels": labels}}
