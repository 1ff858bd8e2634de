"""Why something changes: the chain of causes of each record about one object of a play."""

from __future__ import annotations

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.outlook.what_if.question import Played
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject
from kubectl_nodelife.sim.timeline import Record


class CausedChange(msgspec.Struct, frozen=True, rename="camel"):
    """One change: when, what was done to what, and why; then the causes, the nearest first."""

    at: float
    action: str
    object: str
    reason: str


class WhyChanged(msgspec.Struct, frozen=True, rename="camel"):
    """All changes of an object, each with its chain of causes."""

    about: str
    changes: list[list[CausedChange]]


def chains(played: Played, about: str) -> WhyChanged:
    """The changes of `node/NAME` or NAMESPACE/KIND/NAME. Raises BadInput."""
    parts = about.split("/")
    if len(parts) == 2 and parts[0].lower() in ("node", "nodes"):
        found = [i for i, r in enumerate(played.records) if _is_about_node(r, parts[1])]
        known = parts[1] in played.cluster.nodes or bool(found)
    elif len(parts) == 3:
        workload = _workload(played, ServedObject(*parts))
        known = workload is not None
        uids = {uid for uid, of in played.levels.workload_of.items() if of == workload}
        found = [i for i, r in enumerate(played.records) if r.object.uid in uids]
    else:
        remedy = "write node/NAME or NAMESPACE/KIND/NAME"
        raise BadInput(f"{about!r} names nothing", on="--why", remedy=remedy)
    if not known:
        raise BadInput(f'"{about}" not found', on="--why", remedy="check the name")
    return WhyChanged(about=about, changes=[_chain(played.records, i) for i in found])


def _is_about_node(record: Record, name: str) -> bool:
    return record.object.kind == "Node" and record.object.name == name


def _workload(played: Played, asked: ServedObject) -> ServedObject | None:
    kind = asked.kind.lower()
    for workload in sorted(set(played.levels.workload_of.values())):
        same = (workload.namespace, workload.name) == (asked.namespace, asked.name)
        if same and workload.kind.lower() == kind:
            return workload
    return None


def _chain(records: list[Record], index: int | None) -> list[CausedChange]:
    chain = []
    while index is not None:
        record = records[index]
        obj = record.object
        name = "/".join(filter(None, (obj.kind.lower(), obj.namespace, obj.name)))
        chain.append(
            CausedChange(at=record.at, action=record.action, object=name, reason=record.reason)
        )
        index = record.cause
    return chain
