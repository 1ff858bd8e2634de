"""Which pods and revisions are a set's: keep, adopt, release, or leave alone.

Follows `BaseControllerRefManager.ClaimObject` (`pkg/controller/controller_ref_manager.go`).
"""

from __future__ import annotations

from enum import Enum

from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.workload import DaemonSet


class Claim(Enum):
    """The four ways in which a set treats an object that may be its own."""

    KEEP = "ours already"
    ADOPT = "an orphan that matches"
    RELEASE = "ours, but it no longer matches"
    IGNORE = "not ours"


def claim_object(daemon_set: DaemonSet, obj: KubeObject) -> Claim:
    """How the set stands to an object of its namespace."""
    owner = controller_of(obj.metadata)
    deleting = daemon_set.metadata.deletion_timestamp is not None
    if owner is not None:
        if owner.uid != daemon_set.uid:
            return Claim.IGNORE
        if matches(daemon_set.spec.selector, obj.metadata.labels):
            return Claim.KEEP
        return Claim.IGNORE if deleting else Claim.RELEASE
    if deleting or not matches(daemon_set.spec.selector, obj.metadata.labels):
        return Claim.IGNORE
    return Claim.IGNORE if obj.metadata.deletion_timestamp is not None else Claim.ADOPT
