"""The flags of `kubectl drain`, and the filters that they steer: which pods it would touch, and
everything that makes it refuse a node.

Follows k8s.io/kubectl, pkg/drain/filters.go (v1.36). `decide` is what kubectl does, stopping at the
first "do not delete"; `faults` are all the objections at once, each with the flag that lifts it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kubectl_nodelife.engine.settings import Profile
from kubectl_nodelife.kube.meta import LabelSelector, OwnerReference, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.workloads.owners import OwnerLookup

FLAG_FORCE = "--force"
FLAG_IGNORE_DAEMONSETS = "--ignore-daemonsets"
FLAG_DELETE_EMPTYDIR_DATA = "--delete-emptydir-data"


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """kubectl drain's flags with their defaults and meanings.

    `grace_period_seconds` negative: the pod's own. `timeout_ns` 0: for ever, else per node.
    `skip_wait_seconds` 0: never skip. `daemon_sets_by_kind` is not a flag but depends on kubectl's
    release: until v1.33 an owner of kind DaemonSet counted as one whatever its API group. Nor is
    `waits_in_dry_run`: until v1.36 --disable-eviction --dry-run=server waits for pods to go, too.
    """

    force: bool = False
    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    grace_period_seconds: int = -1
    timeout_ns: int = 0
    disable_eviction: bool = False
    pod_selector: str = ""
    skip_wait_seconds: int = 0
    daemon_sets_by_kind: bool = False
    waits_in_dry_run: bool = False

    @property
    def requested_grace(self) -> int | None:
        """gracePeriodSeconds of the delete options, None where they set none."""
        return None if self.grace_period_seconds < 0 else self.grace_period_seconds

    def selector(self) -> LabelSelector:
        """The selector of --pod-selector; of all pods where it is not given. Raises ValueError."""
        return parse_selector(self.pod_selector)

    def of_release(self, profile: Profile) -> DrainOptions:
        """These options for the kubectl of that release."""
        by_kind = profile.has("drains_daemon_sets_by_kind")
        waits = not profile.has("dry_run_ends")
        if (by_kind, waits) == (self.daemon_sets_by_kind, self.waits_in_dry_run):
            return self
        return replace(self, daemon_sets_by_kind=by_kind, waits_in_dry_run=waits)

    def with_flags(self, flags: tuple[str, ...]) -> DrainOptions:
        """These options with the flags named set, as `FLAG_FORCE` and its like."""
        return replace(
            self,
            force=self.force or FLAG_FORCE in flags,
            ignore_daemonsets=self.ignore_daemonsets or FLAG_IGNORE_DAEMONSETS in flags,
            delete_emptydir_data=self.delete_emptydir_data or FLAG_DELETE_EMPTYDIR_DATA in flags,
        )

    def without_timeout(self) -> DrainOptions:
        """These options for a kubectl that waits as long as it takes."""
        return replace(self, timeout_ns=0)

    def command(self, *nodes: str) -> str:
        """The kubectl command that drains these nodes with these flags."""
        words = ["kubectl", "drain", *(shlex.quote(node) for node in nodes)]
        if self.ignore_daemonsets:
            words.append(FLAG_IGNORE_DAEMONSETS)
        if self.delete_emptydir_data:
            words.append(FLAG_DELETE_EMPTYDIR_DATA)
        if self.force:
            words.append(FLAG_FORCE)
        if self.grace_period_seconds >= 0:
            words.append(f"--grace-period={self.grace_period_seconds}")
        if self.timeout_ns:
            words.append(f"--timeout={format_duration(self.timeout_ns)}")
        if self.disable_eviction:
            words.append("--disable-eviction")
        if self.pod_selector:
            words.append(f"--pod-selector={shlex.quote(self.pod_selector)}")
        if self.skip_wait_seconds > 0:
            words.append(f"--skip-wait-for-delete-timeout={self.skip_wait_seconds}")
        return " ".join(words)


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
    daemon_set = owners.find("DaemonSet", pod.namespace, owner.name)
    if daemon_set is None and owners.was_read("DaemonSet"):
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
    objections: list[FilterObjection] = []
    while True:
        decision = decide(pod, options, owners, now_ns)
        if decision.verb != REFUSE:
            return tuple(objections)
        flag = _FLAGS[decision.gate]
        if decision.gate == "daemonset" and decision.message != DAEMON_SET_FATAL:
            flag = FLAG_FORCE
        objections.append(FilterObjection(decision.gate, decision.message, flag))
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
    ignored = ((p, d) for p, d in decided if d.verb == DELETE or d.gate == "daemonset")
    return "; ".join(_by_message(ignored))


def refusals(decided: Iterable[tuple[Pod, Decision]]) -> list[str]:
    """Why kubectl does not touch the node, grouped by message (`errors`)."""
    lines = _by_message((pod, decision) for pod, decision in decided if decision.verb == REFUSE)
    return [line if line.startswith(_CANNOT) else f"{_CANNOT}{line}" for line in lines]


def _by_message(decided: Iterable[tuple[Pod, Decision]]) -> list[str]:
    pods_by_message: dict[str, list[str]] = {}
    for pod, decision in decided:
        if decision.message:
            pods_by_message.setdefault(decision.message, []).append(f"{pod.namespace}/{pod.name}")
    return [f"{message}: {', '.join(pods)}" for message, pods in pods_by_message.items()]


_CANNOT = "cannot delete "


def has_empty_dir(pod: Pod) -> bool:
    """True if the pod has an emptyDir volume of any kind."""
    volumes = pod.spec.volumes
    return bool(volumes) and any(volume.empty_dir is not None for volume in volumes)
