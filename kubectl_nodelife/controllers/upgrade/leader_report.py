"""What a leader says of its last pass on the run's Lease, with each renewal, for `upgrade status`.

Nothing is decided by it. It costs no write of its own, and may be as old as the last renewal.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Lease

ANNOTATION_REPORT: Final = "nodelife.dev/upgrade-report"
MOST_NODES: Final = 100
MOST_WORDS: Final = 300
_NOTHING_MORE: Final = (NodeState.DONE, NodeState.FAILED, NodeState.HELD)


class LeaderReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`gates`: those that hold, and why. `waits`: node in flight -> what is waited for.

    `holds`: node or step -> why it is not claimed or does not go on yet. `skipped`: node -> why it
    is not upgraded. `at`: RFC 3339, the API server's clock.
    """

    at: str = ""
    gates: dict[str, str] = {}
    waits: dict[str, str] = {}
    holds: dict[str, str] = {}
    skipped: dict[str, str] = {}


def report_of(p: UpgradePass) -> LeaderReport:
    """The report on a pass; of many nodes the first hundred."""
    sights = p.memory.nodes
    waits = {
        name: sights[name].waits_for
        for name, mark in p.marks.items()
        if mark.state not in _NOTHING_MORE and name in sights and sights[name].waits_for
    }
    holds = {name: f"{what}: {why}" if why else what for name, (what, why) in p.holds.items()}
    return LeaderReport(p.stamp, _cut(p.gates), _cut(waits), _cut(holds), _cut(p.skipped))


def encode_report(report: LeaderReport) -> str:
    """The annotation's text."""
    return msgspec.json.encode(report).decode()


def report_on(lease: Lease | None) -> LeaderReport:
    """What the leader said last; nothing where it said nothing, or nothing that can be read."""
    notes = lease.metadata.annotations if lease is not None else None
    try:
        return msgspec.json.decode((notes or {}).get(ANNOTATION_REPORT, "{}"), type=LeaderReport)
    except msgspec.DecodeError:
        return LeaderReport()


def _cut(found: dict[str, str]) -> dict[str, str]:
    return {name: text[:MOST_WORDS] for name, text in islice(found.items(), MOST_NODES)}
