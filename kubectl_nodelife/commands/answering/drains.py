"""Answers `drains`: for each node that is being emptied, a plan of what is left to do there.

The daemon makes it in a forked child, after it has listed the kinds that it does not watch. Which
flags a drain was begun with is not in the cluster: it is taken for one that may do all.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.commands.answering.query import Query, Response
from kubectl_nodelife.commands.cluster.drain import KINDS_TO_READ, snapshot_of, source_of
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.document import document
from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.works import nodes_emptied
from kubectl_nodelife.sim.kubectl.options import DrainOptions

MOST_NODES: Final = 8
"""Each is planned for itself, which takes a part of a second in a cluster of some size."""

_ALL_FLAGS: Final = DrainOptions(force=True, ignore_daemonsets=True, delete_emptydir_data=True)


def reading(query: Query) -> KindsToRead:
    """The input of the drains' plans."""
    return KINDS_TO_READ


def answer(view: ClusterView, query: Query) -> Response:
    """The DrainPlanList of the nodes `node`, or of all that are being emptied. Raises BadInput,
    NotFound.
    """
    names = list(query.get("node", ())) or sorted(nodes_emptied(view.cache))
    warnings = list(view.warnings)
    if len(names) > MOST_NODES:
        if "node" in query:
            raise BadInput(f"{len(names)} nodes at once; at most {MOST_NODES}", on="node")
        warnings.append(f"{MOST_NODES} of {len(names)} drains are planned, by name")
    for name in names:
        if name not in view.cache.nodes:
            raise NotFound("nodes", name, among=view.cache.nodes)
    snapshot = snapshot_of(view)
    source = source_of(view)
    plans = [make_plan(snapshot, [name], _ALL_FLAGS) for name in names[:MOST_NODES]]
    items = [plan.document(source) for plan in plans]
    return document("DrainPlanList", source=view.source, items=items, warnings=warnings)
