"""Workload owners: a pod that is lost gets a successor, when and as its owner would make one.

The rules are in `workloads/owners.py`; they are applied here. A successor copies the spec of the
pod that it replaces, except tolerations that admission added, and gets a new name (a StatefulSet's
keeps its own, and waits until those before it are Ready). Owners only replace; `deployments.py`
scales ReplicaSets while a Deployment rolls out. DaemonSets are left to their controller, static
pods to their kubelet.

When a Job's pods are counted and made anew, or the Job is given up, follows pkg/controller/job.
Each change of a Job's pods, and each write of its status, has it synced a second later
(`enqueueSyncJobBatched`); of several instants the queue keeps the earliest. A sync counts the pods
that have ended (`newBackoffRecord`), takes their finalizers off, and makes new ones once the
back-off is over; what is left of that, but at least a second, is when it looks again
(`enqueueSyncJobWithDelay`). One that gives the Job up lets go of all its pods. Left out: how many
pods one sync creates or counts at most, indexes, and a success, after which failures count anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.engine.actions import Action, DeletePod
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, Time, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds
from kubectl_nodelife.kube.workload import Job
from kubectl_nodelife.kubelet.conditions import READY, terminal_phase_condition
from kubectl_nodelife.kubelet.status import with_condition
from kubectl_nodelife.sim.api import Api, ForkedWorld, WorldPart, creation, template_of
from kubectl_nodelife.sim.clients import in_turn
from kubectl_nodelife.sim.timeline import OWNER, Agenda
from kubectl_nodelife.workloads.budgets import is_healthy
from kubectl_nodelife.workloads.owners import (
    FAILED,
    JOB_BATCH_NS,
    JOB_TRACKING,
    MOST,
    NEVER,
    WHEN_GONE,
    Replacement,
    back_off_ns,
    counts_as_ended,
    ignores_failures,
    is_active,
    most_failures,
    only_failed,
    ordinal_of,
    replacement_of,
    successor,
)

_NOT_HERE = frozenset({"DaemonSet", "Node"})

LOST_AT_ONCE_NS = SECOND_NS
"""How long after a pod is replaced that is lost in the very instant in which it was made: virtual
time must advance where one that tolerates its node's taint for 0 s is made and evicted again and
again. Another is replaced at once, however short its life.
"""


Bind = Callable[[Pod], Pod]
"""Binds a new pod to a node, if it fits somewhere: the scheduler, see `Scheduler.bind`."""

Lost = tuple[Pod, Replacement, Action | None]
"""A pod that is to be replaced, how, and the action that it was lost by."""


class WorkloadControllers(WorldPart):
    """Watches pods and replaces those that their owners lose.

    `delay_ns`: how long it takes them to see that a pod is missing. `cut_ns`: how much is cut off
    the instant of a pod's failure, kept in whole seconds; None: by the clock. `job_failures`: which
    number of earlier failures a Job's back-off counts, see `Replacement.failures_counted`.
    `failed_jobs`: uids of those that allow no more failures. `on_successor` is called for each lost
    pod that is made anew.
    """

    def __init__(self, api: Api, agenda: Agenda, bind: Bind) -> None:
        super().__init__(api, agenda)
        self._bind = bind
        self.delay_ns = 0
        self.cut_ns: int | None = None
        self.job_failures = 1
        self._rules_read: dict[str, tuple[KubeObject | None, Replacement]] = {}
        """By the owner's uid: the owner from which its rule was read, and the rule."""
        self.failed_jobs: dict[str, None] = {}
        self.on_successor: Callable[[Pod, Pod], None] | None = None
        self._waiting: dict[str, int] = {}
        """By the owner's uid: how many pods wait for its controller's client."""
        self._active: dict[str, int] = {}
        self._made: dict[str, int] = {}
        self._missing: dict[str, dict[int, Lost]] = {}
        """For StatefulSets that make one pod after another: the missing pods, by ordinal."""

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        other._bind = world.agenda.mine(self._bind)
        self._active, other._active = fork_dict(self._active)
        self._made, other._made = fork_dict(self._made)
        other._waiting = dict(self._waiting)
        self._missing, other._missing = fork_dict(self._missing, copy_of_dict)
        self.failed_jobs, other.failed_jobs = fork_dict(self.failed_jobs)
        return other

    def begin(self) -> None:
        """From now on pods are replaced."""
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        for pod in self._api.store.unsettled_pods():
            if pod.status.phase == FAILED:
                self._clear_away(pod, None)

    def rule_of(self, pod: Pod) -> Replacement:
        """How the pod's controller will replace it."""
        if pod.metadata.namespace in self._api.admission.terminating:
            return Replacement(NEVER, why=f"namespace {pod.namespace} is being deleted")
        owner = controller_of(pod.metadata)
        if owner is None or not owner.uid:
            return replacement_of(pod, self._api.store)
        workload = self._api.store.find(owner.kind, pod.namespace, owner.name)
        read = self._rules_read.get(owner.uid)
        if read is None or read[0] is not workload:
            read = self._rules_read[owner.uid] = workload, replacement_of(pod, self._api.store)
        return read[1]

    # --- a pod is lost ---------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        was, still = old is not None and is_active(old), new is not None and is_active(new)
        if new is not None and new.status.phase == FAILED:
            self._clear_away(new, cause)
        owner = None
        if was != still:
            owner = controller_of((old or new).metadata)  # type: ignore[union-attr]
            if owner is not None and owner.uid in self._active:
                self._active[owner.uid] += 1 if still else -1
        if self._missing and new is not None and is_healthy(new):
            self._ready(old, new)
        if old is None or still or not (was or new is None):
            return
        owner = owner or controller_of(old.metadata)
        if owner is None or owner.kind in _NOT_HERE or (new or old).status.phase == "Succeeded":
            return
        rule = self.rule_of(old)
        if rule.when == NEVER or rule.delay_ns:  # the latter is a Job's, see `JobController`
            return
        uid = old.metadata.uid
        lost_at_once = self._made.get(uid) == self._api.now_ns
        at_ns = self._api.now_ns + (LOST_AT_ONCE_NS if lost_at_once else self.delay_ns)
        lost = new is None if rule.when == WHEN_GONE else was
        if rule.ordered and new is None:
            self._missing.setdefault(owner.uid, {})[ordinal_of(old.name)] = (old, rule, cause)
            self._agenda.add(at_ns, OWNER, self._fill_in, owner.uid)
        elif lost:
            self._agenda.add(at_ns, OWNER, self.make_anew, (old, rule, cause))
        if new is None:
            self._made.pop(uid, None)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        """Pods may have become Ready; as many are active as before."""
        if self._missing:
            for old, new, _ in changes:
                if is_healthy(new):
                    self._ready(old, new)

    def _active_pods(self, owner_uid: str) -> int:
        if owner_uid not in self._active:
            pods = self._api.store.pods_of(owner_uid)
            self._active[owner_uid] = sum(1 for pod in pods if is_active(pod))
        return self._active[owner_uid]

    # --- a pod has finished ----------------------------------------------------------------------

    def _clear_away(self, pod: Pod, cause: Action | None) -> None:
        """A StatefulSet's controller deletes a pod that has failed (`processReplica`)."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "StatefulSet":
            return
        if pod.metadata.deletion_timestamp is None and self.rule_of(pod).when != NEVER:
            at_ns = self._api.now_ns + self.delay_ns
            self._agenda.add(at_ns, OWNER, self._delete_failed, (pod, cause))

    def _delete_failed(self, failed: tuple[Pod, Action | None], at_ns: int) -> None:
        pod, cause = failed
        owner = controller_of(pod.metadata)
        assert owner is not None
        because = f"StatefulSet {owner.name} makes a pod that has failed anew"
        in_turn(self._agenda, owner.kind, at_ns, self.delete, pod, because, cause)

    def delete(self, lost: Pod, because: str, cause: Action | None, at_ns: int) -> None:
        """Delete the pod for its owner, unless it terminates already."""
        pod = self._same(lost)
        if pod is not None and pod.metadata.deletion_timestamp is None:
            self._api.delete_pod(pod, because, cause)

    def _same(self, pod: Pod) -> Pod | None:
        """The pod as it is now; None where it is gone."""
        current = self._api.store.pods.get(pod.key)
        return current if current is not None and current.uid == pod.uid else None

    # --- a pod is replaced -----------------------------------------------------------------------

    def _ready(self, old: Pod | None, new: Pod) -> None:
        """A pod became Ready: the next of its StatefulSet is made, where one is missing."""
        owner = controller_of(new.metadata)
        if owner is None or owner.uid not in self._missing or (old is not None and old.ready()):
            return
        _, rule, _ = next(iter(self._missing[owner.uid].values()))
        at_ns = self._api.now_ns + self.delay_ns + rule.min_ready_seconds * SECOND_NS
        self._agenda.add(at_ns, OWNER, self._fill_in, owner.uid)

    def _fill_in(self, owner_uid: str, at_ns: int) -> None:
        """Make the first pod that the StatefulSet lacks, once all before it are Ready. Follows
        `updateStatefulSet`."""
        missing = self._missing.get(owner_uid)
        if not missing:
            return
        first = min(missing)
        if self._first_unhealthy(owner_uid, first) is not None:
            return
        lost = missing.pop(first)
        if not missing:
            del self._missing[owner_uid]
        self.make_anew(lost, at_ns)

    def _first_unhealthy(self, owner_uid: str, before: int) -> Pod | None:
        """The StatefulSet's first pod of a lower ordinal that is not Ready."""
        pods = self._api.store.pods_of(owner_uid)
        earlier = [p for p in pods if ordinal_of(p.name) < before and not is_healthy(p)]
        return min(earlier, key=lambda pod: ordinal_of(pod.name), default=None)

    def not_made(self) -> Iterator[tuple[Pod, str]]:
        """Each pod in whose place its StatefulSet makes none, and why: an earlier is not Ready."""
        for owner_uid, missing in self._missing.items():
            first = self._first_unhealthy(owner_uid, min(missing))
            if first is None:
                continue
            waiting = (each.state.waiting for each in first.status.container_statuses or ())
            state = next((w.reason for w in waiting if w is not None and w.reason), "not Ready")
            where = f" on {first.spec.node_name}" if first.spec.node_name else ""
            for lost, _, _ in missing.values():
                owner = controller_of(lost.metadata)
                assert owner is not None
                yield (
                    lost,
                    f"{first.name}{where} is {state}, and StatefulSet {owner.name} (OrderedReady) "
                    "makes none after it",
                )

    def make_anew(self, gone: Lost, at_ns: int) -> None:
        """Make a pod in place of that one, once there is a token, where its owner lacks one."""
        lost, rule, _ = gone
        owner = controller_of(lost.metadata)
        assert owner is not None
        if lost.metadata.namespace in self._api.admission.terminating:
            return
        if owner.kind == "ReplicaSet":  # a roll-out may have scaled it since
            rule = self.rule_of(lost)
            if rule.when == NEVER:
                return
        coming = self._active_pods(owner.uid) + self._waiting.get(owner.uid, 0)
        if rule.replicas is not None and coming >= rule.replicas:
            return
        if owner.kind == "StatefulSet" and lost.key in self._api.store.pods:
            return
        self._waiting[owner.uid] = self._waiting.get(owner.uid, 0) + 1
        in_turn(self._agenda, owner.kind, at_ns, self._make_in_turn, gone)

    def _make_in_turn(self, gone: Lost, at_ns: int) -> None:
        """The client's token is there that the owner's controller has waited for."""
        owner = controller_of(gone[0].metadata)
        assert owner is not None
        self._waiting[owner.uid] -= 1
        if owner.uid not in self.failed_jobs:
            self._make(gone, owner, at_ns)

    def _make(self, gone: Lost, owner: OwnerReference, at_ns: int) -> None:
        lost, _, cause = gone
        pod = self._successor(lost, owner)
        self._made[pod.metadata.uid] = at_ns
        because = f"{owner.kind} {owner.name} makes a pod in place of {lost.metadata.name}"
        made = self._api.note(creation(pod, because, cause))
        if self.on_successor is not None:
            self.on_successor(lost, pod)
        self._api.put("Pod", pod, made)

    def _successor(self, lost: Pod, owner: OwnerReference) -> Pod:
        """A new Pending pod with the same spec, labels and owner, bound if it fits somewhere."""
        generated = lost.metadata.generate_name or f"{owner.name}-"
        name, uid = self._api.new_name(generated, lost.namespace)
        pod = successor(lost, name, uid, whole_seconds(self._api.now_ns))
        asked = self._api.store.find(owner.kind, pod.metadata.namespace, owner.name)
        pod = self._api.stamped.unstamped(pod, template_of(asked))
        return self._bind(self._api.default_tolerations.admit(pod))


