"""The daemon's own state: the document behind `daemon status`."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

from kubectl_nodelife.daemon.cluster_view import WatchedCluster, journal_warnings
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.kinds import failing, retry_seconds
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time


def health(
    watcher: DecisionTask,
    journal: Journal,
    cluster: WatchedCluster,
    more: dict[str, Any],
    said: list[str],
) -> dict[str, Any]:
    """The daemon's state as JSON. `more` is what only the process has; `said`: its warnings."""
    now_ns = watcher.clock.now_ns()
    quarantine = watcher.host.cache.quarantine
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "context": cluster.context,
        "mode": "dry-run",
        "synced": watcher.synced.is_set(),
        "cold": watcher.is_cold(now_ns),
        "coldUntil": format_micro_time(watcher.cold_until_ns) if watcher.cold_until_ns else None,
        "coldBecause": watcher.cold_because,
        "standsStill": watcher.stands_still,
        "lastNewsSeconds": _since(watcher.last_news_ns, now_ns),
        "controllers": watcher.running(),
        "kinds": _kinds(watcher),
        "settings": {
            flag: {"value": value, "origin": watcher.settings.origins[flag]}
            for flag, value in watcher.settings.flags.items()
        },
        "profile": watcher.settings.profile.name,
        "journal": {
            "path": journal.store.path,
            "open": journal.ledger.open_count(),
            "waiting": journal.waiting(),
            "error": journal.error,
        },
        "quarantine": quarantine.documents(),
        "warnings": [
            *said,
            *(f"{why}: nothing is decided" for why in watcher.gate.other_cluster.values()),
            *failing(watcher.feed.states),
            *quarantine.lines(),
            *journal_warnings(journal),
        ],
        "residentBytes": resident_bytes(),
        "cpuSeconds": round(usage.ru_utime + usage.ru_stime, 3),
        "longestStallMilliseconds": round(watcher.slices.longest_s * 1000, 1),
        **more,
    }


def _kinds(watcher: DecisionTask) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "phase": state.phase,
            "objects": watcher.host.shown_count(kind),
            "error": state.error,
            "failures": state.failures,
            "nameless": state.nameless,
            "retrySeconds": retry_seconds(state),
        }
        for kind, state in watcher.feed.states.items()
    ]


def _since(then_ns: int, now_ns: int) -> float | None:
    return round(max(0, now_ns - then_ns) / SECOND_NS, 3) if then_ns else None


def resident_bytes() -> int:
    """The memory that is resident now; where the system does not say, the most that ever was."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def up_seconds(began: float) -> float:
    """Since `began` (monotonic)."""
    return round(time.monotonic() - began, 1)
