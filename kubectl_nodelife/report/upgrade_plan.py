"""The page of `upgrade plan`: the answer in a few lines, then steps, nodes, budgets, findings.

As HTML also a Gantt of nodes by zone, and availability over time. A played upgrade has the same
lanes (`played_rows`), and one of the run itself, with the time in which a gate holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kubectl_nodelife.drain.results import UNKNOWN, BudgetPoint
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import SECOND_NS, clock
from kubectl_nodelife.outlook.upgrade_plan import counts_of, upgrade_plan_document
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.html import Bar, Row, budget_lines, draw_lanes, parts_of, render_page
from kubectl_nodelife.sim.upgrade_course import PlayedRun, spans
from kubectl_nodelife.upgrade.findings import CLAIM, REFUSED_BY, PlannedNode, UpgradePlan

_MANY: Final = 40
"""Of more nodes the plain page shows only those that are not done as planned."""
_STEP_COLUMNS = columns("step | pool | zones | nodes | from | to | soak | which*")
_NODE_COLUMNS = columns(
    "node | pool* | zone:4 | decision | step:3 | drain | pods:5 | claimed:1 | drained* |"
    " released:2 | done* | why"
)
_BUDGET_COLUMNS = columns("scope | nodes | available | at least | max out | slots | lowest | at:1")


def upgrade_plan_page(plan: UpgradePlan, source: dict[str, Any]) -> Page:
    """An `UpgradePlan` as an answer. `source` says where the objects are from. Names: node/NAME of
    each node that is done, in the order of the claims."""
    steps, turns = plan.course.steps, plan.course.turns
    return Page(
        partial(_blocks, plan),
        lambda: upgrade_plan_document(plan, source),
        lambda: (f"node/{name}" for step in steps for name in step.names if name in turns),
    )


def _blocks(plan: UpgradePlan, *, wide: bool) -> Iterator[Block]:
    """The answer, what is against the start, steps, nodes, budgets, what it rests on."""
    yield "\n".join(headlines(plan))
    yield "\n".join(lowest_lines(plan))
    # What refuses the start is in the headline.
    shown = (f for f in plan.findings if f.severity != REFUSED_BY)
    yield "\n".join(f"{finding.severity}: {finding.text}" for finding in shown)
    yield "\n".join(undone_lines(plan))
    yield Table(_STEP_COLUMNS, list(_step_rows(plan)))
    nodes = plan.nodes
    if not wide and len(nodes) > _MANY:
        nodes = [node for node in plan.nodes if node.decision != CLAIM]
    yield Table(_NODE_COLUMNS, [_node_row(node) for node in nodes])
    if hidden := len(plan.nodes) - len(nodes):
        yield f"{counted(hidden, 'more node')} as the steps say (-o wide shows them)"
    yield Table(_BUDGET_COLUMNS, list(_budget_rows(plan)))
    yield "\n".join([*(f"assumed: {text}" for text in plan.assumptions), *plan.not_evaluated])
    if wide and plan.rights:
        yield "\n".join(["May you? Each must say yes:", *plan.rights])


def headlines(plan: UpgradePlan) -> list[str]:
    """The headline; below a refusal what the run would be without it."""
    would = [summary(plan)] if plan.refusals and plan.course.steps else []
    return [headline(plan), *would]


def headline(plan: UpgradePlan) -> str:
    """The answer in one line: why no run is started, else the summary."""
    return f"No run is started: {'; '.join(plan.refusals)}" if plan.refusals else summary(plan)


def summary(plan: UpgradePlan) -> str:
    """How many nodes, how long, and what is left out, in one line."""
    counts = counts_of(plan)
    failing = sum(node.would_fail for node in plan.nodes)
    done = counts["claim"] - failing
    text = f"{done} of {counted(counts['selected'], 'node')}"
    if plan.estimate is None:
        return f"{text}: {_why_none(plan)}"
    steps = counted(len(plan.course.steps), "step")
    low, high = clock(plan.estimate.low), clock(plan.estimate.high)
    are = "is" if done == 1 else "are"
    text += f" {are} done in {steps}, in about {clock(plan.estimate.expected)} ({low} to {high})"
    others = {"would fail": failing, "skipped": counts["skip"], "held": counts["hold"]}
    others["by chance"] = sum(node.by_chance for node in plan.nodes)
    return ", ".join([text, *(f"{count} {word}" for word, count in others.items() if count)])


def _why_none(plan: UpgradePlan) -> str:
    """Why no node is done."""
    unknown = [node for node in plan.undrainable if node.verdict.verdict == UNKNOWN]
    if unknown:
        return (
            f"whether {counted(len(unknown), 'node')} can be drained is not known:"
            f" {unknown[0].verdict.sentence} (--accept-unknown does them all the same)"
        )
    return "none can be done now" if plan.undone else "nothing to do"


def lowest_lines(plan: UpgradePlan) -> Iterator[str]:
    """How low the cluster gets, and what pods notice."""
    course = plan.course
    pools = {scope: low for scope, low in course.lowest.items() if scope.kind == "pool"}
    used = {step.pool for step in course.steps}
    at_start = {budget.scope: budget for budget in plan.budgets}
    for scope, low in pools.items():
        if scope.pool in used:
            budget = at_start[scope]
            floor = max(budget.floor, budget.base - budget.most_unavailable)
            yield (
                f"lowest: {low.available} of {budget.base} available in {scope}, at"
                f" {_clock(low.at_ns)} (the floor is {floor})"
            )
    if course.evictions:
        mean, most = course.moves
        free = ", ".join(f"{round(100 * s)} % of {name}" for name, s in course.free_share.items())
        yield (
            f"{counted(course.evictions, 'eviction')}; a pod moves {mean:.1f} times on average,"
            f" {most} at most; never less free than {free}"
        )
    if course.waiting:
        yield f"would stay Pending: {first_names(course.waiting, 3, '; ')}"


def undone_lines(plan: UpgradePlan) -> Iterator[str]:
    """The changes that unblock the nodes that cannot be done, alike ones as one."""
    by_change: dict[str, list[str]] = {}
    for node in plan.undrainable:
        for remedy in node.remedies:
            text = f"{remedy.change} (risk: {remedy.risk})"
            by_change.setdefault(text, []).append(node.name)
    for text, names in by_change.items():
        yield f"to do {first_names(names, 5)}: {text}"


def _clock(span_ns: int | None) -> str:
    """An instant of the course, or a span; `-` for None."""
    return clock(None if span_ns is None else span_ns / SECOND_NS)


def _step_rows(plan: UpgradePlan) -> Iterator[list[object]]:
    for index, step in enumerate(plan.course.steps):
        count = len(step.names)
        yield [
            index,
            step.pool,
            ",".join(step.zones),
            f"{count} of {step.width}" if step.width > count else count,
            _clock(step.start_ns),
            _clock(step.end_ns),
            _clock(step.soak_ns or None),
            first_names(step.names, 5),
        ]


def _node_row(node: PlannedNode) -> list[object]:
    turn = node.turn
    at = turn.at if turn is not None else {}
    return [
        node.name,
        node.pool,
        node.zone,
        node.decision,
        turn.step if turn is not None else "-",
        node.verdict.verdict,
        len(node.verdict.moving),
        *(_clock(at.get(what)) for what in ("claimed", "drained", "released", "done")),
        node.reason or node.verdict.sentence,
    ]


def _budget_rows(plan: UpgradePlan) -> Iterator[list[object]]:
    for budget in plan.budgets:
        low = plan.course.lowest.get(budget.scope)
        yield [
            str(budget.scope),
            budget.base,
            budget.available,
            budget.floor,
            budget.most_unavailable,
            budget.slots,
            *(("-", "-") if low is None else (low.available, _clock(low.at_ns))),
        ]


_MOST_NODES: Final = 2000


def html_page(plan: UpgradePlan, source: dict[str, Any]) -> str:
    """The page as HTML."""
    last = max(1.0, plan.course.end_ns / SECOND_NS)
    available = [_availability(plan)] if plan.course.turns else []
    rows = [*available, *_rows(plan)][:_MOST_NODES]
    parts = parts_of(_blocks(plan, wide=True))
    told = len(headlines(plan))
    return render_page(
        "upgrade",
        title=f"Upgrade plan of {counted(len(plan.nodes), 'node')}",
        headlines=parts.above[:told],
        refused=bool(plan.refusals),
        findings=parts.above[told:],
        moment=source.get("moment"),
        phases=PLAYED[1:],
        available=bool(plan.course.turns),
        when=draw_lanes(rows, 0.0, last),
        parts=parts,
    )


def _availability(plan: UpgradePlan) -> Row:
    """Available nodes of the run's pools as a line, with the floor that they never go below."""
    used = {step.pool for step in plan.course.steps}
    pools = [b for b in plan.budgets if b.scope.kind == "pool" and b.scope.pool in used]
    floor = sum(max(b.floor, b.base - b.most_unavailable) for b in pools)
    points = [
        BudgetPoint(at_ns / SECOND_NS, count, floor, max(0, count - floor))
        for at_ns, count in plan.course.available
    ]
    return Row("available nodes", words=f"floor {floor}", lines=budget_lines(points))


