"""The kubelet's pod status manager as a plain state machine: its cached statuses, what it has sent,
what it sends.

Follows pkg/kubelet/status/status_manager.go, and for the table of pods that it looks them up in
pkg/kubelet/pod/pod_manager.go. Three tables may differ, and this file handles the differences:
`statuses` (the kubelet's cached ones), `api_versions` (which version of that was written last) and
`pods` (what the API server shows, as this kubelet's watch has it).

A static pod comes from a file and has a uid of its own; the API server shows a *mirror* of it, with
another uid, and only the mirror's status can be written. A mirror belongs to the pod of the same
namespace and name.

The machine reads no clock and makes no calls: a batch yields them. An object that a watch returns
is passed to `observe`, one that is gone to `forget`. Left out on purpose: `at` (a latency metric),
logging, the checkpoint of resize decisions, and locks; and making and deleting mirrors, which the
world does and reports.

The sender of statuses is a generator: it yields one call after the other, as upstream's single sync
thread does, and is sent the answer to each. So the code shows the order of calls and what depends
on an answer, and depends on neither a network nor a simulated world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from copy import copy
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    ContainerStatus,
    Pod,
    PodStatus,
    PodVolumeHealth,
    VolumeHealthCondition,
    is_mirror_pod,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR
from kubectl_nodelife.kubelet.conditions import (
    ALL_CONTAINERS_RESTARTING,
    CONTAINERS_READY,
    DISRUPTION_TARGET,
    INITIALIZED,
    POD_SCHEDULED,
    READY,
    READY_TO_START_CONTAINERS,
    containers_ready_condition,
    ready_condition,
)
from kubectl_nodelife.kubelet.containers import illegal_transition, terminated_status
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.kubelet.status import (
    is_status_equal_by_kubelet,
    merge_pod_status,
    normalize_status,
    with_condition,
    with_last_transition_times,
)

CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source"

Key = tuple[str, str]


def is_static_pod(pod: Pod) -> bool:
    """True if the pod's source is anything but the API server. Follows `IsStaticPod`."""
    source = (pod.metadata.annotations or {}).get(CONFIG_SOURCE_ANNOTATION, "api")
    return source != "api"


