"""The engine of the process that leads a run, with the upgrade controller alone in it, and the
report on its last pass.

A leader takes in events as it receives them, and decides when it may: a live one
(`acts/upgrade/leader.py`) once its gate, Lease and limits allow, a simulated one
(`sim/upgrade_run.py`) once the API server has sent its watches all of an instant. What a leader
does with a decision, and where its events come from, is its own.

The report is kept on the run's Lease, for `upgrade status`. Nothing is decided by it. It costs no
write of its own, and may be as old as the last renewal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import median_low
from typing import Final

import msgspec

from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.gates import BLIND
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.ports import HostState
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions.identity import ActionNumbers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine, OnBug
from kubectl_nodelife.engine.events import Event
from kubectl_nodelife.kube.decode import UNDECODABLE
from kubectl_nodelife.kube.node import Lease


class LeaderEngine:
    """See the module. `join`: the controller goes on with what another leader has begun."""

    def __init__(
        self,
        controller: UpgradeController,
        cache: Cache,
        *,
        join: bool = False,
        on_bug: OnBug | None = None,
        numbers: ActionNumbers | None = None,
    ) -> None:
        self.controller = controller
        self.cache = cache
        self._engine = Engine([controller], cache, join=join, on_bug=on_bug, numbers=numbers)

    def next_due(self) -> int | None:
        """The instant of the next pass, or None."""
        return self._engine.next_due()

    def take_in(self, events: Iterable[Event], now_ns: int) -> None:
        """Bring what happened into the cache and to the controller, which decides later."""
        self._engine.timers_wait = True
        deque(self._engine.turns(now_ns, events), maxlen=0)

    def wake(self, now_ns: int) -> None:
        """Ask for a pass, since something changed that is no object of the cluster."""
        for requeue in self.controller.wake(now_ns):
            self._engine.wake(requeue)

    def decide(self, host: HostState, now_ns: int) -> Iterator[Sequence[Action]]:
        """The decisions of the pass that is due, if one is. `host`: what the leader knows now."""
        self.controller.host = host
        self._engine.timers_wait = False
        return self._engine.turns(now_ns, ())


ANNOTATION_REPORT: Final = "nodelife.dev/upgrade-report"
REPORT_LIMIT: Final = 96 * 1024
"""In bytes: all annotations of an object together may have 256 KiB, the run's document half."""
MOST_NODES: Final = 100
MOST_WORDS: Final = 300
_NOTHING_MORE: Final = (NodeState.DONE, NodeState.FAILED, NodeState.HELD)


class LeaderReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`run`: of which run. `gates`: those that hold, and why. `waits`: node in flight -> what is
    waited for.

    `holds`: node or step -> why it is not claimed or does not go on yet. `skipped`: node -> why it
    is not upgraded. `lowest`: scope (`NodeScope.key`) -> the fewest nodes that were available in it
    during the run, and when. `drain_seconds`: how long the drain of a node still to be claimed
    takes, the median. `at`: RFC 3339, the API server's clock.
    """

    run: str = ""
    at: str = ""
    gates: dict[str, str] = {}
    waits: dict[str, str] = {}
    holds: dict[str, str] = {}
    skipped: dict[str, str] = {}
    lowest: dict[str, tuple[int, str]] = {}
    drain_seconds: float | None = None


def report_of(p: UpgradePass) -> LeaderReport:
    """The report on a pass; of many nodes the first hundred."""
    progress_of = p.memory.nodes
    waits = {
        name: progress_of[name].waits_for
        for name, mark in p.marks.items()
        if mark.state not in _NOTHING_MORE and name in progress_of and progress_of[name].waits_for
    }
    holds = {name: f"{what}: {why}" if why else what for name, (what, why) in p.holds.items()}
    known = p.memory.costs.items()
    costs = [cost.verdict.high_seconds for name, cost in known if name not in p.marks]
    return LeaderReport(
        p.document.run,
        p.stamp,
        _cut(p.gates),
        _cut(waits),
        _cut(holds),
        _cut(p.skipped),
        _lowest(p),
        median_low(costs) if costs else None,
    )


def _lowest(p: UpgradePass) -> dict[str, tuple[int, str]]:
    """The low points so far, also of leaders before this one. While the leader is blind it has not
    seen every Lease renewed, and counts nodes as unavailable that are not.
    """
    known = p.memory.lowest
    report = report_on(p.lease)
    for key, low in report.lowest.items() if report.run == p.document.run else ():
        if key not in known or low[0] < known[key][0]:
            known[key] = low
    for scope in p.fleet.counts.scopes() if BLIND not in p.gates else ():
        available = p.fleet.counts.budget(scope).available
        if scope.key not in known or available < known[scope.key][0]:
            known[scope.key] = (available, p.stamp)
    return known


def encode_report(report: LeaderReport) -> str:
    """The annotation's text. It goes with each renewal of the Lease, which must not fail for it: a
    report that is too long contains the gates alone.
    """
    text = msgspec.json.encode(report)
    if len(text) > REPORT_LIMIT:
        gates = {gate: because[:MOST_WORDS] for gate, because in report.gates.items()}
        text = msgspec.json.encode(LeaderReport(at=report.at, gates=gates))
    return text.decode()


def report_on(lease: Lease | None) -> LeaderReport:
    """The leader's last report; an empty one where there is none, or none that can be read."""
    notes = lease.metadata.annotations if lease is not None else None
    try:
        return msgspec.json.decode((notes or {}).get(ANNOTATION_REPORT, "{}"), type=LeaderReport)
    except UNDECODABLE:
        return LeaderReport()


def _cut(found: dict[str, str]) -> dict[str, str]:
    return {name: text[:MOST_WORDS] for name, text in islice(found.items(), MOST_NODES)}
