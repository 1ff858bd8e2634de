"""Claims: which nodes are taken next, in which step, and what holds the others.

A node is claimed by one PATCH, in a step that the run's document has already; the document names it
once the claim is seen (`newcomers.py`), and nothing is done to the node before. What is in flight
counts for the step, named or not, so that a leader that comes between the two claims no more than
the step takes.

Nodes whose budgets spare no pod now, and those whose pods find no room even while all nodes are in
service, are tried last, so that they hold up neither zones nor pools. They wait for at most
drain-timeout once the others are done: a run ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import claims, marks
from kubectl_nodelife.controllers.upgrade.claims import Candidates, ClaimHold
from kubectl_nodelife.controllers.upgrade.document import NOT_BEGUN, RunPhase, Step
from kubectl_nodelife.controllers.upgrade.gates import WINDOW, failed_and_down
from kubectl_nodelife.controllers.upgrade.memory import KnownCost
from kubectl_nodelife.controllers.upgrade.policy import fits_ns, node_info
from kubectl_nodelife.controllers.upgrade.settling import csi_drivers
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import TAINT_NODE_UNSCHEDULABLE

_OURS: Final = "nodelife.dev/"


def claim_node(p: UpgradePass, node: Node) -> None:
    """One PATCH: cordon, annotation, label, shield. The cordon is ours if this turned it on."""
    cordon = marks.CordonOwner.THEIRS if node.spec.unschedulable else marks.CordonOwner.OURS
    shield = marks.absent_shield(node, is_wanted=p.policy.shield)
    mark = new_mark(p, node, cordon, shield=shield.keys)
    p.take_out(node.name)
    event, because = marks.NodeEvent.CLAIMED, "claimed for its upgrade"
    cordons = True if cordon is marks.CordonOwner.OURS else None
    p.advance(node, mark, event, because, notes=shield, unschedulable=cordons)


def new_mark(
    p: UpgradePass, node: Node, cordon: marks.CordonOwner, **fields: Any
) -> marks.NodeMark:
    """The mark of a node that is claimed now. Of what was seen of it before nothing counts."""
    p.memory.forget(node.name)
    p.memory.sent_marks.pop(node.name, None)
    return marks.NodeMark(
        run=p.document.run,
        state=marks.NodeState.DRAINING,
        claimed=p.stamp,
        cordon=cordon,
        before=_before(p, node),
        **fields,
    )


def _before(p: UpgradePass, node: Node) -> marks.NodeBefore:
    info = node_info(node)
    taints = (t for t in node.spec.taints if t.key != TAINT_NODE_UNSCHEDULABLE)
    theirs = tuple(replace(t, time_added=None) for t in taints if not t.key.startswith(_OURS))
    return marks.NodeBefore(
        uid=node.uid,
        boot_id=info.get("bootID", ""),
        node_info=info,
        allocatable=dict(node.status.allocatable or {}),
        taints=theirs,
        csi=csi_drivers(p, node),
    )


def mark_outdated(p: UpgradePass, names: Iterable[str]) -> None:
    """A soft taint on what is still to be done, so that pods do not move there."""
    if not p.policy.mark_outdated:
        return
    to_do = (marks.outdated(p.document.run),)
    for name in names:
        node = p.nodes[name]
        if p.readings[name].is_outdated or p.is_busy(name) or name in p.next.step.nodes:
            continue
        if marks.ANNOTATION not in (node.metadata.annotations or {}):
            p.emit(marks.patch_marks(node, "still to be done", add=to_do))


BY_ROOM: Final = "room"
BY_BUDGET: Final = "budget"


def hold_of(p: UpgradePass, name: str) -> ClaimHold | None:
    """The hold on a claim now: slots, gates, zone, budgets, room, the window; None for none."""
    node = p.nodes[name]
    if because := p.fleet.counts.hold(name):
        return ClaimHold(claims.SLOTS, because)
    for gate, because in p.gates.items():
        return ClaimHold(gate, because)
    if node.spec.unschedulable and p.fleet.slots_of(name) < 1:
        return ClaimHold(claims.SLOTS, "cordoned nodes do not go first where no slot is free")
    if because := _control_plane_hold(p, node) or p.fleet.zone_hold(name):
        by = claims.CONTROL_PLANE if claims.is_control_plane(node) else "zone"
        return ClaimHold(by, because + failed_and_down(p, p.readings[name].zone_key))
    _, verdict, why = ask_planner(p, name)
    if why or verdict.waits:
        return ClaimHold(BY_BUDGET, why or verdict.sentence)
    if short := p.ports.room(p.cache, name, verdict.moving, _yet_to_move(p), p.now_ns):
        return ClaimHold(BY_ROOM, short)
    high_ns = claims.high_estimate_ns(p.policy, verdict.high_seconds)
    if fits_ns(p.policy.window, p.clock_ns, high_ns) != p.clock_ns:
        return ClaimHold(WINDOW, f"closes before {high_ns // SECOND_NS}s from now, its estimate")
    return None


def _yet_to_move(p: UpgradePass) -> dict[str, tuple[claims.PodKey, ...]]:
    """The pods that have yet to leave each node that is out of service."""
    draining = [*p.names_in(marks.NodeState.DRAINING), *p.claimed]
    for name in draining:
        if name not in p.yet_to_move:
            p.yet_to_move[name] = p.ports.drain(p.cache, name, draining, p.now_ns).moving
    return dict.fromkeys((*p.names_in(*marks.TAKEN), *p.claimed), ()) | p.yet_to_move


def _control_plane_hold(p: UpgradePass, node: Node) -> str:
    """Control-plane nodes go one at a time, the others all Ready, and at least three of them."""
    if not claims.is_control_plane(node):
        return ""
    others = [n for n, of in p.readings.items() if of.is_control_plane and n != node.name]
    sick = [n for n in others if p.readings[n].is_down or p.fleet.counts.node(n).unavailable]
    if sick:
        return f"control-plane node {sick[0]} is not available"
    return control_plane_in_flight(p, node)


def control_plane_in_flight(p: UpgradePass, node: Node) -> str:
    """That another control-plane node is out of service by us, claimed in this very pass, or gone
    until its newcomer comes."""
    if not claims.is_control_plane(node):
        return ""
    busy = [name for name in (*p.in_flight, *p.claimed) if claims.is_control_plane(p.nodes[name])]
    busy += [name for name, entry in p.gone.items() if entry.pool == claims.CONTROL_PLANE]
    return f"{busy[0]} is in flight" if busy else ""


def wait_for_the_last(p: UpgradePass, pool: str) -> None:
    """Nodes are left whose budgets refill, or whose pods find no room: they wait for at most
    drain-timeout, gates aside.
    """
    _look_for_room(p)
    tail = p.memory.tail
    if p.gates or tail is None or tail[0] != pool:
        tail = p.memory.tail = (pool, p.now_ns)
    if p.is_over(tail[1], p.policy.drain_timeout_ns):
        prefix = {BY_ROOM: "no room", BY_BUDGET: "its budgets did not refill"}
        holds = {candidate.name: p.holds[candidate.name] for candidate in p.tried_last}
        p.note_given_back({name: f"{prefix[by]}: {why}" for name, (by, why) in holds.items()})


def _look_for_room(p: UpgradePass) -> None:
    """Ask each REFILLS_NS for room for nodes that are tried last; forget those that have it."""
    memory = p.memory
    if not memory.without_room or not p.is_over(memory.room_asked_ns, REFILLS_NS):
        return
    memory.room_asked_ns = p.now_ns
    p.wake(p.now_ns + REFILLS_NS)
    for name in [c.name for c in p.tried_last if c.name in memory.without_room]:
        held_by = hold_of(p, name)
        if held_by is None or held_by.by != BY_ROOM:
            del memory.without_room[name]


SOAK: Final = "soak"
"""The name of the hold on claims while a step, or a zone, soaks."""


def claim(p: UpgradePass) -> bool:
    """Claim what may be claimed. Returns whether anything is left to claim or to wait for."""
    candidates, step, policy = _candidates(p), p.next.step, p.policy
    in_flight = {name: (p.readings[name].turn, p.readings[name].zone) for name in p.in_flight}
    in_flight |= {name: (entry.pool, entry.zone) for name, entry in p.gone.items()}
    pool = _pool_in_turn(p, candidates, {where for where, _ in in_flight.values()})
    if pool is None:
        return False
    if p.phase is not RunPhase.RUNNING:
        p.memory.tail = None
        return True
    mine = [c for c in candidates if c.pool == pool]
    in_pool = {name: zone for name, (where, zone) in in_flight.items() if where == pool}
    if not mine and not in_pool:
        wait_for_the_last(p, pool)
        return True
    if step.pool != pool or step.window == NOT_BEGUN:
        width = claims.step_width(0, policy.canary_width)
        p.edit(step=Step(pool=pool, k=0, window=width, nodes=p.gone))
        return True  # a step is written before its first claim
    stage = claims.stage_of(step, mine, in_pool, policy.canary_width, policy.zones)
    is_due = not stage.soak or _has_soaked(p, step)
    if is_due and stage.soak and step.window:
        _next_step(p, pool)
    elif is_due and stage.wanted:
        _choose(p, stage, mine, in_pool)
    mark_outdated(p, [c.name for c in candidates])
    return True


def _candidates(p: UpgradePass) -> Candidates:
    """The nodes that could be claimed but for slots and gates. The others are named as skipped."""
    candidates, judged = [], p.memory.candidates
    judged_by = (p.document.run, p.document.given_back, p.control_planes)
    if p.memory.candidates_by != judged_by:
        p.memory.candidates_by = judged_by
        judged.clear()
    for name in p.selected:
        if mark := p.marks.get(name):
            if mark.state in marks.LEFT_TO_A_PERSON:
                p.skipped[name] = f"{mark.state}: {mark.reason}"
            continue
        if name not in judged or name in p.memory.looked_at:
            why, reading = why_no_candidate(p, name), p.readings[name]
            judged[name] = why or claims.UpgradeCandidate(name, reading.turn, reading.zone)
        candidate = judged[name]
        if isinstance(candidate, str):
            p.skipped[name] = candidate
        else:
            candidates.append(candidate)
    p.memory.looked_at.clear()
    return candidates


def _pool_in_turn(p: UpgradePass, candidates: Candidates, in_flight: set[str]) -> str | None:
    """The first pool in flight or claimable; None for none. Costs are asked for it alone."""
    for pool in pools_in_turn(p, in_flight.union(c.pool for c in candidates)):
        _ask_costs(p, pool, candidates)
        if pool in in_flight or any(c.pool == pool for c in (*candidates, *p.tried_last)):
            return pool
    return None


def pools_in_turn(p: UpgradePass, present: set[str]) -> list[str]:
    """The pool that was begun, then as `--pools` names them, else by name; control planes last."""
    others, step = present - {claims.CONTROL_PLANE}, p.next.step
    pools = [pool for pool in p.policy.pools or sorted(others) if pool in others]
    pools += [claims.CONTROL_PLANE] if claims.CONTROL_PLANE in present else []
    return sorted(pools, key=lambda pool: step.window == NOT_BEGUN or pool != step.pool)


def _ask_costs(p: UpgradePass, pool: str, candidates: Candidates) -> None:
    """Give the candidates of the pool their costs. Those that cannot be drained leave; those whose
    budgets refill, or whose pods find no room, are tried last, once the others are done.
    """
    remaining, costs = [], p.memory.costs
    for candidate in reversed(candidates):
        if candidate.pool != pool:
            remaining.append(candidate)
            continue
        name = candidate.name
        cost = costs.get(name)
        if cost is None or p.now_ns >= cost.until_ns:
            cost = ask_planner(p, name)
        if candidate.drain is not cost.drain:
            candidate = p.memory.candidates[name] = candidate._replace(drain=cost.drain)
        if cost.why_not:
            p.skipped[name] = cost.why_not
        elif cost.drain.waits or name in p.memory.without_room:
            short = p.memory.without_room.get(name)
            by = BY_ROOM if short else BY_BUDGET
            p.holds[name] = ClaimHold(by, short or cost.drain.sentence)
            p.tried_last.append(candidate)
        else:
            remaining.append(candidate)
    candidates[:] = reversed(remaining)


def _has_soaked(p: UpgradePass, step: Step) -> bool:
    """True if `--soak` is over since the step, or the zone, was."""
    k = step.k if step.window else None
    zones = {entry.zone for entry in step.nodes.values()}
    key = (step.pool, k, frozenset(step.nodes if step.window else zones))
    if p.memory.soak is None or p.memory.soak[0] != key:
        p.memory.soak = (key, p.now_ns)
    has_soaked = p.is_over(p.memory.soak[1], p.policy.soak_ns)
    if not has_soaked:
        p.holds[f"step {k}"] = ClaimHold(SOAK, "the step has ended, and soaks")
    return has_soaked


def _next_step(p: UpgradePass, pool: str) -> None:
    """The step has ended: wider, the same again, or from the beginning; or growth is over."""
    step = p.next.step
    states = [mark.state for name in step.nodes if (mark := p.marks.get(name))]
    done, failed = states.count(marks.NodeState.DONE), states.count(marks.NodeState.FAILED)
    failed += sum(name in p.document.failed and name not in p.marks for name in step.nodes)
    k = claims.next_step(step.k, done=done, failed=failed)
    most = p.fleet.most_unavailable(pool)
    growing = claims.is_growing(k, p.policy.canary_width, most, p.policy.max_parallel)
    width = claims.step_width(k, p.policy.canary_width) if growing else 0
    p.edit(step=Step(pool=pool, k=k, window=width))


def _choose(
    p: UpgradePass, stage: claims.ClaimStage, candidates: Candidates, in_pool: dict[str, str]
) -> None:
    """Claim as many as the stage wants, in their turn: those that nothing holds. Each counts as out
    of service from then on, by which the next ones are judged. Those whose pods find no room though
    no node is out of service go last.
    """
    step, most = p.next.step, p.policy.max_parallel
    first = p.policy.canary_nodes if step.k == 0 and step.window else ()
    in_zones = (c for c in candidates if c.zone in stage.zones or c.name in first)
    open_ones = [candidate for candidate in in_zones if not p.is_busy(candidate.name)]
    held: dict[str, ClaimHold] = {}
    before = len(p.claimed)
    for candidate in claims.claim_order(open_ones, p.policy.canary_nodes):
        name, claimed = candidate.name, len(p.claimed) - before
        count = len(in_pool) + claimed
        if claimed >= stage.wanted:
            break
        if most is not None and count >= most:
            because = f"{count} nodes in flight, --max-parallel {most}"
            held[name] = ClaimHold(claims.PARALLEL, because)
            break
        if held_by := hold_of(p, name):
            held[name] = held_by
        else:
            claim_node(p, p.nodes[name])
    p.holds.update(held)
    short = {name: hold.because for name, hold in held.items() if hold.by == BY_ROOM}
    if short and not (p.in_flight or p.gone or p.claimed):
        p.memory.without_room |= short
        p.memory.room_asked_ns = p.now_ns
        p.wake(p.now_ns + SECOND_NS)


LOOKED_AT_NS: Final = 10 * MINUTE_NS
LOOKED_AT_AGAIN_NS: Final = 60 * SECOND_NS
REFILLS_NS: Final = 10 * SECOND_NS
"""A budget that is at zero now refills within seconds, once a replacement is Ready."""


def why_no_candidate(p: UpgradePass, name: str) -> str:
    """Why the node is not taken, whatever the drain planner says; "" where it may be."""
    if name in p.foreign:
        return p.foreign[name]
    if name in p.document.given_back:
        return p.document.given_back[name]
    reading, policy = p.readings[name], p.policy
    pool, node = reading.turn, reading.node
    is_fresh = p.fleet.is_fresh(name)
    why = reading.skipped if is_fresh else claims.why_skipped(node, policy, lease_is_fresh=False)
    if not why and reading.is_control_plane:
        why = claims.why_too_few(p.control_planes)
    if why:
        return why
    born, started = node.metadata.creation_timestamp, p.document.started
    if not policy.target and started and (born or 0) > parse_time(started):  # made by the upgrade
        return "made after the start of the run, which has no target"
    if policy.pools and pool not in (*policy.pools, claims.CONTROL_PLANE):
        return f"pool {pool or '(none)'} is not in --pools"
    return ""


def ask_planner(p: UpgradePass, name: str) -> KnownCost:
    """The drain planner's verdict now, given the nodes Draining; it is remembered."""
    draining = (*p.names_in(marks.NodeState.DRAINING), *p.claimed)
    others = [other for other in draining if other != name]
    verdict = p.ports.drain(p.cache, name, others, p.now_ns)
    undrainable = claims.why_undrainable(verdict, p.policy)
    # What may be claimed, for as long whatever was read: a plan has the order of its run.
    good_for_ns = LOOKED_AT_AGAIN_NS if undrainable else LOOKED_AT_NS
    good_for_ns = REFILLS_NS if verdict.waits else good_for_ns
    cost = p.memory.costs[name] = KnownCost(p.now_ns + good_for_ns, verdict, undrainable)
    return cost