def _rows(plan: UpgradePlan) -> Iterator[Row]:
    """The nodes by pool and zone, in the order of their claims."""
    places: dict[tuple[str, str], list[PlannedNode]] = {}
    for node in plan.nodes:
        places.setdefault((node.pool, node.zone), []).append(node)
    for (pool, zone), nodes in sorted(places.items()):
        where = "/".join(part for part in (pool, zone) if part) or "no zone"
        done = sum(1 for node in nodes if node.turn is not None)
        yield Row(where, style="group", note=f"{done} of {counted(len(nodes), 'node')}")
        nodes.sort(key=lambda n: (n.turn is None, n.turn.claimed_ns if n.turn else 0, n.name))
        for node in nodes:
            bars = list(_bars(node.turn.entered, plan.course.end_ns)) if node.turn else []
            why = node.reason.partition(": ")[0]
            mark = "" if node.decision == "claim" else f"{node.decision}: {why}"
            yield Row(node.name, bars, node.reason or node.verdict.sentence, node.decision, mark)


PHASES: Final = (
    ("draining", "Draining"),
    ("working", "Working"),
    ("settling", "Settling"),
    ("proving", "Proving"),
    ("soaking", "Soaking (in service)"),
)
"""Class and meaning of each state that takes time, in their order."""
PLAYED: Final = (("held", "a gate holds the upgrade"), *PHASES, ("stuck", "failed or held"))
"""The same of a played run, whose nodes may come to a bad end."""
_STYLES: Final = {
    **{word.partition(" ")[0]: style for style, word in PHASES},
    **dict.fromkeys(("Failed", "Held"), "stuck"),
}
"""The class of each state."""