def static_pod_of(mirror: Pod) -> Pod:
    """The static pod that the kubelet read from a file, as far as its mirror shows it.

    Its uid is the hash of that file's pod, which the mirror's annotation holds. Follows
    `applyDefaults` in pkg/kubelet/config and `CreateMirrorPod`.
    """
    annotations = dict(mirror.metadata.annotations or {})
    uid = annotations.pop(ANNOTATION_CONFIG_MIRROR)
    if annotations.get(CONFIG_SOURCE_ANNOTATION, "api") == "api":
        annotations[CONFIG_SOURCE_ANNOTATION] = "file"
    metadata = replace(
        mirror.metadata,
        uid=uid or f"{mirror.uid}-static",
        annotations=annotations,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    return replace(mirror, metadata=metadata, status=PodStatus(phase="Pending"))


class PodTable:
    """Pods by uid, mirrors by the name that they share with their static pod."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._uid_by_key: dict[Key, str] = {}
        self._mirrors: dict[Key, Pod] = {}

    def copy(self) -> PodTable:
        """Another one with the same pods."""
        other = PodTable()
        other._pods, other._mirrors = dict(self._pods), dict(self._mirrors)
        other._uid_by_key = dict(self._uid_by_key)
        return other

    def __iter__(self) -> Iterator[Pod]:
        """All pods but mirrors."""
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def set(self, pod: Pod) -> None:
        """Add the pod or mirror, or replace the one of its uid (a mirror: of its name)."""
        if is_mirror_pod(pod):
            self._mirrors[pod.key] = pod
        else:
            self._pods[pod.uid] = pod
            self._uid_by_key[pod.key] = pod.uid

    def remove(self, pod: Pod) -> None:
        """Forget the pod or mirror of that uid; nothing happens where it is not known."""
        if is_mirror_pod(pod):
            mirror = self._mirrors.get(pod.key)
            if mirror is not None and mirror.uid == pod.uid:
                del self._mirrors[pod.key]
        elif self._pods.pop(pod.uid, None) and self._uid_by_key.get(pod.key) == pod.uid:
            del self._uid_by_key[pod.key]

    def set_status(self, uid: str, status: PodStatus) -> None:
        """Overwrite the status that the table shows for that pod; nothing else changes it so."""
        self._pods[uid] = replace(self._pods[uid], status=status)

    def by_uid(self, uid: str) -> Pod | None:
        """The pod of that uid; a mirror's uid names none. Follows `GetPodByUID`."""
        return self._pods.get(uid)

    def mirror_of(self, pod: Pod) -> Pod | None:
        """The mirror of that name. Follows `GetMirrorPodByPod`."""
        return self._mirrors.get(pod.key)

    def translate_uid(self, uid: str) -> str:
        """A mirror's uid to that of its static pod; any other uid to itself. Follows
        `TranslatePodUID`."""
        if uid in self._pods or not self._mirrors:
            return uid
        return next((owner for mirror, owner in self._translations() if mirror == uid), uid)

    def mirror_uids(self) -> dict[str, str]:
        """Static pod's uid -> its mirror's, or "". Follows `GetUIDTranslations`."""
        translations = {pod.uid: "" for pod in self._pods.values() if is_static_pod(pod)}
        translations.update((owner, mirror) for mirror, owner in self._translations())
        return translations

    def _translations(self) -> Iterator[tuple[str, str]]:
        """(mirror's uid, uid of the pod of that name), for mirrors whose pod is known."""
        for key, mirror in self._mirrors.items():
            if key in self._uid_by_key:
                yield mirror.uid, self._uid_by_key[key]


SYNC_PERIOD_NS: Final = 10 * SECOND_NS
"""A batch over all pods runs this often; changes are sent at once besides."""

MAX_WAITING_REQUESTS: Final = 1000
"""Room in the queue of older releases; a request that finds it full is left to the next batch."""


class KubeletAnswers(Protocol):
    """The questions of the status manager to the rest of its kubelet."""

    def could_have_running_containers(self, pod: Pod) -> bool:
        """True if a container of the pod could still run."""

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        """True if containers, volumes and cgroup are gone; asked by releases up to 1.26."""


class CachedStatus(msgspec.Struct, frozen=True):
    """The kubelet's cached status of one pod. `version` counts the accepted changes."""

    version: int
    namespace: str
    name: str
    status: PodStatus
    is_finished: bool = False


class PodStatusMachine:
    """One kubelet's status manager. All instants are nanoseconds since the epoch."""

    def __init__(self, rules: StatusRules, kubelet: KubeletAnswers) -> None:
        self.rules = rules
        self.kubelet = kubelet
        self.pods = PodTable()
        self.statuses: dict[str, CachedStatus] = {}
        self.api_versions: dict[str, int] = {}
        self.requests: deque[tuple[str, CachedStatus]] = deque()
        self.request_room = MAX_WAITING_REQUESTS
        self._agreed: dict[str, tuple[PodStatus, PodStatus]] = {}
        self.settled = True
        """A batch over all pods would find nothing to do, until something changes."""

    def fork(self, kubelet: KubeletAnswers) -> PodStatusMachine:
        """The status manager of a fork of the kubelet, with the same tables."""
        other = copy(self)
        other.kubelet, other.pods = kubelet, self.pods.copy()
        other.statuses, other.api_versions = dict(self.statuses), dict(self.api_versions)
        other.requests, other._agreed = deque(self.requests), dict(self._agreed)
        return other

    # ---- what the kubelet receives -------------------------------------------------------------

    def observe(self, pod: Pod) -> None:
        """The pod manager receives a pod or a mirror: a new one, or a known one as it is now."""
        self.pods.set(pod)
        self.settled = False

    def adopt(self, pod: Pod, status: PodStatus, api_uid: str) -> None:
        """Take the pod over from a kubelet that had reported `status`: version 1, and sent.

        `api_uid`: the pod's, or that of its mirror.
        """
        self.observe(pod)
        status = normalize_status(pod.spec, status, self.rules)
        self.statuses[pod.uid] = CachedStatus(1, pod.namespace, pod.name, status)
        self.api_versions[api_uid] = 1

    def forget(self, pod: Pod) -> None:
        """The pod manager drops a pod or a mirror; the cached status stays, an orphan now."""
        self.pods.remove(pod)
        self.settled = False

    def list_pods(self) -> list[Pod]:
        """The kubelet's `/pods`. In a release with the fault of PR 77661 listing overwrites what
        the pod manager shows with the cached statuses: `needs_reconcile` finds no difference."""
        if self.rules.listing_blinds_reconcile:
            self.overwrite_statuses_from_cache()
        return list(self.pods)

    def overwrite_statuses_from_cache(self) -> None:
        """Make the pod manager show the cached status of each pod. Mirrors stay as they are."""
        for uid, cached in self.statuses.items():
            if self.pods.by_uid(uid) is not None:
                self.pods.set_status(uid, cached.status)

    def set_pod_status(self, pod: Pod, status: PodStatus, now_ns: int) -> bool:
        """Take a pod sync's `status`; True if it made a new version. Follows `SetPodStatus`."""
        terminating = pod.metadata.deletion_timestamp is not None
        return self._accept(pod, status, now_ns, force=terminating)

    def set_container_readiness(
        self, pod_uid: str, container_id: str, ready: bool, now_ns: int
    ) -> bool:
        """Take a probe's result; True if it made a new version. Follows `SetContainerReadiness`."""
        pod, cached = self.pods.by_uid(pod_uid), self.statuses.get(pod_uid)
        if pod is None or cached is None:
            return False
        container = _find_container(cached.status, container_id)
        if container is None or container.ready == ready:
            return False
        status = _with_container(cached.status, container, replace(container, ready=ready))
        for condition in (
            ready_condition(pod.spec, status, self.rules),
            containers_ready_condition(pod.spec, status, self.rules),
        ):
            conditions = with_condition(status.conditions, condition)
            status = replace(status, conditions=conditions)
        return self._accept(pod, status, now_ns)

    def set_container_startup(
        self, pod_uid: str, container_id: str, started: bool, now_ns: int
    ) -> bool:
        """Take a startup probe's result; an absent value differs from both. Follows
        `SetContainerStartup`."""
        pod, cached = self.pods.by_uid(pod_uid), self.statuses.get(pod_uid)
        if pod is None or cached is None:
            return False
        container = _find_container(cached.status, container_id)
        if container is None or container.started == started:
            return False
        status = _with_container(cached.status, container, replace(container, started=started))
        return self._accept(pod, status, now_ns)

    def set_pod_volume_health(
        self, pod_uid: str, volume: str, conditions: Sequence[VolumeHealthCondition], now_ns: int
    ) -> bool:
        """Take what a volume's driver reports; True if it made a new version. Another message
        alone makes none. Follows `SetPodVolumeHealth`, behind the gate CSIVolumeHealth."""
        pod, cached = self.pods.by_uid(pod_uid), self.statuses.get(pod_uid)
        if pod is None or cached is None or not self.rules.volume_health:
            return False
        health = {entry.name: entry for entry in cached.status.volume_health}
        before = health.get(volume, PodVolumeHealth())
        if _words_of(before.health_conditions) == _words_of(conditions):
            return False
        health[volume] = PodVolumeHealth(volume, tuple(conditions), Time(now_ns))
        status = replace(cached.status, volume_health=tuple(health.values()))
        return self._accept(pod, status, now_ns)

    def terminate_pod(self, pod: Pod, now_ns: int) -> bool:
        """The kubelet has stopped the pod, or found it gone. Follows `TerminatePod`."""
        cached = self.statuses.get(pod.uid)
        last = pod.status if cached is None else cached.status
        status = terminated_status(pod, last, self.rules, is_static=is_static_pod(pod))
        return self._accept(pod, status, now_ns, force=True, finished=True)

    def remove_orphaned_statuses(self, uids: Collection[str]) -> None:
        """Drop the cached statuses of all pods but `uids`. Follows `RemoveOrphanedStatuses`."""
        for uid in [uid for uid in self.statuses if uid not in uids]:
            del self.statuses[uid]
            self._agreed.pop(uid, None)
            self.settled = False

    # ---- what it reports ----------------------------------------------------------------------

    def pod_status(self, uid: str) -> PodStatus | None:
        """The cached status, by the pod's uid or its mirror's. Follows `GetPodStatus`."""
        cached = self.statuses.get(self.pods.translate_uid(uid))
        return None if cached is None else cached.status

    def unsent(self) -> list[str]:
        """Uids of the pods of which a version waits to be sent, in the order of the cache."""
        return [uid for uid, _ in self._unsent()]

    def wakes_sender(self) -> bool:
        """True if something waits that the sender takes up at once, without the period."""
        if self.rules.request_per_change:
            return bool(self.requests)
        return next(self._unsent(), None) is not None

    def sync_changed(self, now_ns: int) -> Calls:
        """The sender when it is woken: send what changed."""
        if self.rules.request_per_change:
            while self.requests:
                uid, requested = self.requests.popleft()
                yield from self._sync_pod(uid, requested, now_ns)
            return
        for uid, cached in list(self._unsent()):
            yield from self._sync_pod(uid, cached, now_ns)

    def sync_batch(self, now_ns: int) -> Calls:
        """The sender every `SYNC_PERIOD_NS`: send what changed, what is ready to be
        deleted, and what another writer has changed since. Follows `syncBatch(true)`."""
        if self.rules.batch_empties_queue:
            self.requests.clear()  # the batch covers them
        mirrors = self.pods.mirror_uids()
        known_mirrors = set(mirrors.values())
        for uid in [u for u in self.api_versions if u not in self.statuses]:
            if uid not in known_mirrors:
                del self.api_versions[uid]
        taken: list[tuple[str, CachedStatus]] = []
        for uid, cached in self.statuses.items():
            api_uid = mirrors.get(uid, uid)
            if not api_uid:
                continue  # a static pod without a mirror (yet)
            if self.needs_update(api_uid, cached):
                taken.append((uid, cached))
            elif self.needs_reconcile(uid, cached.status):
                self.api_versions.pop(api_uid, None)
                taken.append((uid, cached))
        self.settled = not taken and not any(_is_terminating(pod) for pod in self.pods)
        for uid, cached in taken:
            yield from self._sync_pod(uid, cached, now_ns)

    def needs_update(self, api_uid: str, cached: CachedStatus) -> bool:
        """True if that version was not written yet, or the pod can be deleted now. Follows
        `needsUpdate`."""
        if self.api_versions.get(api_uid, -1) < cached.version:
            return True
        pod = self.pods.by_uid(api_uid)
        return pod is not None and self._can_be_deleted(pod, cached)

    def needs_reconcile(self, uid: str, status: PodStatus) -> bool:
        """True if the pod manager shows something else than `status`, the cached one: then another
        writer changed fields of the kubelet. Follows `needsReconcile`."""
        pod = self.pods.by_uid(uid)
        if pod is None:
            return False
        if is_static_pod(pod):
            mirror = self.pods.mirror_of(pod)
            if mirror is None:
                return False
            pod = mirror
        agreed = self._agreed.get(uid)
        if agreed is not None and agreed[0] is pod.status and agreed[1] is status:
            return False  # the same two were compared before
        shown = normalize_status(pod.spec, pod.status, self.rules)
        if not self._is_equal(shown, status):
            return True
        self._agreed[uid] = (pod.status, status)
        return False

    # ---- how --------------------------------------------------------------------------------

    def _accept(
        self,
        pod: Pod,
        status: PodStatus,
        now_ns: int,
        *,
        force: bool = False,
        finished: bool = False,
    ) -> bool:
        """Put the status in the cache as a new version, unless it is refused or nothing new.
        Follows `updateStatusInternal`."""
        cached = self.statuses.get(pod.uid)
        if cached is not None:
            old = cached.status
            finished = finished or (cached.is_finished and not is_static_pod(pod))
        else:
            mirror = self.pods.mirror_of(pod)
            old = pod.status if mirror is None else mirror.status
        if illegal_transition(old, status, pod.spec, self.rules) is not None:
            return False
        status = with_last_transition_times(status, old, self._timed_conditions(), now_ns)
        start_time = old.start_time or status.start_time or Time(now_ns)
        volume_health = status.volume_health or old.volume_health
        status = replace(status, start_time=start_time, volume_health=volume_health)
        status = normalize_status(pod.spec, status, self.rules)
        if cached is not None and not force and self._is_equal(cached.status, status):
            return False
        self.statuses[pod.uid] = accepted = CachedStatus(
            version=1 if cached is None else cached.version + 1,
            namespace=pod.namespace,
            name=pod.name,
            status=status,
            is_finished=finished,
        )
        if self.rules.request_per_change and len(self.requests) < self.request_room:
            self.requests.append((pod.uid, accepted))
        self.settled = False
        return True

    def _is_equal(self, old: PodStatus, new: PodStatus) -> bool:
        return is_status_equal_by_kubelet(old, new, self.rules)

    def _timed_conditions(self) -> tuple[str, ...]:
        types: tuple[str, ...] = (CONTAINERS_READY, READY, INITIALIZED, POD_SCHEDULED)
        if self.rules.ready_to_start_containers:
            types += (READY_TO_START_CONTAINERS,)
        if self.rules.disruption_target:
            types += (DISRUPTION_TARGET,)
        if self.rules.restarting_is_dated:
            types += (ALL_CONTAINERS_RESTARTING,)
        return types

    def _unsent(self) -> Iterator[tuple[str, CachedStatus]]:
        mirrors = self.pods.mirror_uids()
        for uid, cached in self.statuses.items():
            api_uid = mirrors.get(uid, uid)
            if api_uid and self.api_versions.get(api_uid, 0) < cached.version:
                yield uid, cached

    def _sync_pod(self, uid: str, cached: CachedStatus, now_ns: int) -> Calls:
        """Send one pod's status, and delete the pod if that was its last status. A failure leaves
        the recorded version alone, so that the next batch tries again. Follows `syncPod`.

        Releases with a queue of requests ask `needs_update` here, with the pod's own uid: of a
        static pod, whose versions are noted under its mirror's uid, each request is sent.
        """
        if self.rules.request_per_change and not self.needs_update(uid, cached):
            return
        pod = yield GetPodCall(cached.namespace, cached.name)
        if pod is None:
            return  # gone: the orphans' removal cleans up; any other failure: the next batch
        if self.pods.translate_uid(pod.uid) != uid:
            self.statuses.pop(uid, None)  # deleted and made anew
            return
        merged = merge_pod_status(
            pod.status,
            cached.status,
            self.rules,
            could_have_running_containers=self.kubelet.could_have_running_containers(pod),
            now_ns=now_ns,
        )
        if merged != pod.status or not self.rules.empty_patch_skipped:
            precondition = pod.uid if self.rules.patch_has_uid else ""
            patched = yield PatchPodStatusCall(pod.namespace, pod.name, precondition, merged)
            if patched is None:
                return
            pod = patched
        self.api_versions[pod.uid] = cached.version
        if self._can_be_deleted(pod, cached):
            gone = yield DeletePodCall(pod.namespace, pod.name, pod.uid)
            if gone is not None:
                self.statuses.pop(uid, None)

    def _can_be_deleted(self, pod: Pod, cached: CachedStatus) -> bool:
        """True if the pod object may go, as the API server shows it. Follows `canBeDeleted`."""
        if not _is_terminating(pod) or is_mirror_pod(pod):
            return False
        if not self.rules.delete_when_finished:
            return self.kubelet.pod_resources_are_reclaimed(pod, cached.status)
        return pod.status.phase in TERMINAL_PHASES and cached.is_finished


def _is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _find_container(status: PodStatus, container_id: str) -> ContainerStatus | None:
    for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        if container.container_id == container_id:
            return container
    return None


def _with_container(status: PodStatus, old: ContainerStatus, new: ContainerStatus) -> PodStatus:
    """`status` with `new` in the place of `old`, which is recognised by identity."""
    regular, init = status.container_statuses, status.init_container_statuses
    return replace(
        status,
        container_statuses=regular and tuple(new if s is old else s for s in regular),
        init_container_statuses=init and tuple(new if s is old else s for s in init),
    )


def _words_of(conditions: Sequence[VolumeHealthCondition]) -> set[tuple[str, str]]:
    """What of a volume's health is compared. Follows `VolumeHealthConditionSetsEqual`."""
    return {(condition.status, condition.reason) for condition in conditions}


class GetPodCall(msgspec.Struct, frozen=True):
    """Read a pod from the API server, not from a cache."""

    namespace: str
    name: str


class PatchPodStatusCall(msgspec.Struct, frozen=True):
    """Patch the `status` subresource, so that it becomes `status`. `uid` is the precondition, "" in
    releases that send none."""

    namespace: str
    name: str
    uid: str
    status: PodStatus


class DeletePodCall(msgspec.Struct, frozen=True):
    """DELETE with grace period 0 and a uid precondition."""

    namespace: str
    name: str
    uid: str


ApiCall = GetPodCall | PatchPodStatusCall | DeletePodCall

CALL_WORDS: Final = {GetPodCall: "get", PatchPodStatusCall: "patch", DeletePodCall: "delete"}


Answer = Pod | None
"""The API server's answer; None where it is not the pod: gone (404), or any other failure."""
Calls = Generator[ApiCall, Answer, None]


def drive(calls: Calls, api: Callable[[ApiCall], Answer]) -> list[ApiCall]:
    """Run a batch to its end, `api` answering each call at once; returns the calls that were made.

    A DELETE is answered by the pod as it was.
    """
    requests: list[ApiCall] = []
    answer: Answer = None
    try:
        while True:
            requests.append(calls.send(answer))
            answer = api(requests[-1])
    except StopIteration:
        return requests
