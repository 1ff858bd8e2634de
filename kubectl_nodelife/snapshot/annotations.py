"""The annotations of objects that some decision or answer here reads: the one table.

All others go from a snapshot. A test finds every annotation key that the code reads and holds it
against this table. Besides these a key stays that an admission policy or a webhook's match
conditions mention (`redact.Redaction`), because they are evaluated too.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR, ANNOTATION_CONFIG_SOURCE

KEPT: Final = {
    ANNOTATION_CONFIG_MIRROR: "a mirror pod: the API cannot evict it",
    ANNOTATION_CONFIG_SOURCE: "a kubelet's own pods, from a file or from the API",
    "deprecated.daemonset.template.generation": "which pods are of the present template",
    "scheduler.alpha.kubernetes.io/critical-pod": "tolerations of DaemonSet pods before v1.16",
    "kubernetes.io/change-cause": "the words of a revision in `rollout history`",
    "nodelife.dev/upgrade": "the state of a node's upgrade",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "a shield of an upgrade",
    "karpenter.sh/do-not-disrupt": "a shield of an upgrade",
    "nodelife.dev/canary-spec": "whether a canary is of the manifest that is tried",
    "weave.works/kured-reboot-in-progress": "a node that kured reboots is not available",
    "machineconfiguration.openshift.io/state": "nor is one whose machine config is applied",
    "cluster.x-k8s.io/machine": "whose machine Cluster API may replace during an upgrade",
    "sandbox.nodelife.dev/heartbeats": "a kubelet that the sandbox has silenced",
}
"""Annotation key -> what depends on it."""
