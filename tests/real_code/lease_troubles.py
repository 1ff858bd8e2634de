"""Leases that somebody else writes to or deletes, a watch of them that stands still, and reads of
them that fail: what counts from v1.37 on, where a Lease is read before its node is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.real_code.generator import Generator

Json = dict[str, Any]


def lease_troubles(made: Generator) -> list[Json]:
    """Adds the events, and returns the reads that fail."""
    chance, reads = made.chance, list[Json]()
    for _ in range(made.weighted({0: 30, 1: 30, 2: 25, 5: 15})):
        at, names = made.instant(0, made.duration * 0.9), made.struck() or made.names[:1]
        if chance.random() < 0.8:
            made.at(at, lease={"nodes": names, "touched": True})
        else:
            gone = {"kind": "Lease", "namespace": "kube-node-lease", "name": names[0]}
            made.at(at, delete=gone)
    if chance.random() < 0.4:
        begin = made.instant(0, made.duration * 0.7)
        end = made.instant(begin + made.period, begin + chance.choice([20, 60, 200]))
        made.at(begin, controllers={"leases": "stale"})
        made.at(end, controllers={"leases": "current"})
    for _ in range(made.weighted({0: 70, 1: 20, 2: 10})):
        begin = made.instant(0, made.duration * 0.8)
        end = made.instant(begin + made.period, begin + chance.choice([30, 100, 400]))
        entry: Json = {"kind": "Lease", "code": chance.choice([401, 403, 404, 429, 500, 503])}
        if chance.random() < 0.5:
            entry["name"] = chance.choice(made.names)
        reads.append({**entry, "from": f"{begin:g}s", "until": f"{end:g}s"})
    return reads
