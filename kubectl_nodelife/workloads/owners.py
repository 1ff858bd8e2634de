"""The replacement of a removed pod: what makes the new one, when, and how many replicas there
should be.

Follows pkg/controller/replicaset (`FilterActivePods`: a terminating pod no longer counts, so its
replacement comes at once), pkg/controller/statefulset (`updateStatefulSet`: the same name again,
once the old object is gone; in order, one after another, unless the policy is Parallel) and
pkg/controller/job (podReplacementPolicy, backoffLimit, and the back-off that doubles with each
failed pod; for a Job a pod that is deleted has failed). An owner of a kind not known here is
assumed to replace its pods at once, which is what most do. Left out: rollouts that are under way,
autoscalers, and a Job's backoffLimitPerIndex.

The number of replicas that a pod's controller should have is what the disruption controller
computes. It follows `finders` of pkg/controller/disruption/disruption.go: a ReplicationController,
a Deployment above a ReplicaSet, a ReplicaSet on its own, a StatefulSet, and last the scale
subresource of whatever else owns the pod. Kinds of the core groups without that subresource
(DaemonSet, Job, Node) fail there, and so does an owner that is gone: the budget's sync fails, and
nothing may be evicted under it. The scale of a custom resource cannot be read from a list of
objects; that, and a kind that was not read, is `ScaleUnknown`, and the caller decides how to handle
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, OwnerReference, Time, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import LABEL_REGION, LABEL_ZONE
from kubectl_nodelife.kube.workload import (
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

JOB_BACK_OFF_NS: Final = 10 * SECOND_NS
"""DefaultJobPodFailureBackOff: how long a Job waits after the first failure."""

JOB_LONGEST_BACK_OFF_NS: Final = 600 * SECOND_NS
"""MaxJobPodFailureBackOff."""

JOB_MOST_DOUBLED: Final = 7
"""The number of failures from which on the back-off is the longest."""

JOB_BATCH_NS: Final = 1 * SECOND_NS
"""SyncJobBatchPeriod: how long a Job's controller batches changes of pods."""

JOB_BACKOFF_LIMIT: Final = 6
"""A Job's backoffLimit where it is not set."""

JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
FAILED: Final = "Failed"

AT_ONCE: Final = "at-once"
WHEN_GONE: Final = "when-gone"
NEVER: Final = "never"

MOST: Final = 2
"""Of `Replacement.failures_counted`: the most."""

_JOB_FINISHED = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
LABEL_POD_TEMPLATE_HASH: Final = "pod-template-hash"
_TOPOLOGY_LABELS = frozenset({LABEL_ZONE, LABEL_REGION})
"""Labels that a pod gets from its node when it is bound (PodTopologyLabels)."""

_ORDINAL = re.compile(r".*-([0-9]+)")


class Replacement(NamedTuple):
    """How an owner replaces its pods.

    `when`: AT_ONCE (a pod that terminates no longer counts), WHEN_GONE (its object must be gone) or
    NEVER. `ordered`: one pod after another, each only when those before it are Ready. `replicas`:
    how many there shall be, None for as many as there are. `assumed`: the owner was not read.
    `delay_ns`: a Job's first back-off. `failures`: of a Job so far, since a pod succeeded;
    `failed`: of a Job in all, the most that its back-off may count, see `failures_counted`.
    `failures_allowed`: how many more until it gives up and ends its other pods, None: any number.
    """

    when: str
    ordered: bool = False
    replicas: int | None = None
    delay_ns: int = 0
    min_ready_seconds: int = 0
    assumed: bool = False
    why: str = ""
    failures: int = 0
    failed: int = 0
    failures_allowed: int | None = None

    def failures_counted(self, which: int) -> int:
        """How many failures so far the Job's back-off counts: 0 the fewest, 1 the likely number,
        2 the most. Follows `newBackoffRecord` (pkg/controller/job/backoff_utils.go): the record is
        in the controller's memory alone. It begins with none where kube-controller-manager was
        started anew or a pod succeeded, and no object says when that was.
        """
        return (0, self.failures, self.failed)[which]


def back_off_ns(failures: int) -> int:
    """How long a Job waits after so many failures. Follows `getRemainingTimeForFailuresCount`."""
    doubled = JOB_BACK_OFF_NS << min(max(failures, 1) - 1, 10)
    return min(doubled, JOB_LONGEST_BACK_OFF_NS)


