"""What verbs that work on a dump (`-f`) share: load it, and say what it is and what it lacks."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.commands.inputs import Snapshot, read_snapshot
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.report.progress import progress_bar


def load(filename: tuple[str, ...], now: str | None, profile: str | None) -> Snapshot:
    """Read `-f` with a progress bar on a terminal."""
    with progress_bar("reading objects") as step:
        return read_snapshot(filename, now=now, profile=profile, progress=step)


def source_of(snapshot: Snapshot) -> dict[str, Any]:
    """The contract's `source` of a dump."""
    return {"kind": "snapshot", "context": None, "synced": True, "age": None}


def missing(snapshot: Snapshot, cache: Cache) -> list[str]:
    """What was not read, and what cannot be said for that reason."""
    stand_in = snapshot.profile.stands_in()
    warnings = [] if stand_in is None else [stand_in]
    warnings += without_leases(cache)
    if not snapshot.has_read("Pod"):
        warnings.append("no pods were read: evictions are not evaluated")
    return warnings


def without_leases(cache: Cache) -> list[str]:
    """Which nodes' ages cannot be told, since no Lease of them was read."""
    without = [name for name in cache.nodes if name not in cache.heartbeats]
    if without and len(without) == len(cache.nodes):
        return ["no node Lease was read: how long until a node is Unknown is not evaluated"]
    if without:
        names = ", ".join(sorted(without)[:3]) + (", ..." if len(without) > 3 else "")
        return [f"no Lease of {names} was read: their age is not evaluated"]
    return []
