"""Server-side tables, which is how `kubectl get` gets its columns.

Follows pkg/printers/internalversion/printers.go for nodes, pods, DaemonSets, budgets and leases;
other kinds get name and age. Left out: the details of a pod's status column (init containers,
signals).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubectl_nodelife.kube.pod import TERMINAL_PHASES
from kubectl_nodelife.kube.times import human_duration, parse_time
from kubectl_nodelife.sandbox.discovery import ServedResource
from kubectl_nodelife.sandbox.store import StoredObject

Document = dict[str, Any]
_NONE = "<none>"
_ROLE = "node-role.kubernetes.io/"

# name of a column, whether it is only for -o wide
_NODE = (
    ("Name", False),
    ("Status", False),
    ("Roles", False),
    ("Age", False),
    ("Version", False),
    ("Internal-IP", True),
    ("External-IP", True),
    ("OS-Image", True),
    ("Kernel-Version", True),
    ("Container-Runtime", True),
)
_POD = (
    ("Name", False),
    ("Ready", False),
    ("Status", False),
    ("Restarts", False),
    ("Age", False),
    ("IP", True),
    ("Node", True),
    ("Nominated Node", True),
    ("Readiness Gates", True),
)
_DAEMON_SET = tuple(
    (name, False)
    for name in (
        "Name",
        "Desired",
        "Current",
        "Ready",
        "Up-to-date",
        "Available",
        "Node Selector",
        "Age",
    )
)
_BUDGET = tuple(
    (name, False)
    for name in ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age")
)
_LEASE = (("Name", False), ("Holder", False), ("Age", False))
_EVENT = tuple((name, False) for name in ("Last Seen", "Type", "Reason", "Object", "Message"))
_OTHER = (("Name", False), ("Age", False))


def table(
    resource: ServedResource,
    entries: list[StoredObject],
    meta: Document,
    now_ns: int,
    include: str = "Metadata",
) -> Document:
    """A `meta.k8s.io/v1` Table of these objects. `include`: what of each object goes along."""
    columns, cells = _SHAPES.get(resource.kind, (_OTHER, _other_cells))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": int(wide),
            }
            for name, wide in columns
        ],
        "rows": [_row(entry, cells, now_ns, include) for entry in entries],
    }


def _row(entry: StoredObject, cells: Cells, now_ns: int, include: str) -> Document:
    document = entry.document()
    row: Document = {"cells": cells(document, now_ns)}
    if include == "Object":
        row["object"] = msgspec.Raw(entry.raw)
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": document["metadata"],
        }
    return row


Cells = Callable[[Document, int], list[Any]]


def _age(document: Document, now_ns: int) -> str:
    return _since(document["metadata"].get("creationTimestamp"), now_ns)


def _since(stamp: str | None, now_ns: int) -> str:
    return human_duration(now_ns - parse_time(stamp)) if stamp else "<unknown>"


def _other_cells(document: Document, now_ns: int) -> list[Any]:
    return [document["metadata"]["name"], _age(document, now_ns)]


def _node_cells(node: Document, now_ns: int) -> list[Any]:
    """Follows `printNode`."""
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    states = [
        "Ready" if c.get("status") == "True" else "NotReady"
        for c in status.get("conditions") or ()
        if c.get("type") == "Ready"
    ] or ["Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    roles |= {labels.get("kubernetes.io/role", "")}
    about = status.get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    architecture = about.get("architecture")
    return [
        node["metadata"]["name"],
        ",".join(states),
        ",".join(sorted(filter(None, roles))) or _NONE,
        _age(node, now_ns),
        about.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        about.get("osImage") or "<unknown>",
        (about.get("kernelVersion") or "<unknown>")
        + (f" ({architecture})" if architecture else ""),
        about.get("containerRuntimeVersion") or "<unknown>",
    ]


def _pod_cells(pod: Document, now_ns: int) -> list[Any]:
    """Follows `printPod`."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    wanted = len(spec.get("containers") or ()) or 1
    ready = sum(1 for s in statuses if s.get("ready"))
    if not statuses and _condition(status, "Ready") == "True":
        ready = wanted  # a simulated kubelet reports no containers
    restarts = sum(s.get("restartCount", 0) for s in statuses)
    gates = spec.get("readinessGates") or []
    passed = sum(1 for g in gates if _condition(status, g.get("conditionType")) == "True")
    return [
        pod["metadata"]["name"],
        f"{ready}/{wanted}",
        _pod_reason(pod, status, statuses),
        str(restarts),
        _age(pod, now_ns),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
    ]


def _pod_reason(pod: Document, status: Document, statuses: list[Document]) -> str:
    phase = str(status.get("phase") or "")
    if "deletionTimestamp" in pod["metadata"] and phase not in TERMINAL_PHASES:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    reason = str(status.get("reason") or phase)
    for container in reversed(statuses):
        state = container.get("state") or {}
        for word in ("waiting", "terminated"):
            if (state.get(word) or {}).get("reason"):
                reason = state[word]["reason"]
    return reason


def _condition(status: Document, type_: str | None) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            return str(condition.get("status"))
    return ""


def _daemon_set_cells(daemon_set: Document, now_ns: int) -> list[Any]:
    status = daemon_set.get("status") or {}
    template = (daemon_set.get("spec") or {}).get("template") or {}
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    return [
        daemon_set["metadata"]["name"],
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        ",".join(f"{k}={v}" for k, v in selector.items()) or _NONE,
        _age(daemon_set, now_ns),
    ]


def _budget_cells(budget: Document, now_ns: int) -> list[Any]:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    return [
        budget["metadata"]["name"],
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        _age(budget, now_ns),
    ]


def _lease_cells(lease: Document, now_ns: int) -> list[Any]:
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    return [lease["metadata"]["name"], holder, _age(lease, now_ns)]


def _event_cells(event: Document, now_ns: int) -> list[Any]:
    about = event.get("involvedObject") or {}
    return [
        _since(event.get("lastTimestamp") or event.get("eventTime"), now_ns),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        event.get("message", ""),
    ]


_SHAPES: dict[str, tuple[tuple[tuple[str, bool], ...], Cells]] = {
    "Node": (_NODE, _node_cells),
    "Pod": (_POD, _pod_cells),
    "DaemonSet": (_DAEMON_SET, _daemon_set_cells),
    "PodDisruptionBudget": (_BUDGET, _budget_cells),
    "Lease": (_LEASE, _lease_cells),
    "Event": (_EVENT, _event_cells),
}
