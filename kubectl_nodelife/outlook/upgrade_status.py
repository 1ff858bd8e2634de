"""`upgrade status`: how a run stands, from the nodes' annotations and the run's Lease alone.

Anyone who may read nodes and that Lease gets the same answer, on any machine, whether or not a
leader is there. What only the leader can know (gates, what a node waits for) it has written on the
Lease with its last renewal. Of each node: its state, its clock, what it waits for, its checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    limits_of,
    scope_of,
    why_unavailable,
)
from kubectl_nodelife.controllers.upgrade.document import (
    OVER,
    RunDocument,
    RunPhase,
    UnreadableDocument,
    document_of,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.fleet_counts import NodeReadings
from kubectl_nodelife.controllers.upgrade.leader import LeaderReport, report_on
from kubectl_nodelife.controllers.upgrade.marks import (
    TAKEN,
    NodeMark,
    NodeState,
    UnreadableMark,
    is_beyond_epoch,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.memory import UpgradeMemory
from kubectl_nodelife.controllers.upgrade.policy import (
    UpgradePolicy,
    closes_ns,
    opens_ns,
    parse_window,
    policy_of_spec,
)
from kubectl_nodelife.controllers.upgrade.ports import HostState, UpgradePorts
from kubectl_nodelife.controllers.upgrade.selection import (
    is_control_plane,
    is_selected,
    pool_name,
    why_skipped,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.settling import SHOWS, WAITS, checks_of
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.document import document
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.errors import BadInput, Failed, NotFound
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time, parse_time
from kubectl_nodelife.sim.run import Progress
from kubectl_nodelife.upgrade.forecast import PlayGivenUp, RunUnderWay, remaining_time
from kubectl_nodelife.upgrade.ports import make_ports

NO_RUN: Final = "None"
Json = dict[str, Any]


GONE: Final = "Gone"
SKIPPED: Final = "Skipped"
WAITING: Final = "Waiting"
UNREADABLE: Final = "Unreadable"
NOT_SELECTED: Final = "NotSelected"
CHECKED: Final = frozenset({NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING})
"""The states that have checks."""


def upgrade_status(
    nodes: Iterable[Node],
    lease: Lease | None,
    now_ns: int,
    source: Json,
    names: Collection[str] = (),
    evidence: CheckEvidence | None = None,
    *,
    progress: Progress | None = lambda done: None,
) -> Json:
    """The UpgradeStatus. `now_ns`: the API server's time. `names`: only these nodes, if any.
    `evidence`: what was read for the nodes' checks. `progress`: is called while the rest of the
    run is played, some 5 ms a node; None: it is not. Raises NotFound for a name that nothing has.
    """
    warnings: list[str] = []
    view = _nodes_of_run(nodes, lease, now_ns, evidence, warnings)
    run, policy, report, present = view.run, view.policy, view.report, view.nodes
    every = view.rows()
    rows = view.rows(names) if names else every
    for name in names:
        if all(row["name"] != name for row in rows):
            raise NotFound("nodes", name, among=present)
    return document(
        "UpgradeStatus",
        source=source,
        run=run.run if run is not None else "",
        phase=str(run.phase) if run is not None else NO_RUN,
        because=run.because if run is not None else "",
        leader=_leader(lease, now_ns),
        request=_request(lease, warnings),
        step=_step(run),
        budgets=_budgets(run, policy, list(present.values()), view.marks),
        gates=_gates(run, policy, now_ns, report),
        holds=[{"what": what, "because": why} for what, why in report.holds.items()],
        counts=dict(sorted(Counter(row["state"] for row in every).items())),
        nodes=rows,
        estimate=_estimate(view, progress, warnings),
        lowest=_lowest(report),
        failures=sorted(run.failed) if run is not None else [],
        notEvaluated=list(_not_evaluated(view)),
        warnings=warnings,
    )


def policy_on(lease: Lease | None) -> UpgradePolicy:
    """The policy of the run on the Lease; the default where there is none that can be read."""
    return _policy(_document(lease, []), []) or UpgradePolicy()


def has_trouble(status: Json) -> bool:
    """True if `--exit-code` is to say so: Paused, a node Failed or Held, or gate `proof`."""
    bad = {str(NodeState.FAILED), str(NodeState.HELD)}
    return (
        status["phase"] == RunPhase.PAUSED
        or any(node["state"] in bad for node in status["nodes"])
        or any(gate["gate"] == "proof" for gate in status["gates"])
    )


def _nodes_of_run(
    nodes: Iterable[Node],
    lease: Lease | None,
    now_ns: int,
    evidence: CheckEvidence | None,
    warnings: list[str],
) -> RunNodes:
    """The run as nodes and Lease show it. `warnings` gets what cannot be read."""
    run = _document(lease, warnings)
    policy = _policy(run, warnings)
    present = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
    marks = _marks(present.values(), run, lease, warnings)
    of_others = _of_other_runs(marks, run)
    is_led = _leader(lease, now_ns)["alive"]
    return RunNodes(
        nodes=present,
        marks=marks,
        of_others=of_others,
        run=run,
        policy=policy,
        report=_report(run, lease, is_led=is_led),
        is_led=is_led,
        now_ns=now_ns,
        lease=lease,
        settings=make_settings("newest"),
        evidence=evidence,
    )


def _document(lease: Lease | None, warnings: list[str]) -> RunDocument | None:
    try:
        return document_of(lease)
    except UnreadableDocument as error:
        warnings.append(f"the run's document on its Lease cannot be read: {error}")
        return None


def _request(lease: Lease | None, warnings: list[str]) -> Json | None:
    try:
        request = request_on(lease)
    except UnreadableDocument as error:
        warnings.append(f"what is asked of the leader cannot be read: {error}")
        return None
    return None if request is None else {"verb": str(request.verb), "because": request.because}


def _policy(run: RunDocument | None, warnings: list[str]) -> UpgradePolicy | None:
    if run is None or not run.spec:
        return None
    try:
        return policy_of_spec(run.spec)
    except BadInput as error:
        warnings.append(f"the run's policy cannot be read: {error}")
        return None


def _marks(
    nodes: Iterable[Node], run: RunDocument | None, lease: Lease | None, warnings: list[str]
) -> dict[str, NodeMark | None]:
    """The marks by node; None where one is there and cannot be read.

    One of an epoch that the Lease has not come to is no leader's: its node is shown as Held.
    """
    marks: dict[str, NodeMark | None] = {}
    led = (lease.spec.lease_transitions or 0) if lease is not None else 0
    for node in nodes:
        try:
            mark = mark_of(node)
        except UnreadableMark as error:
            marks[node.name] = None
            warnings.append(f"node {node.name}: its annotation cannot be read: {error}")
        else:
            if mark is None:
                continue
            if run is not None and is_beyond_epoch(mark, run.run, led):
                because = f"its annotation has epoch {mark.epoch}, and the run's Lease is at {led}"
                mark = replace(mark, state=NodeState.HELD, reason=f"forged, or foreign: {because}")
            marks[node.name] = mark
    return marks


def _of_other_runs(
    marks: dict[str, NodeMark | None], run: RunDocument | None
) -> dict[str, NodeMark]:
    """Take the marks of other runs out of these: the run under way leaves their nodes alone. A
    proof alone takes up what an earlier run left.
    """
    if run is None or run.phase in OVER or run.proof_only:
        return {}
    others = {n: mark for n, mark in marks.items() if mark is not None and mark.run != run.run}
    for name in others:
        del marks[name]
    return others


def _leader(lease: Lease | None, now_ns: int) -> Json:
    """The leader, or since when there is none. Only watching shows whether a holder still runs."""
    spec = lease.spec if lease is not None else None
    renewed = spec.renew_time if spec is not None else None
    silent_s = max(0, now_ns - renewed) // SECOND_NS if renewed is not None else None
    lasts = spec.lease_duration_seconds if spec is not None else None
    holder = (spec.holder_identity or "") if spec is not None else ""
    return {
        "holder": holder,
        "alive": bool(holder and silent_s is not None and lasts is not None and silent_s <= lasts),
        "renewedSecondsAgo": silent_s,
        "epoch": spec.lease_transitions if spec is not None else None,
    }


def _step(run: RunDocument | None) -> Json | None:
    """Where the growth is; None for no run, and for a proof alone, which has no steps."""
    if run is None or run.proof_only:
        return None
    step = run.step
    return {"pool": step.pool, "k": step.k, "window": step.window, "nodes": sorted(step.nodes)}


def _budgets(
    run: RunDocument | None,
    policy: UpgradePolicy | None,
    nodes: Sequence[Node],
    marks: Mapping[str, NodeMark | None],
) -> list[Json]:
    """The arithmetic of each scope as the leader does it, but for Leases that only it watches."""
    if run is None or policy is None or run.phase in OVER:
        return []
    counts = NodeCounts.of((_counted(node, marks, policy) for node in nodes), limits_of(policy))
    counts.begin_from(run.base_counts)
    return [
        {
            "scope": str(budget.scope),
            "base": budget.base,
            "available": budget.available,
            "unavailable": budget.unavailable,
            "floor": budget.floor,
            "mostUnavailable": budget.most_unavailable,
            "slots": budget.slots,
        }
        for budget in map(counts.budget, counts.scopes())
    ]


def _counted(
    node: Node, marks: Mapping[str, NodeMark | None], policy: UpgradePolicy
) -> CountedNode:
    mark = marks.get(node.name)
    return CountedNode(
        node.name,
        pool_name(node, policy),
        zone_name(node),
        why_unavailable(node),
        claimed=mark is not None and mark.state in TAKEN,
        control_plane=is_control_plane(node),
    )


def _gates(
    run: RunDocument | None, policy: UpgradePolicy | None, now_ns: int, report: LeaderReport
) -> list[Json]:
    """The gates that hold: pause and window by Lease and clock, the others as was reported."""
    found: list[Json] = []
    if run is None or run.phase in OVER:
        return found
    if run.phase is RunPhase.PAUSED:
        found.append({"gate": "paused", "because": run.because, "toldSecondsAgo": None})
    if policy is not None and policy.window:
        windows = [parse_window(text) for text in policy.window]
        if closes_ns(windows, now_ns) is None:
            opens = opens_ns(windows, now_ns)
            until = f"; the next opens {format_time(opens)}" if opens is not None else ""
            because = f"no window is open{until}"
            found.append({"gate": "window", "because": because, "toldSecondsAgo": None})
    ago = seconds_since(now_ns, report.at)
    return found + [
        {"gate": gate, "because": why, "toldSecondsAgo": ago}
        for gate, why in report.gates.items()
        if gate not in ("paused", "window")
    ]


def _report(run: RunDocument | None, lease: Lease | None, *, is_led: bool) -> LeaderReport:
    """The part of the last report on this run that still holds. Of a run that is over only the low
    points do; of a leader that went its gates and holds do not, and what nodes waited for is its
    last.
    """
    report = report_on(lease)
    if run is None or (report.run and report.run != run.run):
        return LeaderReport()
    if run.phase in OVER:
        return LeaderReport(run=run.run, lowest=report.lowest)
    if is_led:
        return report
    last = {name: f"before its leader went: {text}" for name, text in report.waits.items()}
    return replace(report, gates={}, holds={}, waits=last)


def _lowest(report: LeaderReport) -> Json:
    """The fewest nodes that were available in each scope, as the leaders saw it."""

    lows = {
        scope_of(key): {"available": available, "at": at}
        for key, (available, at) in report.lowest.items()
    }
    every = lows.get(CLUSTER, {})
    return {
        "all": every.get("available"),
        "at": every.get("at"),
        "byPool": {scope.pool: low for scope, low in lows.items() if scope.kind == "pool"},
        "byZone": {
            f"{scope.pool}/{scope.zone}": low for scope, low in lows.items() if scope.kind == "zone"
        },
    }


def _estimate(view: RunNodes, progress: Progress | None, warnings: list[str]) -> Json | None:
    """How long the run still takes; None where it is over, or its policy cannot be read, and where
    its rest cannot be played, which is said.
    """
    if progress is None:
        return None
    run, policy = view.run, view.policy
    if run is None or policy is None or run.phase in OVER or run.proof_only or view.lease is None:
        return None
    marks = {name: mark for name, mark in view.marks.items() if mark is not None}
    waiting = view.waiting() if run.phase is not RunPhase.ABORTING else []
    under_way = RunUnderWay(
        view.lease,
        run,
        policy,
        view.nodes,
        marks,
        waiting,
        view.report.drain_seconds,
        view.now_ns,
    )
    try:
        left = remaining_time(under_way, view.settings, progress)
    except (PlayGivenUp, Failed) as error:
        warnings.append(f"how long the run still takes is not evaluated: {error}")
        return None
    if left is None:
        return None
    since = "now" if view.is_led else "when a leader goes on"
    since = "when the run is resumed" if run.phase is RunPhase.PAUSED else since
    return {
        "nodes": left.nodes,
        "lowSeconds": round(left.low),
        "expectedSeconds": round(left.expected),
        "highSeconds": round(left.high),
        "from": since,
        "assumptions": left.rests_on,
    }


def _not_evaluated(view: RunNodes) -> Iterator[str]:
    """Sentences on what reading alone cannot show."""
    run = view.run
    if run is None or run.phase in OVER:
        return
    yield "whether each node's Lease is renewed: only a leader watches; the numbers rest on Ready"
    if not view.is_led:
        yield (
            "gates blind, zone, displaced, proof and command, what each node waits for, and what"
            " holds a claim are unknown: no leader answers"
        )
    elif not view.report.at:
        yield "gates, and what nodes wait for: the leader has reported nothing so far"
    for kind, why in view.evidence.unread.items() if view.evidence is not None else ():
        yield f"checks that need {kind}: {why}"


@dataclass(slots=True)
class CheckEvidence:
    """The objects that the checks of nodes rest on. `unread`: kinds that are missing, and why."""

    cache: Cache = field(default_factory=Cache)
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RunNodes:
    """The nodes of a run. `marks`: None for an annotation that cannot be read. `of_others`: the
    marks of other runs.

    `report`: the leader's last report; `is_led`: whether it still runs. `evidence` None: checks are
    not evaluated.
    """

    nodes: Mapping[str, Node]
    marks: Mapping[str, NodeMark | None]
    of_others: Mapping[str, NodeMark]
    run: RunDocument | None
    policy: UpgradePolicy | None
    report: LeaderReport
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
        for name, mark in self.of_others.items():
            because = f"{mark.state} in run {mark.run}; this run leaves it alone"
            yield self._row(name, SKIPPED, because) | {"run": mark.run}
        for name, why in self._unclaimed():
            held = self.report.holds.get(name, "its turn has not come")
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
            if name in self.marks or name in self.of_others:
                continue
            if name in run.given_back:
                yield name, run.given_back[name]
            elif not over and is_selected(node, policy):
                yield name, self.report.skipped.get(name) or why_skipped(node, policy)

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
        waits_for = self.report.waits.get(name, "") if self.report.at > mark.since else ""
        checks = []
        if checking is not None:
            reported = waits_for if self.is_led else ""
            checks = checks_of(checking, self.nodes[name], mark, reported)
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
        ports: UpgradePorts = make_ports(policy, self.settings)
        host = HostState(unread=tuple(evidence.unread))
        memory = UpgradeMemory(self.now_ns, NodeReadings(policy, ports.zones))
        return UpgradePass(
            *(evidence.cache, host, self.now_ns, policy, ports, memory, self.lease, run), epoch=0
        )


def has_checks(node: Node) -> bool:
    """True if the node is in a state that has checks."""
    try:
        mark = mark_of(node)
    except UnreadableMark:
        return False
    return mark is not None and mark.state in CHECKED


def seconds_since(now_ns: int, then: str) -> int | None:
    """How long ago an RFC 3339 instant was; None for none."""
    return (now_ns - parse_time(then)) // SECOND_NS if then else None


def _negative(seconds: int | None) -> int | None:
    return None if seconds is None else -seconds