def ignores_failures(job: Job) -> bool:
    """True if its back-off may count failures that its status does not: those for which its
    podFailurePolicy says Ignore (`matchPodFailurePolicy`)."""
    policy = job.spec.pod_failure_policy
    return policy is not None and any(rule.action == "Ignore" for rule in policy.rules)


def most_failures(job: Job, pods: Iterable[Pod]) -> int:
    """How many failures its back-off can count at most, by its pods, up to those that bring the
    longest back-off.

    A pod is made in another's place once the back-off after all failures so far is over
    (`manageJob`), so that its youngest pod shows how long that can have been; each pod that it
    lacks may be one more.
    """
    pods, spec = list(pods), job.spec
    created_ns = job.metadata.creation_timestamp
    youngest = max((p.metadata.creation_timestamp or 0 for p in pods), default=0)
    if created_ns is None or not youngest:
        return JOB_MOST_DOUBLED
    passed_ns = youngest + SECOND_NS - created_ns
    replaced = [n for n in range(1, JOB_MOST_DOUBLED + 1) if back_off_ns(n) <= passed_ns]
    wanted = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is not None:
        wanted = min(wanted, spec.completions - job.status.succeeded)
    lacking = max(0, wanted - sum(p.status.phase not in TERMINAL_PHASES for p in pods))
    return min(len(replaced) + lacking, JOB_MOST_DOUBLED)


