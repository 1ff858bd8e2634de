"""The nodes of `upgrade status`: each with its state, its clock, what it waits for, its checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubectl_nodelife.controllers.upgrade.census import NodeReadings
from kubectl_nodelife.controllers.upgrade.document import OVER, RunDocument
from kubectl_nodelife.controllers.upgrade.leader_report import LeaderReport
from kubectl_nodelife.controllers.upgrade.marks import (
    NodeMark,
    NodeState,
    UnreadableMark,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts, UpgradeView
from kubectl_nodelife.controllers.upgrade.selection import (
    is_selected,
    pool_name,
    why_skipped,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.settling import SHOWS, WAITS, checks_of
from kubectl_nodelife.controllers.upgrade.sightings import UpgradeMemory
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.upgrade.ports import make_ports

GONE: Final = "Gone"
SKIPPED: Final = "Skipped"
WAITING: Final = "Waiting"
UNREADABLE: Final = "Unreadable"
NOT_SELECTED: Final = "NotSelected"
CHECKED: Final = frozenset({NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING})
"""The states that have checks."""

Json = dict[str, Any]


@dataclass(slots=True)
class CheckEvidence:
    """The objects that the checks of nodes rest on. `unread`: kinds that are missing, and why."""

    cache: Cache = field(default_factory=Cache)
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RunNodes:
    """The nodes of a run. `marks`: None for an annotation that cannot be read.

    `said`: what the leader told last; `is_led`: whether it still lives. `evidence` None: checks are
    not evaluated.
    """

    nodes: Mapping[str, Node]
    marks: Mapping[str, NodeMark | None]
    run: RunDocument | None
    policy: UpgradePolicy | None
    said: LeaderReport
    is_led: bool
    now_ns: int
    lease: Lease | None
    settings: Settings
    evidence: CheckEvidence | None = None

    def rows(self, names: Collection[str] = ()) -> list[Json]:
        """A row for each node that the run is about, or for each of these."""
        rows = {row["name"]: row for row in self._rows()}
        if not names:
            return [rows[name] for name in sorted(rows)]
        for name in names:
            if name not in rows and name in self.nodes:
                because = "the run is not about this node" if self.run else "no run is under way"
                rows[name] = self._row(name, NOT_SELECTED, because)
        return [rows[name] for name in sorted(rows) if name in names]

    def waiting(self) -> list[str]:
        """The nodes that are still to be claimed."""
        return [name for name, why in self._unclaimed() if not why]

    def _rows(self) -> Iterator[Json]:
        checking = self._pass()
        for name, mark in self.marks.items():
            if mark is None:
                yield self._row(name, UNREADABLE, "its annotation cannot be read")
            else:
                yield self._marked(name, mark, checking)
        for name, why in self._unclaimed():
            held = self.said.holds.get(name, "its turn has not come")
            yield self._row(name, SKIPPED if why else WAITING, why or held)
        run = self.run
        for name, entry in run.step.nodes.items() if run is not None else ():
            if entry.mark is not None and name not in self.nodes:
                row = self._row(name, GONE, "its object is gone; waiting for its newcomer")
                yield row | {"pool": entry.pool, "zone": entry.zone}

    def _unclaimed(self) -> Iterator[tuple[str, str]]:
        """The nodes without a mark of the run, and why each is left out; "" for one that waits."""
        run, policy = self.run, self.policy
        if run is None or policy is None:
            return
        over = run.phase in OVER
        for name, node in self.nodes.items():
            if name in self.marks:
                continue
            if name in run.given_back:
                yield name, run.given_back[name]
            elif not over and is_selected(node, policy):
                yield name, self.said.skipped.get(name) or why_skipped(node, policy)

    def _row(self, name: str, state: str, because: str) -> Json:
        node = self.nodes.get(name)
        policy = self.policy or UpgradePolicy()
        return {
            "name": name,
            "pool": pool_name(node, policy) if node is not None else "",
            "zone": zone_name(node) if node is not None else "",
            "state": state,
            "sinceSeconds": None,
            "deadlineSeconds": None,
            "because": because,
            "checks": [],
        }

    def _marked(self, name: str, mark: NodeMark, checking: UpgradePass | None) -> Json:
        waits_for = self.said.waits.get(name, "") if self.said.at > mark.since else ""
        checks = []
        if checking is not None:
            said = waits_for if self.is_led else ""
            checks = checks_of(checking, self.nodes[name], mark, said)
        waiting = [f"{c.check}: {c.because}" for c in checks if c.result == WAITS]
        because = waits_for or mark.reason or next(iter(waiting), "")
        return self._row(name, str(mark.state), because) | {
            "sinceSeconds": seconds_since(self.now_ns, mark.since),
            "deadlineSeconds": _negative(seconds_since(self.now_ns, mark.deadline)),
            "checks": [{**check._asdict(), "shows": SHOWS[check.check]} for check in checks],
            "run": mark.run,
            "try": mark.try_,
            "cordon": str(mark.cordon),
            "for": mark.for_ or None,
        }

    def _pass(self) -> UpgradePass | None:
        """A pass of the controller over what was read, of which nothing is carried out."""
        evidence, run, policy = self.evidence, self.run, self.policy
        if evidence is None or run is None or policy is None or self.lease is None:
            return None
        ports: UpgradePorts = make_ports(policy, self.settings, _NoImages())
        view = UpgradeView(
            cache=evidence.cache, clock_ns=self.now_ns, unread=tuple(evidence.unread)
        )
        memory = UpgradeMemory(self.now_ns, NodeReadings(policy, ports.zones))
        return UpgradePass(view, self.now_ns, policy, ports, memory, self.lease, run, 0)


def has_checks(node: Node) -> bool:
    """True if the node is in a state that has checks."""
    try:
        mark = mark_of(node)
    except UnreadableMark:
        return False
    return mark is not None and mark.state in CHECKED


class _NoImages:
    """No canary is made by those who look on."""

    def image_for(self, cache: Cache, node: Node) -> str:
        """None is known."""
        return ""


def seconds_since(now_ns: int, then: str) -> int | None:
    """How long ago an RFC 3339 instant was; None for none."""
    return (now_ns - parse_time(then)) // SECOND_NS if then else None


def _negative(seconds: int | None) -> int | None:
    return None if seconds is None else -seconds
