"""Dumps of several moments in one input: what is deleted since must not come back to life.

A must-gather holds archives of the Insights Operator that are hours older; a folder of bundles, or
two names, may hold the same cluster of two days. What a newer dump tells of a kind is the whole of
it, so that of an older one only kinds count that the newer lacks, and Events, which are history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import Loaded
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import MINUTE_NS, parse_time
from kubectl_nodelife.kube.wellknown import ANNOTATION_MOMENT, NAMESPACE_NODE_LEASE
from kubectl_nodelife.report.ages import age

APART_NS: Final = 15 * MINUTE_NS
"""So long the reading of one dump may take, with kubelets that post a status every 5 minutes."""

_HISTORY: Final = frozenset({"Event"})


class SignOfLife(NamedTuple):
    """When a node last gave a sign (ns since the epoch), and what it was."""

    time_ns: int
    told_by: str


class DumpPart(NamedTuple):
    """What one file holds. `dump`: the name or archive that it belongs to."""

    dump: str
    source: str
    loaded: Loaded


def newest_sign(objects: Iterable[KubeObject]) -> SignOfLife | None:
    """The newest sign of life of any node; None where there is none."""
    signs = filter(None, map(_sign_of_life, objects))
    return max(signs, key=lambda sign: sign.time_ns, default=None)


def of_newest_dump(parts: Sequence[DumpPart]) -> tuple[list[DumpPart], list[str]]:
    """The parts without what a newer dump among them tells, and a sentence on each older dump.

    A dump in which nothing tells its moment counts as of any.
    """
    moments = _moments(parts)
    newest_ns = max(moments.values(), default=0)
    older = {name for name, at_ns in moments.items() if newest_ns - at_ns > APART_NS}
    kept = [part for part in parts if part.dump not in older]
    known = {kind for part in kept for kind in part.loaded.kinds_read} - _HISTORY
    warnings = []
    for name in sorted(older, key=lambda name: -moments[name]):
        mine = [part for part in parts if part.dump == name]
        told = {kind for part in mine for kind in part.loaded.kinds_read}
        more = told - known
        kept += [_only(part, more) for part in mine]
        known |= more - _HISTORY
        if more == told:
            continue
        older_by = age(moments[name], newest_ns)
        rest = f"of it only {', '.join(sorted(more))} counts" if more else "nothing of it counts"
        warnings.append(f"{name} is {older_by} older than the newest dump here: {rest}")
    return kept, warnings


def _moments(parts: Iterable[DumpPart]) -> Mapping[str, int]:
    moments: dict[str, int] = {}
    for part in parts:
        sign = newest_sign(part.loaded.objects)
        times = [sign.time_ns] if sign is not None else []
        with suppress(ValueError):  # most note none
            times.append(int(parse_time(part.loaded.annotations.get(ANNOTATION_MOMENT, ""))))
        for at_ns in times:
            moments[part.dump] = max(at_ns, moments.get(part.dump, at_ns))
    return moments


def _only(part: DumpPart, kinds: set[str]) -> DumpPart:
    found = part.loaded
    return part._replace(
        loaded=Loaded(
            objects=[obj for obj in found.objects if kind_of(obj) in kinds],
            unreadable=[one for one in found.unreadable if one.kind in kinds],
            unknown_kinds=found.unknown_kinds,
            kinds_read=found.kinds_read & kinds,
        )
    )


def _sign_of_life(obj: KubeObject) -> SignOfLife | None:
    if isinstance(obj, Lease) and obj.namespace == NAMESPACE_NODE_LEASE:
        if obj.spec.renew_time is not None:
            return SignOfLife(int(obj.spec.renew_time), f"the lease of node {obj.name}")
    elif isinstance(obj, Node):
        ready = obj.ready()
        if ready is not None and ready.last_heartbeat_time is not None:
            return SignOfLife(int(ready.last_heartbeat_time), f"the status of node {obj.name}")
    return None
