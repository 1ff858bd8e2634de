"""Why a node is not a candidate. Skipped is computed in each pass, and never written."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.availability import foreign_mark
from kubectl_nodelife.controllers.upgrade.marks import LABEL_HOLD, NodeState
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.controllers.upgrade.settling import is_ready
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time

AT_TARGET: Final = "is there already"
CORDONED: Final = "cordoned by others"
LOOKED_AT_NS: Final = 10 * MINUTE_NS
LOOKED_AT_AGAIN_NS: Final = 60 * SECOND_NS
CLAIMABLE: Final = frozenset({"ready", "slow"})


def why_skipped(p: UpgradePass, node: Node) -> str:
    """Why the node is not taken, whatever the drain planner says; "" where it may be."""
    name, meta = node.name, node.metadata
    if name in p.strangers:
        return p.strangers[name]
    if not p.document.proof_only and p.policy.is_target_met(node, ""):
        return AT_TARGET
    if name in p.document.given_back:
        return p.document.given_back[name]
    if LABEL_HOLD in (meta.labels or {}):
        return f"label {LABEL_HOLD}"
    foreign = foreign_mark(node)
    if foreign:
        return foreign
    if node.spec.unschedulable and not p.policy.include_cordoned:
        return CORDONED
    if p.policy.unhealthy != "include":
        sick = is_ready(node) or ("" if p.census.is_fresh(name) else "its Lease is not renewed")
        if sick:
            return f"unhealthy: {sick}"
    if _is_too_new(p, node):
        return "made after the start of the run, which has no target"
    return ""


def _is_too_new(p: UpgradePass, node: Node) -> bool:
    """Without a target a node that came later may be what the upgrade brings about."""
    born = node.metadata.creation_timestamp
    if p.policy.target or p.document.proof_only or born is None or not p.document.started:
        return False
    return born > parse_time(p.document.started)


def drain_cost(p: UpgradePass, name: str) -> DrainVerdict:
    """What the drain planner says, from memory where that is young enough for an order."""
    known = p.memory.costs.get(name)
    if known is not None:
        at_ns, verdict = known
        good = verdict.verdict in CLAIMABLE and not verdict.waits
        if p.now_ns - at_ns < (LOOKED_AT_NS if good else LOOKED_AT_AGAIN_NS):
            return verdict
    return ask_planner(p, name)


def ask_planner(p: UpgradePass, name: str) -> DrainVerdict:
    """What the drain planner says now, given the nodes Draining."""
    draining = [other for other in p.names_in(NodeState.DRAINING) if other != name]
    draining += [other for other in p.claimed if other != name]
    verdict = p.ports.drains.verdict(p.cache, name, draining, p.now_ns)
    p.memory.costs[name] = (p.now_ns, verdict)
    return verdict


def undrainable(p: UpgradePass, verdict: DrainVerdict) -> str:
    """Why the planner's word makes the node no candidate; "" where it is one."""
    if verdict.verdict in CLAIMABLE:
        return ""
    if verdict.verdict == "unknown" and p.policy.accept_unknown:
        return ""
    return verdict.sentence or f"the drain planner says {verdict.verdict}"
