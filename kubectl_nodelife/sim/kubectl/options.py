"""The flags of `kubectl drain`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from kubectl_nodelife.engine.profiles import Profile
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import format_duration

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