def replacement_of(pod: Pod, owners: OwnerLookup) -> Replacement:
    """How the pod's controller will replace it."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return Replacement(NEVER, why="no controller owns it")
    if owner.kind == "Node":
        return Replacement(NEVER, why=f"the kubelet of {owner.name} makes it, from its manifest")
    if find_kind(owner.api_version, owner.kind) is None:
        return _assumed(owner)
    workload = owners.find(owner.kind, pod.namespace, owner.name)
    if workload is None or (owner.uid and workload.uid and workload.uid != owner.uid):
        if owners.was_read(owner.kind):
            return Replacement(NEVER, why=f"its {owner.kind} {owner.name} is gone")
        return _assumed(owner)
    if workload.metadata.deletion_timestamp is not None:
        return Replacement(NEVER, why=f"its {owner.kind} {owner.name} is being deleted")
    return _by_kind(owner, workload)


def _assumed(owner: OwnerReference) -> Replacement:
    ordered = owner.kind == "StatefulSet"
    return Replacement(
        WHEN_GONE if ordered else AT_ONCE,
        ordered=ordered,
        assumed=True,
        why=f"{owner.kind} {owner.name} was not read; it is assumed to replace its pods",
    )


def _by_kind(owner: OwnerReference, workload: KubeObject) -> Replacement:
    if isinstance(workload, (ReplicaSet, ReplicationController)):
        return Replacement(
            AT_ONCE,
            replicas=replicas_of(workload),
            min_ready_seconds=workload.spec.min_ready_seconds,
        )
    if isinstance(workload, StatefulSet):
        return Replacement(
            WHEN_GONE,
            ordered=workload.spec.pod_management_policy != "Parallel",
            replicas=replicas_of(workload),
            min_ready_seconds=workload.spec.min_ready_seconds,
        )
    if isinstance(workload, Job):
        return _of_job(workload)
    if owner.kind == "DaemonSet":
        return Replacement(NEVER, why="a DaemonSet's pod belongs to its node")
    return _assumed(owner)


def counts_as_ended(pod: Pod, job: KubeObject | None) -> bool:
    """True if a Job counts the pod as ended, and takes its finalizer off.

    Follows `trackJobStatusAndRemoveFinalizers` and `isPodFailed`: one that has finished; and one
    that is being deleted, unless the Job replaces failed pods only.
    """
    if pod.status.phase in TERMINAL_PHASES:
        return True
    if pod.metadata.deletion_timestamp is None:
        return False
    return not (isinstance(job, Job) and only_failed(job)) or pod.status.phase == "Pending"


def only_failed(job: Job) -> bool:
    """True if the Job replaces a pod when it has failed, and not when it terminates. Follows
    `onlyReplaceFailedPods`."""
    spec = job.spec
    return spec.pod_replacement_policy == FAILED or spec.pod_failure_policy is not None


def _of_job(job: Job) -> Replacement:
    """Follows `onlyReplaceFailedPods`, `newBackoffRecord` and `exceedsBackoffLimit`."""
    spec, status = job.spec, job.status
    if spec.suspend:
        return Replacement(NEVER, why=f"its Job {job.name} is suspended")
    if any(c.type in _JOB_FINISHED and c.status == "True" for c in status.conditions):
        return Replacement(NEVER, why=f"its Job {job.name} is finished")
    rule = Replacement(
        WHEN_GONE if only_failed(job) else AT_ONCE,
        delay_ns=JOB_BACK_OFF_NS,
        failures=0 if status.succeeded else status.failed,
        failed=status.failed,
    )
    if _ignores_disruption(job):
        return rule
    limit = JOB_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    rule = rule._replace(failures_allowed=max(0, limit - status.failed))
    if rule.failures_allowed:
        return rule
    return rule._replace(when=NEVER, why=f"its Job {job.name} allows no more failed pods")


def _ignores_disruption(job: Job) -> bool:
    """True if evicted pods do not count as failed: the usual rule in a podFailurePolicy."""
    policy = job.spec.pod_failure_policy
    return policy is not None and any(
        rule.action == "Ignore"
        and any(c.type == "DisruptionTarget" and c.status == "True" for c in rule.on_pod_conditions)
        for rule in policy.rules
    )


def owner_chain(pod: Pod, owners: OwnerLookup) -> list[OwnerReference]:
    """The pod's controller, its controller, and so on to the topmost that is known.

    A Deployment above a ReplicaSet that was not read is identified by the hash in the pod's labels.
    """
    chain: list[OwnerReference] = []
    owner = controller_of(pod.metadata)
    while owner is not None and owner not in chain:
        chain.append(owner)
        workload = owners.find(owner.kind, pod.namespace, owner.name)
        if workload is not None:
            owner = controller_of(workload.metadata)
        elif owner.kind == "ReplicaSet" and not owners.was_read("ReplicaSet"):
            owner = _deployment_above(owner, pod)
        else:
            owner = None
    return chain


def _deployment_above(replica_set: OwnerReference, pod: Pod) -> OwnerReference | None:
    name = name_above(replica_set.name, pod)
    if not name:
        return None
    return OwnerReference("Deployment", name, api_version="apps/v1", controller=True)


def name_above(replica_set: str, pod: Pod) -> str:
    """The name of the Deployment of the pod's ReplicaSet of that name, by the hash in the pod's
    labels; "" where it has none.
    """
    label = (pod.metadata.labels or {}).get(LABEL_POD_TEMPLATE_HASH, "")
    name = replica_set.removesuffix(f"-{label}")
    return name if label and name != replica_set else ""


def workload_of(pod: Pod) -> tuple[tuple[str, str, str], str]:
    """Namespace, kind and name of what owns it, and the owner's uid; itself where nothing does. A
    ReplicaSet of a Deployment has the Deployment's name.
    """
    owner = controller_of(pod.metadata)
    if owner is None:
        return (pod.namespace, "Pod", pod.name), ""
    return (pod.namespace, owner.kind, name_above(owner.name, pod) or owner.name), owner.uid


def is_active(pod: Pod) -> bool:
    """True if the pod counts as a replica. Follows `IsPodActive`."""
    return pod.status.phase not in TERMINAL_PHASES and pod.metadata.deletion_timestamp is None


def ordinal_of(name: str) -> int:
    """The number at the end of a StatefulSet pod's name, -1 without one. Follows `getOrdinal`."""
    match = _ORDINAL.fullmatch(name)
    return int(match[1]) if match else -1


def successor(lost: Pod, name: str, uid: str, created: Time) -> Pod:
    """The pod that its owner makes in place of `lost`: the same template, on no node yet.

    `name` is what the API server generates; a StatefulSet's pod keeps its own. A Job gives each pod
    its finalizer (`appendJobCompletionFinalizerIfNotFound`). Left out are the labels that a pod
    gets from its node, and other finalizers, which are not the template's.
    """
    meta = lost.metadata
    owner = controller_of(meta)
    keeps_name = owner is not None and owner.kind == "StatefulSet"
    labels = meta.labels
    if labels is not None and not _TOPOLOGY_LABELS.isdisjoint(labels):
        labels = {key: value for key, value in labels.items() if key not in _TOPOLOGY_LABELS}
    return Pod(
        metadata=ObjectMeta(
            name=meta.name if keeps_name else name,
            generate_name=meta.generate_name,
            namespace=meta.namespace,
            uid=uid,
            creation_timestamp=created,
            labels=labels,
            annotations=meta.annotations,
            owner_references=meta.owner_references,
            finalizers=(JOB_TRACKING,) if owner is not None and owner.kind == "Job" else (),
        ),
        spec=replace(lost.spec, node_name=""),
        status=PodStatus(phase="Pending", qos_class=lost.status.qos_class),
    )


