"""Which Events' messages a snapshot keeps: those that name objects and quote nobody.

A kubelet's Event may hold what a probe, a registry or a program said, a controller's what an
admission webhook said. Whatever is not listed here becomes a digest.
"""

from __future__ import annotations

from typing import Any, Final

_SOURCES: Final = frozenset(
    {
        "cluster-autoscaler",
        "daemonset-controller",
        "default-scheduler",
        "deployment-controller",
        "node-controller",
        "pod-garbage-collector-controller",
        "replicaset-controller",
        "statefulset-controller",
        "taint-controller",
        "taint-eviction-controller",
    }
)
_QUOTING_REASONS: Final = frozenset({"FailedCreate", "FailedDelete"})

_KUBELET_REASONS: Final = frozenset(
    {"Killing", "NodeNotReady", "NodeReady", "NodeNotSchedulable", "NodeSchedulable"}
)


def names_objects_only(event: dict[str, Any]) -> bool:
    """True if the message of an Event, as the API writes it, may stay."""
    source = event.get("source")
    told_by = source.get("component") if isinstance(source, dict) else ""
    component, reason = event.get("reportingComponent") or told_by, event.get("reason")
    if component == "kubelet":
        return reason in _KUBELET_REASONS
    return component in _SOURCES and reason not in _QUOTING_REASONS
