"""Answers `drain-plan`: the drain of some nodes of the view's cluster, planned.

The daemon does it in a forked child (`daemon/forked_answers`), after it has listed the kinds that
it does not watch.
"""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.commands.answering.query import Query, Response, flags_of, output_of, word
from kubectl_nodelife.commands.cluster.drain import (
    KINDS_TO_READ,
    check_pods_read,
    choose_nodes,
    kubectl_flags,
    snapshot_of,
    source_of,
)
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.commands.drain_plan import DrainFlags
from kubectl_nodelife.drain.plan import planned
from kubectl_nodelife.drain.results import NEVER, REFUSED, DrainPlan
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report.drain import drain_page
from kubectl_nodelife.report.drain_script import script

HTML = "html"
COMMANDS = "commands"


def reading(query: Query) -> KindsToRead:
    """The input of a drain plan."""
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
        from kubectl_nodelife.report.drain_html import page

        return page(plan, source)
    return output_of(query).render(drain_page(plan, source))
