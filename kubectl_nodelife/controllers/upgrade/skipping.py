"""Why a node is not a candidate. Skipped is computed in each pass, and never written."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.marks import (
    NodeState,
    has_our_cordon,
    left_by_another,
)
from kubectl_nodelife.controllers.upgrade.memory import KnownCost
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.controllers.upgrade.selection import why_skipped, why_too_few, why_undrainable
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time

LOOKED_AT_NS: Final = 10 * MINUTE_NS
LOOKED_AT_AGAIN_NS: Final = 60 * SECOND_NS
REFILLS_NS: Final = 10 * SECOND_NS
"""A budget that is at zero now refills within seconds, once a replacement is Ready."""

CLAIMABLE: Final = frozenset({"ready", "slow"})


def why_no_candidate(p: UpgradePass, node: Node) -> str:
    """Why the node is not taken, whatever the drain planner says; "" where it may be."""
    name = node.name
    if name in p.strangers:
        return p.strangers[name]
    if name in p.document.given_back:
        return p.document.given_back[name]
    if p.document.proof_only and name in p.document.failed:
        return "not proven"
    policy, is_fresh = p.policy, p.fleet.is_fresh(name)
    if p.document.proof_only:  # on nodes as they are: what is not Ready is waited for
        left = left_by_another(node, p.document.run)
        ours = left is not None and has_our_cordon(node, left)
        policy = replace(policy, target=(), unhealthy="include", include_cordoned=ours)
    if is_fresh and policy is p.policy:
        why = p.readings[name].skipped
    else:
        why = why_skipped(node, policy, lease_is_fresh=is_fresh)
    if not why and p.readings[name].is_control_plane and not p.document.proof_only:
        why = why_too_few(p.control_planes)
    if not why and _is_too_new(p, node):
        return "made after the start of the run, which has no target"
    return why


def _is_too_new(p: UpgradePass, node: Node) -> bool:
    """Without a target a node that came later may be what the upgrade brings about."""
    born = node.metadata.creation_timestamp
    if p.policy.target or p.document.proof_only or born is None or not p.document.started:
        return False
    return born > parse_time(p.document.started)


def drain_cost(p: UpgradePass, candidate: UpgradeCandidate) -> KnownCost:
    """The drain planner's verdict, from memory where that is young enough for an order."""
    name, costs = candidate.name, p.memory.costs
    known = costs.get(name)
    if known is None or p.now_ns >= known.until_ns:
        ask_planner(p, name)
        known = costs[name]
    if known.asked is not candidate:
        found = known.verdict
        seconds, pods = found.high_seconds, len(found.moving)
        priced = candidate._replace(verdict=found.verdict, drain_seconds=seconds, moving_pods=pods)
        known = costs[name] = known._replace(asked=candidate, priced=priced)
    return known


def _good_for_ns(verdict: DrainVerdict) -> int:
    if verdict.waits:
        return REFILLS_NS
    return LOOKED_AT_NS if verdict.verdict in CLAIMABLE else LOOKED_AT_AGAIN_NS


def ask_planner(p: UpgradePass, name: str) -> DrainVerdict:
    """The drain planner's verdict now, given the nodes Draining; it is remembered."""
    draining = [other for other in p.names_in(NodeState.DRAINING) if other != name]
    draining += [other for other in p.claimed if other != name]
    verdict = p.ports.drains.verdict(p.cache, name, draining, p.now_ns)
    p.memory.costs[name] = KnownCost(
        p.now_ns + _good_for_ns(verdict), verdict, why_undrainable(verdict, p.policy)
    )
    return verdict
