"""Jobs that lose pods: when their controller counts these, makes others, or gives the Job up.

Follows pkg/controller/job. Each change of a Job's pods, and each write of its status, has it synced
a second later (`enqueueSyncJobBatched`); of several instants the queue keeps the earliest. A sync
counts the pods that have ended (`newBackoffRecord`), takes their finalizers off, and makes new ones
once the back-off is over; what is left of that, but at least a second, is when it looks again
(`enqueueSyncJobWithDelay`). One that gives the Job up lets go of all its pods. A Job only replaces
here what it loses; `workloads/owners.py` has the rules, `owners.py` makes the pods. Left out: how
many pods one sync creates or counts at most, indexes, and a success, after which failures count
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action, DeletePod
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import OwnerReference, Time
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds
from kubectl_nodelife.kube.workload import Job
from kubectl_nodelife.kubelet.conditions import READY, terminal_phase_condition
from kubectl_nodelife.kubelet.status import with_condition
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.clients import in_turn
from kubectl_nodelife.sim.owners import Lost, WorkloadControllers
from kubectl_nodelife.sim.timeline import OWNER, Agenda
from kubectl_nodelife.workloads.owners import (
    FAILED,
    JOB_BATCH_NS,
    JOB_TRACKING,
    MOST,
    back_off_ns,
    counts_as_ended,
    ignores_failures,
    is_active,
    most_failures,
    only_failed,
)

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


class JobController:
    """Syncs Jobs that lose pods: counts these, lets them go, and makes others."""

    def __init__(self, api: Api, agenda: Agenda, owners: WorkloadControllers) -> None:
        self._api = api
        self._agenda = agenda
        self._owners = owners
        self._queue: dict[str, _Queued] = {}
        """By the Job's uid."""
        self._stuck: set[str] = set()
        """The uids of pods that their Jobs did not let go long before the play, nor do in it."""
        self._uncounted: dict[str, int] = {}
        """By the uid of a Job that ignores failures: how many there may have been at most."""

    def fork(self, api: Api, agenda: Agenda, owners: WorkloadControllers) -> JobController:
        """The same for a fork of the world."""
        other = copy(self)
        other._api, other._agenda, other._owners = api, agenda, owners
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
                    state = self._state(job)
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
        state = self._state(job)
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

    def _state(self, job: OwnerReference) -> _Queued:
        state = self._queue.get(job.uid)
        return _Queued() if state is None else state

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
        found = self._api.store.find("Job", pod.namespace, job.name)
        return not (isinstance(found, Job) and only_failed(found))

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
        Ready counts, before that of its deletion.
        """
        cut_ns = self._owners.cut_ns
        pod = self._api.store.pods.get(lost.key)
        if pod is not None and pod.uid == lost.uid:
            ready, statuses = pod.status.condition(READY), pod.status.container_statuses or ()
            runs = all(c.state.terminated is None for c in statuses)
            if runs and ready and ready.status == "False" and ready.last_transition_time:
                return ready.last_transition_time
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
