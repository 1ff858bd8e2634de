"""`upgrade status`: how a run stands, from the nodes' annotations and the run's Lease alone.

Anybody who may read nodes and that Lease gets the same answer, on any machine, whether or not a
leader is there. What only the leader can know (gates, what a node waits for) it has written on the
Lease with its last renewal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.controllers.upgrade.availability import why_unavailable
from kubectl_nodelife.controllers.upgrade.counts import CountedNode, NodeCounts, limits_of
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
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_from
from kubectl_nodelife.controllers.upgrade.selection import is_control_plane, pool_name, zone_name
from kubectl_nodelife.controllers.upgrade.windows import closes_ns, opens_ns, parse_window
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time, parse_time

NO_RUN: Final = "None"
GONE: Final = "Gone"
Json = dict[str, Any]


def upgrade_status(
    nodes: Iterable[Node],
    lease: Lease | None,
    now_ns: int,
    source: Json,
    names: Collection[str] = (),
) -> Json:
    """The UpgradeStatus. `now_ns`: the API server's time. `names`: only these nodes, if any."""
    warnings: list[str] = []
    run = _document(lease, warnings)
    policy = _policy(run, warnings)
    present = sorted(nodes, key=lambda node: node.name)
    marks = _marks(present, warnings)
    said = report_on(lease) if run is not None and run.phase not in OVER else LeaderReport()
    rows = [
        _node(node, marks[node.name], policy, now_ns, said)
        for node in present
        if node.name in marks
    ]
    rows += _gone(run, {node.name for node in present})
    rows += _given_back(run, marks)
    if names:
        rows = [row for row in rows if row["name"] in names]
    return document(
        "UpgradeStatus",
        source=source,
        run=run.run if run is not None else "",
        phase=str(run.phase) if run is not None else NO_RUN,
        because=run.because if run is not None else "",
        leader=_leader(lease, now_ns),
        wish=_wish(lease, warnings),
        step=_step(run),
        budgets=_budgets(run, policy, present, marks),
        gates=_gates(run, policy, now_ns, said),
        holds=[{"what": what, "because": why} for what, why in said.holds.items()],
        skipped=[{"name": name, "because": why} for name, why in said.skipped.items()],
        counts=dict(sorted(Counter(row["state"] for row in rows).items())),
        nodes=rows,
        failures=sorted(run.failed) if run is not None else [],
        warnings=warnings,
    )


def has_trouble(status: Json) -> bool:
    """Whether `--exit-code` is to say so: Paused, a node Failed or Held, or gate `proof`."""
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
        return policy_from(run.spec)
    except BadInput as error:
        warnings.append(f"the run's policy cannot be read: {error}")
        return None


def _marks(nodes: Iterable[Node], warnings: list[str]) -> dict[str, NodeMark | None]:
    """The marks by node; None where one is there and cannot be read."""
    marks: dict[str, NodeMark | None] = {}
    for node in nodes:
        try:
            mark = mark_of(node)
        except UnreadableMark as error:
            marks[node.name] = None
            warnings.append(f"node {node.name}: its annotation cannot be read: {error}")
        else:
            if mark is not None:
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
    if run is None:
        return None
    step = run.step
    return {"pool": step.pool, "k": step.k, "window": step.window, "nodes": sorted(step.nodes)}


def _node(
    node: Node,
    mark: NodeMark | None,
    policy: UpgradePolicy | None,
    now_ns: int,
    said: LeaderReport,
) -> Json:
    pool, zone = _place(node, policy)
    row: Json = {"name": node.name, "pool": pool, "zone": zone}
    if mark is None:
        return {**row, "state": "Unreadable", "because": "its annotation cannot be read"}
    return {
        **row,
        "state": str(mark.state),
        "run": mark.run,
        "try": mark.try_,
        "cordon": str(mark.cordon),
        "sinceSeconds": _seconds(now_ns, mark.since),
        "deadlineSeconds": _seconds_until(now_ns, mark.deadline),
        "because": said.waits.get(node.name) or mark.reason,
        "for": mark.for_ or None,
    }


def _gone(run: RunDocument | None, present: Collection[str]) -> list[Json]:
    """Nodes that the run has in work, and whose objects are not there."""
    nodes = run.step.nodes if run is not None else {}
    return [
        {
            "name": name,
            "pool": node.pool,
            "zone": node.zone,
            "state": GONE,
            "because": "its object is gone; waiting for its newcomer",
        }
        for name, node in sorted(nodes.items())
        if node.mark is not None and name not in present
    ]


def _given_back(run: RunDocument | None, marks: Mapping[str, object]) -> list[Json]:
    given = run.given_back if run is not None else {}
    return [
        {"name": name, "pool": "", "zone": "", "state": "Skipped", "because": because}
        for name, because in sorted(given.items())
        if name not in marks
    ]


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
    pool, zone = _place(node, policy)
    return CountedNode(
        node.name,
        pool,
        zone,
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
        found.append({"gate": "paused", "because": run.because})
    if policy is not None and policy.window:
        windows = [parse_window(text) for text in policy.window]
        if closes_ns(windows, now_ns) is None:
            opens = opens_ns(windows, now_ns)
            until = f"; the next opens {format_time(opens)}" if opens is not None else ""
            found.append({"gate": "window", "because": f"no window is open{until}"})
    told = {"paused", "window"}
    return found + [
        {"gate": gate, "because": why} for gate, why in said.gates.items() if gate not in told
    ]


def _place(node: Node, policy: UpgradePolicy | None) -> tuple[str, str]:
    return pool_name(node, policy or UpgradePolicy()), zone_name(node)


def _seconds(now_ns: int, then: str) -> int | None:
    return (now_ns - parse_time(then)) // SECOND_NS if then else None


def _seconds_until(now_ns: int, then: str) -> int | None:
    return (parse_time(then) - now_ns) // SECOND_NS if then else None
