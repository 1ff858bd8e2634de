"""`upgrade status`: how a run stands, from the nodes' annotations and the run's Lease alone.

Anybody who may read nodes and that Lease gets the same answer, on any machine, whether or not a
leader is there. What only the leader can know (gates, what a node waits for) it has written on the
Lease with its last renewal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.answers.upgrade_nodes import CheckEvidence, RunNodes, seconds_since
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
    wish_of,
)
from kubectl_nodelife.controllers.upgrade.leader_report import LeaderReport, report_on
from kubectl_nodelife.controllers.upgrade.marks import (
    TAKEN,
    NodeMark,
    NodeState,
    UnreadableMark,
    is_beyond_epoch,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_of_spec
from kubectl_nodelife.controllers.upgrade.selection import is_control_plane, pool_name, zone_name
from kubectl_nodelife.controllers.upgrade.windows import closes_ns, opens_ns, parse_window
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.upgrade.remaining import remaining_time

NO_RUN: Final = "None"
Json = dict[str, Any]


def upgrade_status(
    nodes: Iterable[Node],
    lease: Lease | None,
    now_ns: int,
    source: Json,
    names: Collection[str] = (),
    evidence: CheckEvidence | None = None,
) -> Json:
    """The UpgradeStatus. `now_ns`: the API server's time. `names`: only these nodes, if any.

    `evidence`: what was read for the nodes' checks. Raises NotFound for a name that nothing has.
    """
    warnings: list[str] = []
    run = _document(lease, warnings)
    policy = _policy(run, warnings)
    present = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
    marks = _marks(present.values(), run, lease, warnings)
    leader = _leader(lease, now_ns)
    said = _report(run, lease, is_led=leader["alive"])
    settings = make_settings("newest")
    view = RunNodes(
        present, marks, run, policy, said, leader["alive"], now_ns, lease, settings, evidence
    )
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
        leader=leader,
        wish=_wish(lease, warnings),
        step=_step(run),
        budgets=_budgets(run, policy, list(present.values()), marks),
        gates=_gates(run, policy, now_ns, said),
        holds=[{"what": what, "because": why} for what, why in said.holds.items()],
        counts=dict(sorted(Counter(row["state"] for row in every).items())),
        nodes=rows,
        estimate=_estimate(view, leader["alive"]),
        lowest=_lowest(said),
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


def _document(lease: Lease | None, warnings: list[str]) -> RunDocument | None:
    try:
        return document_of(lease)
    except UnreadableDocument as error:
        warnings.append(f"the run's document on its Lease cannot be read: {error}")
        return None


def _wish(lease: Lease | None, warnings: list[str]) -> Json | None:
    try:
        wish = wish_of(lease)
    except UnreadableDocument as error:
        warnings.append(f"what is asked of the leader cannot be read: {error}")
        return None
    return None if wish is None else {"verb": str(wish.verb), "because": wish.because}


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


def _leader(lease: Lease | None, now_ns: int) -> Json:
    """Who leads, or since when nobody does. Whether a holder still lives only watching tells."""
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
    run: RunDocument | None, policy: UpgradePolicy | None, now_ns: int, said: LeaderReport
) -> list[Json]:
    """The gates that hold: pause and window as Lease and clock tell, the others as was said."""
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
    ago = seconds_since(now_ns, said.at)
    return found + [
        {"gate": gate, "because": why, "toldSecondsAgo": ago}
        for gate, why in said.gates.items()
        if gate not in ("paused", "window")
    ]


def _report(run: RunDocument | None, lease: Lease | None, *, is_led: bool) -> LeaderReport:
    """The part of the last report on this run that still holds. Of a run that is over only the low
    points do; of a leader that went its gates and holds do not, and what nodes waited for is its
    last.
    """
    said = report_on(lease)
    if run is None or (said.run and said.run != run.run):
        return LeaderReport()
    if run.phase in OVER:
        return LeaderReport(run=run.run, lowest=said.lowest)
    if is_led:
        return said
    last = {name: f"before its leader went: {text}" for name, text in said.waits.items()}
    return replace(said, gates={}, holds={}, waits=last)


def _lowest(said: LeaderReport) -> Json:
    """The fewest nodes that were available in each scope, as the leaders saw it."""

    lows = {
        scope_of(key): {"available": available, "at": at}
        for key, (available, at) in said.lowest.items()
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


def _estimate(view: RunNodes, is_led: bool) -> Json | None:
    """How long the run still takes; None where it is over, or its policy cannot be read."""
    run, policy = view.run, view.policy
    if run is None or policy is None or run.phase in OVER or run.proof_only:
        return None
    marks = {name: mark for name, mark in view.marks.items() if mark is not None}
    waiting = view.waiting() if run.phase is not RunPhase.ABORTING else []
    drain_seconds, now_ns = view.said.drain_seconds, view.now_ns
    left = remaining_time(
        run, policy, view.nodes, marks, waiting, drain_seconds, now_ns, view.settings
    )
    if left is None:
        return None
    since = "now" if is_led else "when a leader goes on"
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
    """Sentences on what is unknown to those who only read."""
    run = view.run
    if run is None or run.phase in OVER:
        return
    yield "whether each node's Lease is renewed: only a leader watches; the numbers rest on Ready"
    if not view.is_led:
        yield (
            "gates blind, zone, displaced, proof and command, what each node waits for, and what"
            " holds a claim are unknown: no leader answers"
        )
    elif not view.said.at:
        yield "gates, and what nodes wait for: the leader has reported nothing so far"
    for kind, why in view.evidence.unread.items() if view.evidence is not None else ():
        yield f"checks that need {kind}: {why}"
