"""Names that Kubernetes gives a meaning to: labels, annotations, taint keys, effects, conditions.

Follows staging/src/k8s.io/api/core/v1/well_known_labels.go, well_known_taints.go and
pkg/controller/nodelifecycle. Only names that some decision here reads or writes.
"""

from __future__ import annotations

from typing import Final

# Taint effects
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
TAINT_EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)

# Taint keys
TAINT_NODE_NOT_READY: Final = "node.kubernetes.io/not-ready"
TAINT_NODE_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_NODE_MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
TAINT_NODE_DISK_PRESSURE: Final = "node.kubernetes.io/disk-pressure"
TAINT_NODE_PID_PRESSURE: Final = "node.kubernetes.io/pid-pressure"
TAINT_NODE_NETWORK_UNAVAILABLE: Final = "node.kubernetes.io/network-unavailable"
TAINT_NODE_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
TAINT_NODE_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"

# Toleration operators; the last two since 1.35 behind a gate
TOLERATION_EXISTS: Final = "Exists"
TOLERATION_EQUAL: Final = "Equal"
TOLERATION_LT: Final = "Lt"
TOLERATION_GT: Final = "Gt"

# Labels
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_REGION: Final = "topology.kubernetes.io/region"
LABEL_ZONE_BETA: Final = "failure-domain.beta.kubernetes.io/zone"
LABEL_REGION_BETA: Final = "failure-domain.beta.kubernetes.io/region"
LABEL_OS: Final = "kubernetes.io/os"
LABEL_OS_BETA: Final = "beta.kubernetes.io/os"
LABEL_ARCH: Final = "kubernetes.io/arch"
LABEL_ARCH_BETA: Final = "beta.kubernetes.io/arch"
LABEL_EXCLUDE_DISRUPTION: Final = "node.kubernetes.io/exclude-disruption"
LABEL_CONTROLLER_REVISION_HASH: Final = "controller-revision-hash"
LABEL_POD_TEMPLATE_GENERATION: Final = "pod-template-generation"

# Annotations
ANNOTATION_CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
ANNOTATION_CONFIG_SOURCE: Final = "kubernetes.io/config.source"
ANNOTATION_KINDS: Final = "nodelife.dev/kinds"  # of a List, and those that follow too
ANNOTATION_MOMENT: Final = "nodelife.dev/moment"
ANNOTATION_RUNNING: Final = "nodelife.dev/running"

# Conditions and their statuses
NODE_READY: Final = "Ready"
DISRUPTION_TARGET: Final = "DisruptionTarget"

# Conditions by which people and their programs say what they do with a node (KEP-5683)
DRAIN_IN_PROGRESS: Final = "DrainInProgress"
DRAINED: Final = "Drained"
MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
MAINTENANCE_IN_PROGRESS: Final = "MaintenanceInProgress"
LIFECYCLE_CONDITIONS: Final = (
    "GracefulNodeShutdownInProgress",
    MAINTENANCE_PLANNED,
    DRAIN_IN_PROGRESS,
    DRAINED,
    MAINTENANCE_IN_PROGRESS,
)
DRAIN_COMPLETED: Final = "DrainCompleted"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

# Reasons of a node's conditions that turned Unknown for want of heartbeats
NODE_STATUS_UNKNOWN: Final = "NodeStatusUnknown"
NODE_STATUS_NEVER_UPDATED: Final = "NodeStatusNeverUpdated"
SILENT_REASONS: Final = frozenset({NODE_STATUS_UNKNOWN, NODE_STATUS_NEVER_UPDATED})

NODE_LOST: Final = "NodeLost"
"""The reason of a pod whose node was lost, in its status (`NodeUnreachablePodReason`)."""

# Reasons of a pod's condition DisruptionTarget
DELETION_BY_TAINT_MANAGER: Final = "DeletionByTaintManager"
DELETION_BY_POD_GC: Final = "DeletionByPodGC"
EVICTION_BY_EVICTION_API: Final = "EvictionByEvictionAPI"

NAMESPACE_NODE_LEASE: Final = "kube-node-lease"

CONTROLLER_MANAGERS: Final = frozenset({"kube-controller-manager", "hyperkube", "k3s", "kubelite"})
"""Field managers that stand for kube-controller-manager: some run it inside of a larger program."""
