"""What replaces a pod that goes: who makes the new one, when, and how many there shall be.

Follows pkg/controller/replicaset (`FilterActivePods`: a terminating pod no longer counts, so its
replacement comes at once), pkg/controller/statefulset (`updateStatefulSet`: the same name again,
once the old object is gone; in order, one after another, unless the policy is Parallel) and
pkg/controller/job (podReplacementPolicy, and the back-off after a failed pod). An owner of a kind
not known here is assumed to replace its pods at once, which is what most do. Left out: rollouts
that are under way, and autoscalers.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import (
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.scales import Owners, replicas_of

JOB_BACK_OFF_NS: Final = 10 * SECOND_NS
"""DefaultJobPodFailureBackOff: how long a Job waits after the first failure."""

AT_ONCE: Final = "at-once"
WHEN_GONE: Final = "when-gone"
NEVER: Final = "never"

_ORDINAL = re.compile(r".*-([0-9]+)")


class Replacement(NamedTuple):
    """How an owner replaces its pods.

    `when`: AT_ONCE (a pod that terminates no longer counts), WHEN_GONE (its object must be gone) or
    NEVER. `ordered`: one pod after another, each only when those before it are Ready. `replicas`:
    how many there shall be, None for as many as there are. `assumed`: the owner was not read.
    """

    when: str
    ordered: bool = False
    replicas: int | None = None
    delay_ns: int = 0
    min_ready_seconds: int = 0
    assumed: bool = False
    why: str = ""


def replacement_of(pod: Pod, owners: Owners) -> Replacement:
    """How the pod's controller will replace it."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return Replacement(NEVER, why="no controller owns it")
    if find_kind(owner.api_version, owner.kind) is None:
        return _assumed(owner)
    found = owners.find(owner.kind, pod.namespace, owner.name)
    if found is None or (owner.uid and found.uid and found.uid != owner.uid):
        if owners.was_read(owner.kind):
            return Replacement(NEVER, why=f"its {owner.kind} {owner.name} is gone")
        return _assumed(owner)
    if found.metadata.deletion_timestamp is not None:
        return Replacement(NEVER, why=f"its {owner.kind} {owner.name} is being deleted")
    return _by_kind(owner, found)


def _assumed(owner: OwnerReference) -> Replacement:
    ordered = owner.kind == "StatefulSet"
    return Replacement(
        WHEN_GONE if ordered else AT_ONCE,
        ordered=ordered,
        assumed=True,
        why=f"{owner.kind} {owner.name} was not read; it is assumed to replace its pods",
    )


def _by_kind(owner: OwnerReference, found: KubeObject) -> Replacement:
    if isinstance(found, ReplicaSet | ReplicationController):
        return Replacement(
            AT_ONCE,
            replicas=replicas_of(found),
            min_ready_seconds=found.spec.min_ready_seconds,
        )
    if isinstance(found, StatefulSet):
        return Replacement(
            WHEN_GONE,
            ordered=found.spec.pod_management_policy != "Parallel",
            replicas=replicas_of(found),
            min_ready_seconds=found.spec.min_ready_seconds,
        )
    if isinstance(found, Job):
        return _of_job(found)
    if owner.kind in ("DaemonSet", "Node"):
        return Replacement(NEVER, why=f"a {owner.kind}'s pod belongs to its node")
    return _assumed(owner)


def _of_job(job: Job) -> Replacement:
    if job.spec.suspend:
        return Replacement(NEVER, why=f"its Job {job.name} is suspended")
    if job.spec.backoff_limit == 0:
        return Replacement(NEVER, why=f"its Job {job.name} allows no failed pod")
    when = WHEN_GONE if job.spec.pod_replacement_policy == "Failed" else AT_ONCE
    return Replacement(when, delay_ns=JOB_BACK_OFF_NS)


def is_active(pod: Pod) -> bool:
    """Whether the pod counts as a replica. Follows `IsPodActive`."""
    return pod.status.phase not in TERMINAL_PHASES and pod.metadata.deletion_timestamp is None


def ordinal_of(name: str) -> int:
    """The number at the end of a StatefulSet pod's name, -1 without one. Follows `getOrdinal`."""
    match = _ORDINAL.fullmatch(name)
    return int(match[1]) if match else -1
