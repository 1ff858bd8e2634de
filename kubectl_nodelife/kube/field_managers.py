"""Who wrote a node's taints, its cordon and its lifecycle conditions last: metadata.managedFields.

Of each entry only those fields are kept, so that a node costs no more memory for it. An entry has
one instant for all of its fields: that of the manager's last change to any of them. No decision
reads this, so that what is not as the API server writes it is passed over and no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube.times import format_time, parse_time
from kubectl_nodelife.kube.wellknown import LIFECYCLE_CONDITIONS

UNSCHEDULABLE: Final = "f:unschedulable"
TAINTS: Final = "f:taints"
_SPEC: Final = frozenset({UNSCHEDULABLE, TAINTS})


def condition_field(type_: str) -> str:
    """The name of the condition of that type in fieldsV1."""
    return f'k:{{"type":"{type_}"}}'


_CONDITIONS: Final = frozenset(condition_field(type_) for type_ in LIFECYCLE_CONDITIONS)


class FieldManager(NamedTuple):
    """One entry: a program's name for itself, its operation, when, and which fields are its own."""

    name: str
    operation: str
    time_ns: int
    fields: frozenset[str]


class FieldManagers:
    """The entries of one object that have one of these fields. Equality is by value."""

    __slots__ = ("entries",)

    def __init__(self, entries: tuple[FieldManager, ...] = ()) -> None:
        self.entries = entries

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldManagers) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def writer_of(self, field: str) -> FieldManager | None:
        """The last writer of the field; None where no manager has it, as of one that is gone."""
        having = [entry for entry in self.entries if field in entry.fields]
        return max(having, key=lambda entry: entry.time_ns, default=None)

    def document(self) -> list[dict[str, Any]]:
        """As the API writes it."""
        return [_entry(manager) for manager in self.entries]


NOBODY: Final = FieldManagers()


def read_field_managers(raw: Any) -> FieldManagers:
    """The entries of metadata.managedFields, as plain Python objects."""
    managers = tuple(_managers(raw)) if isinstance(raw, list) else ()
    return FieldManagers(managers) if managers else NOBODY


def manager_of(raw: Any, path: tuple[str, ...]) -> str:
    """The manager in metadata.managedFields that wrote the field at that path last, "" if none."""
    writes = [(0, "")]
    for entry in raw if isinstance(raw, list) else ():
        try:
            fields = entry.get("fieldsV1") or {}
            for name in path:
                fields = fields[name]
            writes.append((int(parse_time(entry["time"])), str(entry.get("manager", ""))))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return max(writes)[1]


def _managers(raw: list[Any]) -> Iterator[FieldManager]:
    for entry in raw:
        try:
            own = entry.get("fieldsV1") or {}
            of_spec = _SPEC & (own.get("f:spec") or {}).keys()
            of_status = (own.get("f:status") or {}).get("f:conditions") or {}
            fields = frozenset(of_spec | (_CONDITIONS & of_status.keys()))
            if fields and (entry.get("subresource") or "") == ("" if of_spec else "status"):
                name, operation = str(entry.get("manager", "")), str(entry.get("operation", ""))
                yield FieldManager(name, operation, int(parse_time(entry["time"])), fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            continue


def _entry(manager: FieldManager) -> dict[str, Any]:
    spec = sorted(manager.fields & _SPEC)
    conditions = sorted(manager.fields - _SPEC)
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": "v1",
        "time": format_time(manager.time_ns),
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
    }
    if spec:
        entry["fieldsV1"]["f:spec"] = {field: {} for field in spec}
    if conditions:
        entry["fieldsV1"]["f:status"] = {"f:conditions": {field: {} for field in conditions}}
        entry["subresource"] = "status"
    return entry