LET_GO_NS = 60 * SECOND_NS
"""A Job that has not let a pod go for so long before the play does not in the play, either."""


def delete_stopped(api: Api, pod: Pod, done: DeletePod) -> None:
    """A kubelet's DELETE of a pod that has stopped: a Job's has failed, and its object stays until
    the Job has counted it.
    """
    status = pod.status
    if JOB_TRACKING not in pod.metadata.finalizers or _job_of(pod) is None:
        api.drop("Pod", pod.key, api.note(done))
        return
    if status.phase not in TERMINAL_PHASES:
        conditions = status.conditions
        if pod.ready():
            since = Time(whole_seconds(api.now_ns))
            ended = replace(terminal_phase_condition(READY, FAILED), last_transition_time=since)
            conditions = with_condition(conditions, ended)
        status = replace(status, phase=FAILED, conditions=conditions)
    held = delete_pod(replace(pod, status=status), api.now_ns, 0)
    if held is not None and held != pod:
        api.put("Pod", held, api.note(done))


def _job_of(pod: Pod) -> OwnerReference | None:
    """Its controller if that is a Job. `controller_of`, written out: it is asked of each pod whose
    conditions change, and one call more would be 3 % of an outage's.
    """
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner if owner.kind == "Job" else None
    return None


def _counts(pod: Pod | None) -> str:
    """In which number of its Job's status a pod counts."""
    if pod is None or pod.status.phase in TERMINAL_PHASES:
        return ""
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    return "ready" if pod.ready() else "active"