WITHOUT_SCALE = {
    ("DaemonSet", "apps"): "daemonsets.apps",
    ("Job", "batch"): "jobs.batch",
    ("CronJob", "batch"): "cronjobs.batch",
    ("Node", ""): "nodes",
    ("Pod", ""): "pods",
}
"""Kinds that own pods and have no scale subresource, with the name that the API gives them."""

_SCALED_IN: Final = {
    "ReplicaSet": ("apps", "extensions"),
    "Deployment": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "ReplicationController": ("",),
}
"""The kinds whose scales `find_scale` finds, each with its API groups."""


class OwnerLookup(Protocol):
    """Where a pod's owners are looked up."""

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object of that kind and name, or None."""

    def was_read(self, kind: str) -> bool:
        """True if objects of that kind were read, so that None means that there is none."""


Scaled = Deployment | ReplicaSet | StatefulSet | ReplicationController


class ScaleUnknown(Exception):
    """The objects that were read do not show how many pods an owner should have."""


class SyncFailure(Exception):
    """The disruption controller cannot compute the budget; the text is upstream's."""


class Scale(NamedTuple):
    """The controller that counts, by uid, and its desired replicas."""

    uid: str
    replicas: int


def api_group(api_version: str) -> str:
    """The group of an apiVersion; "" for the core group. Follows `ParseGroupVersion`."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def scale_of_pod(pod: Pod, owners: OwnerLookup) -> Scale | None:
    """The scale of the pod's controller; None for a pod without one.

    Raises SyncFailure where upstream's controller fails, and ScaleUnknown.
    """
    owner = controller_of(pod.metadata)
    if owner is None:
        return None
    scale = find_scale(owner, pod.namespace, owners)
    if scale is None:
        raise SyncFailure(f'found no controllers for pod "{pod.name}"')
    return scale


def find_scale(owner: OwnerReference, namespace: str, owners: OwnerLookup) -> Scale | None:
    """The scale behind an owner reference, or None where the owner is gone.

    That of a ReplicaSet is its Deployment's if there is one, and an orphan's its own. Raises
    SyncFailure for a kind that has none, and ScaleUnknown. Follows the five finders.
    """
    kind = owner.kind
    resource = WITHOUT_SCALE.get((kind, api_group(owner.api_version)))
    if resource is not None:
        raise SyncFailure(f"{resource} does not implement the scale subresource")
    if not shows_scale(kind, owner.api_version):
        what = f"{kind} {namespace}/{owner.name}"
        raise ScaleUnknown(f"the scale of {what} is not among what was read")
    scaled = _lookup(owner, namespace, owners)
    above = controller_of(scaled.metadata) if isinstance(scaled, ReplicaSet) else None
    if above is not None and above.kind == "Deployment":
        scaled = _lookup(above, namespace, owners) or scaled
    return Scale(scaled.uid, replicas_of(scaled)) if scaled is not None else None


def shows_scale(kind: str, api_version: str) -> bool:
    """True if owners of that kind are looked up for their scale, or have none."""
    group = api_group(api_version)
    return group in _SCALED_IN.get(kind, ()) or (kind, group) in WITHOUT_SCALE


def replicas_of(scaled: Scaled) -> int:
    """spec.replicas, which is 1 where it is absent."""
    return 1 if scaled.spec.replicas is None else scaled.spec.replicas


def _lookup(owner: OwnerReference, namespace: str, owners: OwnerLookup) -> Scaled | None:
    kind = owner.kind
    workload = owners.find(kind, namespace, owner.name)
    if workload is None and not owners.was_read(kind):
        raise ScaleUnknown(f"{kind} {namespace}/{owner.name} is not among what was read")
    is_another = workload is not None and owner.uid and workload.uid not in ("", owner.uid)
    return workload if isinstance(workload, Scaled) and not is_another else None
