"""Nodes whose object goes while they are worked on, and the newcomers that take their place.

An annotation goes with its object, so the run's document keeps the mark of a node that went. It is
waited for until the deadline of its state; the newcomer is marked by one PATCH, before ordinary
pods come. A newcomer that runs such pods already is never cordoned.

A node that vanishes counts as unavailable, so that a percentage never erodes. One that went with
the mark of the program that deletes nodes was wanted gone, has no newcomer, and leaves the number
that the run counts from: else a pool that shrinks would hold the run until a person rebases it.
Where nodes are to be replaced, their newcomers are waited for all the same.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.claims import CONTROL_PLANE, turn_of, zone_name
from kubectl_nodelife.controllers.upgrade.document import RunPhase, StepNode, gone_nodes
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, stays_on_its_node
from kubectl_nodelife.kube.times import parse_time

RETURNING: Final = marks.states_with(marks.NodeEvent.REPLACED)


def follow_gone_nodes(p: UpgradePass) -> None:
    """Note nodes that went, match newcomers, and fail those for which none came."""
    _keep_marks(p)
    _follow_renames(p)
    p.gone = gone_nodes(p.next.step.nodes, p.document.failed, p.nodes)
    taken: set[str] = set()
    for name, entry in p.gone.items():
        newcomer = _newcomer_for(p, name, entry, taken)
        if newcomer is not None:
            taken.add(newcomer.name)
            if not p.is_busy(newcomer.name):
                _adopt(p, newcomer, name, entry)
        elif entry.mark is not None:
            _watch_deadline(p, name, entry, entry.mark)


def _keep_marks(p: UpgradePass) -> None:
    """The document names what is seen to be claimed, as long as it is marked, and keeps the mark of
    a node that goes; with `--replace`, from the work's start.
    """
    nodes, replaces = _named_now(p), p.policy.work.mode is WorkMode.REPLACE
    for name, entry in p.document.step.nodes.items():
        node, mark = p.nodes.get(name), p.marks.get(name)
        if node is not None and node.uid == entry.uid:
            if mark is not None:
                if replaces and mark.state is marks.NodeState.WORKING:
                    nodes[name] = replace(entry, mark=mark)
            elif name not in p.next.given_back or name not in p.next.failed:
                nodes.pop(name, None)  # given back: it makes room for another
        elif entry.mark is None:
            nodes.pop(name, None)
            last = _last_mark(p, name, entry)
            is_deleted = p.memory.being_deleted.get(name, ("", ()))[0] == entry.uid
            if last.state in RETURNING and (replaces or not is_deleted):
                nodes[name] = replace(entry, mark=last)
            else:
                p.skipped[name] = "gone"
    p.name_nodes(nodes)


def _named_now(p: UpgradePass) -> dict[str, StepNode]:
    """The nodes of the step, with those whose claim is seen now. Once growth is over, and others
    come, those are left out that are in flight no longer.
    """
    step, failed = p.next.step, p.next.failed
    claimed = {
        name: _named(p, p.nodes[name])
        for name, mark in p.in_flight.items()
        if name not in step.nodes and mark.for_ not in step.nodes and not p.is_busy(name)
    }
    if not claimed or step.window:
        return step.nodes | claimed
    under_way = {
        name: entry
        for name, entry in step.nodes.items()
        if name in p.in_flight or name in failed or entry.mark is not None
    }
    return under_way | claimed


def _last_mark(p: UpgradePass, name: str, entry: StepNode) -> marks.NodeMark:
    """The mark that we gave the node last, or that it had when it was last seen, for it may go the
    moment its work begins; for a leader that has not seen it, that of its work.
    """
    for known in (p.memory.written_marks, p.memory.last_marks):
        uid, mark = known.get(name, ("", None))
        if mark is not None and uid == entry.uid:
            return mark
    started, working = p.document.started, marks.NodeState.WORKING
    return marks.NodeMark(run=p.document.run, state=working, epoch=p.epoch, since=started)


def _follow_renames(p: UpgradePass) -> None:
    """A newcomer that is marked stands in the document in the place of the node that went.

    A kubelet may write its own Node: where a mark names a node that is there, or whose place this
    one cannot take, it is left alone and nothing of the other changes.
    """
    nodes = dict(p.next.step.nodes)
    for name, mark in list(p.marks.items()):
        entry, node = nodes.get(mark.for_) if mark.for_ else None, p.nodes[name]
        if entry is None or entry.uid == node.uid:
            continue
        if _may_follow(p, node, mark.for_, entry):
            del nodes[mark.for_]
            nodes[name] = _named(p, node)
        else:
            says = f"annotation {marks.ANNOTATION} says that it takes the place of {mark.for_}"
            p.note_foreign(name, f"{says}, which it does not: forged")
    p.name_nodes(nodes)


def _may_follow(p: UpgradePass, node: Node, name: str, entry: StepNode) -> bool:
    """True if the node may be the newcomer for the one that the document names so."""
    there = p.nodes.get(name)
    is_gone = there is None or there.uid != entry.uid
    in_its_place = node.name == name or turn_of(node, p.policy) == entry.pool
    may_follow = is_gone and entry.mark is not None and in_its_place
    return may_follow and _is_new(p, node, _left_ns(entry.mark))


def _left_ns(mark: marks.NodeMark | None) -> int:
    """Before this no newcomer for a node with that mark was made."""
    return parse_time(mark.work.started or mark.since) if mark and mark.since else 0


def _is_new(p: UpgradePass, node: Node, since_ns: int) -> bool:
    """True if the node was made since then, and is none that the document names."""
    is_younger = (node.metadata.creation_timestamp or 0) >= since_ns
    return is_younger and all(node.uid != other.uid for other in p.document.step.nodes.values())


def _named(p: UpgradePass, node: Node) -> StepNode:
    """How the document names a node."""
    return StepNode(uid=node.uid, zone=zone_name(node), pool=turn_of(node, p.policy))


def _newcomer_for(p: UpgradePass, name: str, entry: StepNode, taken: set[str]) -> Node | None:
    """Same name first, else of its zone, else of its pool where no node of that zone waits."""
    since_ns, unmarked = _left_ns(entry.mark), p.nodes.keys() - p.marks.keys() - p.foreign.keys()
    free = [node for n in unmarked.difference(taken) if _is_new(p, node := p.nodes[n], since_ns)]
    same_name = [node for node in free if node.name == name]
    in_pool = [n for n in free if turn_of(n, p.policy) == entry.pool and n.name not in p.gone]
    in_zone = [node for node in in_pool if zone_name(node) == entry.zone]
    zones = {other.zone for other in p.gone.values()}
    elsewhere = [node for node in in_pool if zone_name(node) not in zones]
    suitable = same_name or in_zone or elsewhere
    return min(suitable, key=lambda n: (n.metadata.creation_timestamp or 0, n.name), default=None)


def _adopt(p: UpgradePass, node: Node, name: str, entry: StepNode) -> None:
    """One PATCH on first sight: cordon, shield, annotation; the taint it was born with goes."""
    old = entry.mark
    assert old is not None
    late = any(is_ordinary(pod) for pod in p.cache.pods_on(node.name))
    shield = marks.absent_shield(node, is_wanted=p.policy.shield)
    cordon = marks.CordonOwner.THEIRS if node.spec.unschedulable else marks.CordonOwner.OURS
    cordon = marks.CordonOwner.NONE if late else cordon
    because = f"takes the place of {name}" + ("; runs pods already, so no cordon" if late else "")
    p.advance(
        node,
        replace(old, cordon=cordon, shield=shield.keys, for_=name),
        marks.NodeEvent.REPLACED,
        because,
        notes=shield,
        unschedulable=True if cordon is marks.CordonOwner.OURS else None,
        remove=(marks.unproven(old.run),),
    )


def is_ordinary(pod: Pod) -> bool:
    """True if a cordon is to keep such a pod away: no daemon pod, no static one, no canary."""
    owner = controller_of(pod.metadata)
    is_of_node = stays_on_its_node(pod) or (owner is not None and owner.kind == "Node")
    return not is_of_node and pod.status.phase not in TERMINAL_PHASES


def _watch_deadline(p: UpgradePass, name: str, entry: StepNode, mark: marks.NodeMark) -> None:
    """Without a newcomer in time it is Failed. A control-plane node that is missing pauses the run,
    however many failures are tolerated: another must not go."""
    progress = p.progress(name, mark)
    progress.waits_for = "its newcomer"
    if p.is_lease_busy or name in p.next.failed:
        return
    if p.is_over(progress.armed_ns, p.deadline_ns(mark.state)):
        because = "its object went, and no newcomer came in time"
        p.note_failed(name, because)
        p.fail_without_mark(name, entry.uid, because)
        if entry.pool == CONTROL_PLANE and p.phase is RunPhase.RUNNING:
            p.edit(phase=RunPhase.PAUSED, because=f"control-plane node {name}: {because}")


def follow_scale_down(p: UpgradePass) -> None:
    """Note the nodes that are marked for deletion, and count without those that went."""
    being_deleted = p.memory.being_deleted
    for name in list(being_deleted):
        is_done = name in p.gone if _has_left(p, name) else not p.readings[name].is_being_deleted
        if is_done:
            del being_deleted[name]
    _count_without_gone(p)
    for name, reading in p.readings.items():
        if reading.is_being_deleted and name not in being_deleted:
            scopes = tuple(scope.key for scope in p.fleet.counts.node(name).scopes)
            being_deleted[name] = (reading.node.uid, scopes)


def _has_left(p: UpgradePass, name: str) -> bool:
    """True if the object that was marked for deletion is gone."""
    return name not in p.nodes or p.nodes[name].uid != p.memory.being_deleted[name][0]


def _count_without_gone(p: UpgradePass) -> None:
    """Nodes that went are remembered until the stored document counts without them."""
    memory = p.memory
    if p.is_lease_busy or not p.document.base_counts:
        return
    if memory.shrunk_to == p.document.base_counts:
        for name in memory.shrunk_by:
            memory.being_deleted.pop(name, None)
    gone = [name for name in memory.being_deleted if _has_left(p, name)]
    counts = dict(p.next.base_counts)
    for name in gone:
        for scope in memory.being_deleted[name][1]:
            counts[scope] = max(0, counts.get(scope, 0) - 1)
    memory.shrunk_by, memory.shrunk_to = gone, counts if gone else {}
    if gone:
        p.edit(base_counts=counts)