class _Queued(NamedTuple):
    """A Job in the queue. `sync_ns`: of its next sync, or its last one. `status_changes`: the sync
    writes the Job's status, as its pods have changed.

    `ended`: pods whose finalizer comes off in that sync, and what ended them. `failed`: pods that
    it is to count, as they were, and when that was seen. `owed`: pods to be replaced. `failures`:
    counted so far in the play, the last of them at `last_failed_ns`.
    """

    failures: int = 0
    sync_ns: int = 0
    status_changes: bool = False
    ended: tuple[tuple[Pod, Action | None], ...] = ()
    failed: tuple[tuple[Pod, int], ...] = ()
    owed: tuple[Lost, ...] = ()
    last_failed_ns: int = 0

    @property
    def has_work(self) -> bool:
        """True if a sync does something."""
        return bool(self.ended or self.failed or self.owed)


class JobController(WorldPart):
    """Syncs Jobs that lose pods: counts these, lets them go, and makes others."""

    def __init__(self, api: Api, agenda: Agenda, owners: WorkloadControllers) -> None:
        super().__init__(api, agenda)
        self._owners = owners
        self._queue: dict[str, _Queued] = {}
        """By the Job's uid."""
        self._stuck: set[str] = set()
        """The uids of pods that their Jobs did not let go long before the play, nor do in it."""
        self._uncounted: dict[str, int] = {}
        """By the uid of a Job that ignores failures: how many there may have been at most."""

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        other._owners = world.agenda.own(self._owners)
        self._queue, other._queue = fork_dict(self._queue)
        return other

    def begin(self) -> None:
        """From now on pods are counted; those that have ended before are let go."""
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)
        for pod in self._api.store.unsettled_pods():
            job = _job_of(pod) if pod.metadata.finalizers else None
            if job is not None:
                if self._is_stuck(pod, job):
                    self._stuck.add(pod.uid)
                elif self._is_tracked(pod) and self._has_ended(pod, job):
                    state = self._queue.get(job.uid, _Queued())
                    self._see(job, state._replace(ended=(*state.ended, (pod, None))), pod, pod)
        for found in self._api.store.all("Job"):
            if isinstance(found, Job) and ignores_failures(found):
                pods = self._api.store.pods_of(found.uid)
                self._uncounted[found.uid] = most_failures(found, pods)

    # --- a pod has changed -----------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        pod = new or old
        assert pod is not None
        job = _job_of(pod)
        if job is None:
            return
        state = self._queue.get(job.uid, _Queued())
        has_ended = new is None or self._has_ended(new, job)
        if new is not None and has_ended and self._is_tracked(new):
            others = (each for each in state.ended if each[0].uid != new.uid)
            state = state._replace(ended=(*others, (new, cause)))
        succeeded = new is not None and new.status.phase == "Succeeded"
        if old is not None and has_ended and not succeeded and not self._has_ended(old, job):
            state = self._failed(state, job, old, cause)
        self._see(job, state, old, new)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for old, new, _ in changes if self._queue else ():
            job = _job_of(new)
            if job is not None and job.uid in self._queue:
                self._see(job, self._queue[job.uid], old, new)

    def _see(self, job: OwnerReference, state: _Queued, old: Pod | None, new: Pod | None) -> None:
        """A pod of the Job has changed."""
        now_ns, at_ns = self._api.now_ns + self._owners.delay_ns, state.sync_ns
        if at_ns <= now_ns and state.status_changes:  # that sync had no work but the status
            state, at_ns = state._replace(status_changes=False), at_ns + JOB_BATCH_NS
        if at_ns <= now_ns:
            at_ns = now_ns + JOB_BATCH_NS
        if not state.status_changes and _counts(old) != _counts(new):
            state = state._replace(status_changes=True)
        self._enqueue(job, state, min(at_ns, now_ns + JOB_BATCH_NS))

    def _enqueue(self, job: OwnerReference, state: _Queued, at_ns: int) -> None:
        before = self._queue.get(job.uid)
        self._queue[job.uid] = state._replace(sync_ns=at_ns)
        is_new = before is None or not before.has_work or before.sync_ns != at_ns
        if state.has_work and is_new:
            self._agenda.add(at_ns, OWNER, self._sync, job)

    def _has_ended(self, pod: Pod, job: OwnerReference) -> bool:
        return counts_as_ended(pod, self._api.store.find("Job", pod.namespace, job.name))

    def _is_tracked(self, pod: Pod) -> bool:
        return JOB_TRACKING in pod.metadata.finalizers and pod.uid not in self._stuck

    def _is_stuck(self, pod: Pod, job: OwnerReference) -> bool:
        """True if its Job has not let the pod go for long, though it counts as ended: its
        controller does not work, and nothing shows that it will."""
        deleted_ns = pod.metadata.deletion_timestamp
        if deleted_ns is None or deleted_ns + LET_GO_NS > self._api.now_ns:
            return False
        current = self._api.store.find("Job", pod.namespace, job.name)
        return not (isinstance(current, Job) and only_failed(current))

    def _failed(
        self, state: _Queued, job: OwnerReference, lost: Pod, cause: Action | None
    ) -> _Queued:
        """One failure more, and a pod to be replaced, unless the Job allows no more of them."""
        rule = self._owners.rule_of(lost)
        if not rule.delay_ns:  # finished, suspended, or not read
            return state
        failed = (*state.failed, (lost, self._api.now_ns))
        failures = state.failures + len(failed)
        if rule.failures_allowed is not None and failures > rule.failures_allowed:
            self._owners.failed_jobs[job.uid] = None
        return state._replace(failed=failed, owed=(*state.owed, (lost, rule, cause)))

    def _finished_ns(self, lost: Pod, seen_ns: int) -> int:
        """When the Job takes the pod for finished, by what it is in the sync. Follows
        `getFinishedTime`: where no container has ended, the instant since which the pod is not
        Ready counts, before that of its deletion. Both are cut to whole seconds.
        """
        cut_ns = self._owners.cut_ns
        pod = self._api.store.pods.get(lost.key)
        if pod is not None and pod.uid == lost.uid:
            ready, statuses = pod.status.condition(READY), pod.status.container_statuses or ()
            runs = all(c.state.terminated is None for c in statuses)
            since = ready.last_transition_time if ready and ready.status == "False" else None
            if runs and since and (cut_ns is None or since <= seen_ns - SECOND_NS):
                return since
        return whole_seconds(seen_ns) if cut_ns is None else seen_ns - cut_ns

    # --- a sync ----------------------------------------------------------------------------------

    def _sync(self, job: OwnerReference, at_ns: int) -> None:
        state = self._queue[job.uid]
        if state.sync_ns != at_ns or not state.has_work:
            return
        wrote = state.status_changes or state.ended or state.failed
        counted = state._replace(ended=(), failed=(), status_changes=False)
        if state.failed:
            failures = state.failures + len(state.failed)
            last_ns = max(self._finished_ns(lost, seen_ns) for lost, seen_ns in state.failed)
            counted = counted._replace(failures=failures, last_failed_ns=last_ns)
        gives_up = job.uid in self._owners.failed_jobs
        wait_ns = self._back_off_ends_ns(job, counted) - at_ns
        waits = bool(state.owed) and wait_ns > 0 and not gives_up
        if not waits:
            counted = counted._replace(owed=())
        after_ns = JOB_BATCH_NS if wrote or not waits else max(JOB_BATCH_NS, wait_ns)
        self._enqueue(job, counted, at_ns + after_ns)
        let_go: Iterable[tuple[Pod, Action | None]] = state.ended
        if gives_up:
            cause = state.owed[-1][2] if state.owed else None
            let_go = [(pod, cause) for pod in self._api.store.pods_of(job.uid)]
            self._end(job, cause, at_ns)
        elif not waits:
            for lost in state.owed:
                self._owners.make_anew(lost, at_ns)
        for ended in let_go:
            in_turn(self._agenda, "Job", at_ns, self._take_finalizer_off, ended)

    def _back_off_ends_ns(self, job: OwnerReference, counted: _Queued) -> int:
        """Until when a Job that owes pods does not replace them."""
        failures = counted.failures
        if counted.owed:
            _, rule, _ = counted.owed[-1]
            before = rule.failures_counted(self._owners.job_failures)
            if self._owners.job_failures == MOST:
                before = max(before, self._uncounted.get(job.uid, 0))
            failures += before
        return counted.last_failed_ns + back_off_ns(failures)

    def _take_finalizer_off(self, ended: tuple[Pod, Action | None], at_ns: int) -> None:
        """A deletion that waited for it is done."""
        was, cause = ended
        pod = self._api.store.pods.get(was.key)
        if pod is None or pod.uid != was.uid or JOB_TRACKING not in pod.metadata.finalizers:
            return
        others = tuple(name for name in pod.metadata.finalizers if name != JOB_TRACKING)
        without = replace(pod, metadata=replace(pod.metadata, finalizers=others))
        self._api.update("Pod", pod, without, cause)

    def _end(self, job: OwnerReference, cause: Action | None, at_ns: int) -> None:
        """A Job that has failed deletes what is left of its pods (`deleteActivePods`)."""
        because = f"its Job {job.name} has failed: it allows no more failed pods"
        for pod in self._api.store.pods_of(job.uid):
            if is_active(pod):
                in_turn(self._agenda, "Job", at_ns, self._owners.delete, pod, because, cause)
