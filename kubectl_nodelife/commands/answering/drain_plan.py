"""Answers `drain-plan`: the drain of some nodes, planned; and `drains`: for each node that is being
emptied, a plan of what is left to do there.

The daemon does it in a forked child (`daemon/forked_answers`), after it has listed the kinds that
it does not watch. Which flags a drain was begun with is not in the cluster: all are assumed.
"""

from __future__ import annotations

from typing import Any, Final

from kubectl_nodelife.commands.answering import Query, Response, flags_of, output_of, word
from kubectl_nodelife.commands.cluster.look import (
    KINDS_TO_READ,
    KindsToRead,
    check_pods_read,
    choose_nodes,
    kubectl_flags,
    snapshot_of,
    source_of,
)
from kubectl_nodelife.commands.drain import DrainFlags
from kubectl_nodelife.document import document
from kubectl_nodelife.drain.plan import make_plan, planned
from kubectl_nodelife.drain.results import NEVER, REFUSED, DrainPlan
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.works import nodes_emptied
from kubectl_nodelife.report.drain import drain_page, html_page
from kubectl_nodelife.report.drain_script import script
from kubectl_nodelife.sim.kubectl.options import DrainOptions

HTML = "html"
COMMANDS = "commands"

MOST_DRAINS: Final = 8
"""Each is planned for itself, which takes a part of a second in a cluster of some size."""

_ALL_FLAGS: Final = DrainOptions(force=True, ignore_daemonsets=True, delete_emptydir_data=True)


def reading(query: Query) -> KindsToRead:
    """The input of a plan."""
    return KINDS_TO_READ


def answer(view: ClusterView, query: Query) -> Response:
    """The plan. `inTrouble` where the drain cannot finish. Raises BadInput, Failed, NotFound."""
    snapshot = snapshot_of(view, word(query, "read"))
    check_pods_read(snapshot)
    selector = query["selector"][-1] if "selector" in query else None
    every = word(query, "all") == "true"
    names = choose_nodes(snapshot, tuple(query.get("node", ())), selector, every)
    flags = flags_of(query, DrainFlags)
    plan = planned(snapshot, names, flags.options(), flags.waves())
    plan.warnings = [*view.warnings, *plan.warnings]
    return {
        "text": _text(plan, source_of(view), query),
        "warnings": plan.warnings,
        "inTrouble": plan.verdict in (NEVER, REFUSED),
    }


def _text(plan: DrainPlan, source: dict[str, Any], query: Query) -> str:
    output = word(query, "output")
    if output == COMMANDS:
        given = {flag: word(query, flag) for flag in ("kubeconfig", "context", "as")}
        return script(plan, kubectl_flags(given, source))
    if output == HTML:
        return html_page(plan, source)
    return output_of(query).render(drain_page(plan, source))


def under_way(view: ClusterView, query: Query) -> Response:
    """The DrainPlanList of the nodes `node`, or of all being emptied. Raises BadInput, NotFound."""
    names = list(query.get("node", ())) or sorted(nodes_emptied(view.cache))
    warnings = list(view.warnings)
    if len(names) > MOST_DRAINS:
        if "node" in query:
            raise BadInput(f"{len(names)} nodes at once; at most {MOST_DRAINS}", on="node")
        warnings.append(f"{MOST_DRAINS} of {len(names)} drains are planned, by name")
    for name in names:
        if name not in view.cache.nodes:
            raise NotFound("nodes", name, among=view.cache.nodes)
    snapshot = snapshot_of(view)
    source = source_of(view)
    plans = [make_plan(snapshot, [name], _ALL_FLAGS) for name in names[:MOST_DRAINS]]
    items = [plan.document(source) for plan in plans]
    return document("DrainPlanList", source=view.source, items=items, warnings=warnings)
