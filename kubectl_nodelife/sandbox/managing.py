"""Keeps a node's managedFields, as far as they are read here: who wrote taints, cordon, conditions.

Follows what an API server keeps for updates and patches that are not server-side apply: whoever
changes a field owns it alone, by the name in fieldManager, else the first word of its User-Agent.
The simulated controllers' own writes are not noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubectl_nodelife.kube.field_managers import (
    TAINTS,
    UNSCHEDULABLE,
    FieldManager,
    FieldManagers,
    condition_field,
    read_field_managers,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import LIFECYCLE_CONDITIONS

Document = Mapping[str, Any]

_UNKNOWN: Final = "unknown"


def manager_of(query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """The field manager that a request names, or that its User-Agent stands for."""
    agent = headers.get("User-Agent", "").partition("/")[0]
    return query.get("fieldManager") or agent or _UNKNOWN


def with_writer(before: Document, after: Document, manager: str, now_ns: int) -> dict[str, Any]:
    """The node `after` a write of that manager, with its managedFields."""
    old, new = _fields(before), _fields(after)
    changed = frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    known = read_field_managers(before["metadata"].get("managedFields")).entries
    entries = [entry._replace(fields=entry.fields - changed) for entry in known]
    at_ns = now_ns // SECOND_NS * SECOND_NS
    for fields in (changed & {TAINTS, UNSCHEDULABLE}, changed - {TAINTS, UNSCHEDULABLE}):
        if written := fields & new.keys():
            entries.append(FieldManager(manager, "Update", at_ns, written))
    managed = FieldManagers(tuple(entry for entry in entries if entry.fields)).document()
    metadata = {**after["metadata"], "managedFields": managed}
    if not managed:
        del metadata["managedFields"]
    return {**after, "metadata": metadata}


def _fields(node: Document) -> dict[str, Any]:
    """The fields that count, by their name in fieldsV1, with their values."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    found = {TAINTS: spec.get("taints"), UNSCHEDULABLE: spec.get("unschedulable")}
    for condition in status.get("conditions") or ():
        if condition.get("type") in LIFECYCLE_CONDITIONS:
            found[condition_field(condition["type"])] = condition
    return {key: value for key, value in found.items() if value}
