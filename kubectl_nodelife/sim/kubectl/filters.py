"""kubectl drain's filters: which pods it would touch, and everything that makes it refuse a node.

Follows k8s.io/kubectl, pkg/drain/filters.go (v1.36). `decide` is what kubectl does, stopping at the
first "do not delete"; `faults` are all the objections at once, each with the flag that lifts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubectl_nodelife.kube.meta import OwnerReference, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import (
    FLAG_DELETE_EMPTYDIR_DATA,
    FLAG_FORCE,
    FLAG_IGNORE_DAEMONSETS,
    DrainOptions,
)
from kubectl_nodelife.workloads.owners import OwnerLookup

DELETE: Final = "delete"
KEEP: Final = "keep"
REFUSE: Final = "refuse"


class Decision(NamedTuple):
    """kubectl's decision on one pod: DELETE, KEEP or REFUSE, and the filter that made it.

    `gate` is the plan's name for the filter, `none` for a pod that is simply deleted; `message` is
    kubectl's warning or error, "" where there is none.
    """

    verb: str
    gate: str = "none"
    message: str = ""


class FilterObjection(NamedTuple):
    """One objection of kubectl to a pod, and the flag that lifts it, "" if none does."""

    gate: str
    message: str
    flag: str


GO = Decision(DELETE)

DAEMON_SET_FATAL = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
LOCAL_STORAGE_FATAL = (
    "cannot delete Pods with local storage (use --delete-emptydir-data to override)"
)
UNMANAGED_FATAL = "cannot delete Pods that declare no controller (use --force to override)"


def skips_deleted(pod: Pod, skip_wait_seconds: int, now_ns: int) -> bool:
    """True if the pod has been terminating for so long that kubectl skips it (`shouldSkipPod`).

    Counted from deletionTimestamp, which already includes the grace; strictly greater than.
    """
    deleted = pod.metadata.deletion_timestamp
    if skip_wait_seconds <= 0 or deleted is None:
        return False
    return int((now_ns - deleted) / SECOND_NS) > skip_wait_seconds


def decide(pod: Pod, options: DrainOptions, owners: OwnerLookup, now_ns: int) -> Decision:
    """kubectl's decision on a pod that its list call returned."""
    if skips_deleted(pod, options.skip_wait_seconds, now_ns):
        return Decision(KEEP, "none", "skipped: it is terminating for longer than the flag allows")
    decision = GO
    owner = controller_of(pod.metadata)
    over = pod.status.phase in TERMINAL_PHASES
    if owner is not None and not over and is_daemon_set(owner, options):
        decision = _daemon_set(pod, owner, options, owners)
        if decision.verb != DELETE:
            return decision
    if is_mirror_pod(pod):
        return Decision(KEEP, "mirror", "a static pod of the node itself")
    if has_empty_dir(pod) and not over:
        if not options.delete_emptydir_data:
            return Decision(REFUSE, "emptydir", LOCAL_STORAGE_FATAL)
        decision = Decision(DELETE, "none", "deleting Pods with local storage")
    if owner is None and not over:
        if not options.force:
            return Decision(REFUSE, "bare", UNMANAGED_FATAL)
        decision = Decision(DELETE, "none", "deleting Pods that declare no controller")
    return decision


def _daemon_set(
    pod: Pod, owner: OwnerReference, options: DrainOptions, owners: OwnerLookup
) -> Decision:
    found = owners.find("DaemonSet", pod.namespace, owner.name)
    if found is None and owners.was_read("DaemonSet"):
        message = f'daemonsets.apps "{owner.name}" not found'
        if options.force:
            return Decision(DELETE, "none", message)
        return Decision(REFUSE, "daemonset", message)
    if not options.ignore_daemonsets:
        return Decision(REFUSE, "daemonset", DAEMON_SET_FATAL)
    return Decision(KEEP, "daemonset", "ignoring DaemonSet-managed Pods")


def faults(
    pod: Pod, options: DrainOptions, owners: OwnerLookup, now_ns: int
) -> tuple[FilterObjection, ...]:
    """Everything that kubectl would object to, one after another, as flags are added.

    Empty for a pod that it deletes or keeps without a message.
    """
    found: list[FilterObjection] = []
    while True:
        decision = decide(pod, options, owners, now_ns)
        if decision.verb != REFUSE:
            return tuple(found)
        flag = _FLAGS[decision.gate]
        if decision.gate == "daemonset" and decision.message != DAEMON_SET_FATAL:
            flag = FLAG_FORCE
        found.append(FilterObjection(decision.gate, decision.message, flag))
        options = options.with_flags((flag,))


_FLAGS = {
    "daemonset": FLAG_IGNORE_DAEMONSETS,
    "emptydir": FLAG_DELETE_EMPTYDIR_DATA,
    "bare": FLAG_FORCE,
}


def is_daemon_set(owner: OwnerReference, options: DrainOptions) -> bool:
    """True if the owner counts as a DaemonSet (`isControllerRefDaemonSet`).

    Since v1.34 (kubernetes/kubernetes#128779) one of another group than apps/v1 is an ordinary
    owner; before that kubectl compared the kind alone, and looked for the DaemonSet of apps/v1.
    """
    if owner.kind != "DaemonSet":
        return False
    return owner.api_version == "apps/v1" or options.daemon_sets_by_kind


def asked_daemon_set(pod: Pod, options: DrainOptions) -> str:
    """The name of the DaemonSet that kubectl reads before it decides on the pod; "": none."""
    if pod.status.phase in TERMINAL_PHASES:
        return ""
    owner = controller_of(pod.metadata)
    return owner.name if owner is not None and is_daemon_set(owner, options) else ""


def warnings(decided: Iterable[tuple[Pod, Decision]]) -> str:
    """kubectl's warnings, grouped by message (`Warnings`); "" for none."""
    found = ((p, d) for p, d in decided if d.verb == DELETE or d.gate == "daemonset")
    return "; ".join(_by_message(found))


def refusals(decided: Iterable[tuple[Pod, Decision]]) -> list[str]:
    """Why kubectl does not touch the node, grouped by message (`errors`)."""
    found = _by_message((pod, decision) for pod, decision in decided if decision.verb == REFUSE)
    return [line if line.startswith(_CANNOT) else f"{_CANNOT}{line}" for line in found]


def _by_message(decided: Iterable[tuple[Pod, Decision]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for pod, decision in decided:
        if decision.message:
            found.setdefault(decision.message, []).append(f"{pod.namespace}/{pod.name}")
    return [f"{message}: {', '.join(pods)}" for message, pods in found.items()]


_CANNOT = "cannot delete "


def has_empty_dir(pod: Pod) -> bool:
    """True if the pod has an emptyDir volume of any kind."""
    volumes = pod.spec.volumes
    return bool(volumes) and any(volume.empty_dir is not None for volume in volumes)
