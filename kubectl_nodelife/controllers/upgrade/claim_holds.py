"""What holds the claim of one node: gates, slots, its zone, its pods' budgets, room, the window."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.expected import high_estimate_ns
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.ports import PodKey
from kubectl_nodelife.controllers.upgrade.selection import is_control_plane
from kubectl_nodelife.controllers.upgrade.settling import is_ready
from kubectl_nodelife.controllers.upgrade.skipping import ask_planner
from kubectl_nodelife.controllers.upgrade.skips import why_undrainable
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.controllers.upgrade.windows import fits, parse_window
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS

CONTROL_PLANE: Final = "control plane"
BY_ROOM: Final = "room"


def hold_of(p: UpgradePass, candidate: UpgradeCandidate) -> tuple[str, str] | None:
    """What holds the claim of a named node now: (by what, why); None where nothing does."""
    if p.document.proof_only:
        return next(iter(p.gates.items()), None)
    because = p.census.counts.hold(candidate.name)
    if because:
        return ("slots", because)
    found = what_else_holds(p, candidate)
    return (found.by, found.because) if found else None


def what_else_holds(p: UpgradePass, candidate: UpgradeCandidate) -> ClaimHold | None:
    """What beside the slots holds a claim: gates, zone, budgets, room, the window."""
    name, node = candidate.name, p.nodes[candidate.name]
    for gate, because in p.gates.items():
        return ClaimHold(gate, because)
    if p.lacks_work:
        return ClaimHold("work", p.lacks_work)
    if node.spec.unschedulable and p.census.slots_of(name) < 1:
        return ClaimHold("slots", "cordoned nodes do not go first where no slot is free")
    because = _control_plane_hold(p, node) or p.census.zone_hold(name)
    if because:
        return ClaimHold("zone" if not is_control_plane(node) else CONTROL_PLANE, because)
    verdict = ask_planner(p, name)
    why = why_undrainable(verdict, p.policy)
    if why or verdict.waits:
        return ClaimHold("budget", why or verdict.sentence)
    short = p.ports.room.shortage(p.cache, name, verdict.moving, _leaving(p), p.now_ns)
    if short:
        return ClaimHold(BY_ROOM, short)
    windows = [parse_window(text) for text in p.policy.window]
    high_ns = high_estimate_ns(p.policy, verdict.high_seconds)
    if not fits(windows, p.view.clock_ns, high_ns):
        return ClaimHold("window", f"closes before {high_ns // SECOND_NS}s from now, its estimate")
    return None


def _leaving(p: UpgradePass) -> dict[str, tuple[PodKey, ...]]:
    """What still leaves each node that is out of service."""
    draining = [*p.names_in(NodeState.DRAINING), *p.claimed]
    verdict, leaving = p.ports.drains.verdict, dict.fromkeys(p.unavailable_after_claim(), ())
    return leaving | {n: verdict(p.cache, n, draining, p.now_ns).moving for n in draining}


def _control_plane_hold(p: UpgradePass, node: Node) -> str:
    """Control-plane nodes go one at a time, the others all Ready, and at least three of them."""
    if not is_control_plane(node):
        return ""
    others = [n for n in p.nodes.values() if is_control_plane(n) and n.name != node.name]
    sick = [n.name for n in others if is_ready(n) or n.name in p.census.unavailable]
    if sick:
        return f"control-plane node {sick[0]} is not available"
    busy = [name for name in p.flying if is_control_plane(p.nodes[name])]
    return f"{busy[0]} is in flight" if busy else ""
