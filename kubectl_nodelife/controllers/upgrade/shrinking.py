"""Nodes that an autoscaler takes away on purpose leave the number that the run counts from.

A node that vanishes counts as unavailable, so that a percentage never erodes. One that went with
the mark of the program that deletes nodes was wanted gone: without this a pool that shrinks would
hold the run until a person rebases it. Where nodes are to be replaced, their newcomers are waited
for all the same.
"""

from __future__ import annotations

from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass


def is_taken_away(p: UpgradePass, name: str, uid: str) -> bool:
    """True if the node, which went, was marked for deletion, and nobody is to take its place."""
    marked, _ = p.memory.leaving.get(name, ("", ()))
    return marked == uid and p.policy.work.mode is not WorkMode.REPLACE


def follow(p: UpgradePass) -> None:
    """Note the nodes that are marked for deletion, and count without those that went."""
    leaving = p.memory.leaving
    for name, (uid, _) in list(leaving.items()):
        node = p.nodes.get(name)
        is_gone = node is None or node.uid != uid
        if (name in p.awaited) if is_gone else not p.readings[name].is_leaving:
            del leaving[name]
    _count_without_gone(p)
    for name, reading in p.readings.items():
        if reading.is_leaving and name not in leaving:
            scopes = tuple(scope.key for scope in p.fleet.scopes_of(name))
            leaving[name] = (reading.node.uid, scopes)


def _count_without_gone(p: UpgradePass) -> None:
    """Nodes that went are remembered until the stored document counts without them."""
    memory = p.memory
    if p.is_under_way("Lease", p.policy.lease_key) or not p.document.base_counts:
        return
    if memory.shrunk_to == p.document.base_counts:
        for name in memory.shrunk_by:
            memory.leaving.pop(name, None)
    gone = [
        name
        for name, (uid, _) in memory.leaving.items()
        if name not in p.nodes or p.nodes[name].uid != uid
    ]
    counts = dict(p.next.base_counts)
    for name in gone:
        for scope in memory.leaving[name][1]:
            counts[scope] = max(0, counts.get(scope, 0) - 1)
    memory.shrunk_by, memory.shrunk_to = gone, counts if gone else {}
    if gone:
        p.edit(base_counts=counts)