def _bars(
    changes: Sequence[tuple[int, Any]],
    end_ns: int,
    styles: Mapping[Any, str] = _STYLES,
    *,
    title: str = "",
    from_ns: int = 0,
) -> Iterator[Bar]:
    """What is so from each instant on, the last until `end_ns`, in the class of each.

    `from_ns`: how long before the course the page begins.
    """
    for at_ns, until_ns, says in spans(changes, end_ns):
        if says in styles and until_ns > at_ns:
            begin, end = ((ns + from_ns) / SECOND_NS for ns in (at_ns, until_ns))
            yield Bar(begin, end, styles[says], title or says)


def played_rows(
    course: PlayedRun, from_ns: int, last: float, instant_text: Callable[[float], str]
) -> Iterator[Row]:
    """The run, then its nodes in the order of their claims.

    `from_ns`: how long before the course the page begins; `last`: when it ends, in seconds of it.
    """

    def words(changes: Sequence[tuple[int, str]]) -> str:
        texts = (f"{says} {instant_text((at + from_ns) / SECOND_NS)}" for at, says in changes)
        return " → ".join(texts)

    end_ns, held = int(last * SECOND_NS) - from_ns, list[Bar]()
    for gate, changes in course.gates.items():
        over_ns = course.over_ns or end_ns
        held += _bars(changes, over_ns, {True: "held"}, title=gate, from_ns=from_ns)
    yield Row("the upgrade", sorted(held), "when a gate holds it", "group", words(course.phases))
    for turn in course.turns.values():
        ended = [each for each in turn.entered if each[1]][-1:]
        if turn.restored:  # the word is ours, for such a node has no mark any more
            ended = [(turn.at["done"], "Restored")]
        name = turn.name if turn.now == turn.name else f"{turn.name}, now {turn.now}"
        yield Row(name, list(_bars(turn.entered, end_ns, from_ns=from_ns)), words=words(ended))
