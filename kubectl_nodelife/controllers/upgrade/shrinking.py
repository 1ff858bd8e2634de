"""Nodes that an autoscaler takes away on purpose leave the number that the run counts from.

A node that vanishes counts as unavailable, so that a percentage never erodes. One that went with
the mark of the program that deletes nodes was wanted gone: without this a pool that shrinks would
hold the run until a person rebases it. Where nodes are to be replaced, their newcomers are waited
for all the same.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node

_DELETING: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
)


def is_taken_away(p: UpgradePass, name: str, uid: str) -> bool:
    """Whether the node, which went, was marked for deletion, and nobody is to take its place."""
    marked, _ = p.memory.leaving.get(name, ("", ()))
    return marked == uid and p.policy.work.mode is not WorkMode.REPLACE


def follow(p: UpgradePass) -> None:
    """Note the nodes that are marked for deletion, and count without those that went."""
    leaving = p.memory.leaving
    counts = dict(p.next.base_counts)
    for name, (uid, scopes) in list(leaving.items()):
        node = p.nodes.get(name)
        if node is not None and node.uid == uid and _is_deleted_by_others(node):
            continue
        del leaving[name]
        if (node is None or node.uid != uid) and name not in p.awaited:
            for scope in scopes:
                counts[scope] = max(0, counts.get(scope, 0) - 1)
    for name, node in p.nodes.items():
        if name not in leaving and _is_deleted_by_others(node):
            scopes = tuple(scope.key for scope in p.census.scopes_of(name))
            leaving[name] = (node.uid, scopes)
    if counts != p.next.base_counts:
        p.edit(base_counts=counts)


def _is_deleted_by_others(node: Node) -> bool:
    return any(taint.key in _DELETING for taint in node.spec.taints)
