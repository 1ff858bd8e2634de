"""The page of `what-if`: the verdict, then workloads, Services, zones and nodes that notice.

As a page of HTML it has charts above the same blocks: what serves when, in bands, and what zones
and nodes do; below them the records that differ. templates/what_if.html makes the markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kubectl_nodelife.drain.results import DEGRADED, FULL, BudgetPoint
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import clock, human_seconds
from kubectl_nodelife.outlook.fates import BACK, PODS_LEAVE, Fate, FateStep, folded
from kubectl_nodelife.outlook.what_if import document, sentences
from kubectl_nodelife.outlook.what_if.ranking import PAIR_OF, RankedTarget, WhatIfRanking
from kubectl_nodelife.report import html
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText

_WORKLOADS: Final = columns(
    "namespace | workload | outage | down for | ready:4 | lowest:3 | first:6 | back | evicted:5 | "
    "moved:7 | pending | stuck | blind* | range*"
)
_SERVICES: Final = columns("namespace | service | endpoints | lowest | blind | none for")
_ZONES: Final = columns("zone | state | rate | since | held back | why")
_BUDGETS: Final = columns(
    "namespace | budget | healthy:4 | lowest:2 | desired | at zero for | below for | points*"
)
_NODES: Final = columns(
    "node | zone:2 | unknown in | tainted in | deletions | back:1 | pods | at risk:4"
)
_WRITES: Final = columns("write | today:3 | first | last | then:3 | first | last")
_RANKED, _DRAINED = (
    columns(
        "rank | target | nodes:6 | at zero | services:3 | for:2 | budgets:7 | pending | stuck:4 | "
        f"{of_drains}evicted:5 | down"
    )
    for of_drains in ("", "not drained:1 | ")
)
_POINTS: Final = {
    act: columns(f"namespace | kind | single point of failure | by the {noun} of")
    for act, noun in (("lose", "loss"), ("drain", "drain"), ("taint", "taint"))
}
_SHOWN: Final = 20
_NAMED: Final = 3
_TONES: Final = {FULL: BAD, DEGRADED: WARN}


def what_if_page(answer: document.WhatIf) -> Page:
    """A `WhatIf` as an answer. Names: each workload with an outage, the worst first; trouble: how
    many."""
    down = [f"workload/{w.namespace}/{w.kind}/{w.name}" for w in answer.workloads
            if w.outage in _TONES]  # fmt: skip
    return Page(partial(_blocks, answer), lambda: answer, lambda: down, lambda: len(down))


def _blocks(answer: document.WhatIf, *, wide: bool) -> Iterator[Block]:
    """The verdict, and what differs; then what the answer stands on."""
    yield "\n".join([answer.verdict.text, *sentences.why_not_back(answer.workloads)])
    yield Table(_WORKLOADS, [_workload_row(w) for w in answer.workloads])
    yield Table(_SERVICES, [_service_row(s) for s in answer.services])
    yield Table(_ZONES, [row for zone in answer.zones for row in _zone_rows(zone)])
    yield "\n".join(zone.sentence for zone in answer.zones if zone.sentence)
    yield Table(_NODES, [_node_row(node) for node in answer.nodes])
    yield Table(_BUDGETS, [_budget_row(budget) for budget in answer.budgets])
    yield Table(_WRITES, [_writes_row(each) for each in answer.writes])
    yield from (each.sentence for each in answer.repeats)
    yield from ("\n".join(_why_lines(each)) for each in answer.why)
    gaining = {f"{w.namespace}/{w.kind}/{w.name}" for w in answer.workloads if sentences.gained(w)}
    if still_down := [name for name in answer.already_down if name not in gaining]:
        yield f"down before, and left out: {_targets(still_down)}"
    lines = [_horizon_line(answer), *_left_out_as_asked(answer)]
    lines += [f"assumed: {sentence}" for sentence in answer.assumed] if wide else []
    lines += [f"no {each.kind} was read: {each.means}" for each in answer.not_evaluated]
    yield "\n".join(lines)


def ranking_page(answer: WhatIfRanking) -> Page:
    """A `WhatIfRanking` as an answer: the targets that take something down, and the single points
    of failure. Names: the targets that do harm, the worst first."""
    harmful = [item for item in answer.items if item.does_harm]
    kind, act = answer.each.partition("=")[0], answer.act.split()[0]

    def blocks(*, wide: bool) -> Iterator[Block]:
        shown = harmful if wide else harmful[:_SHOWN]
        yield _ranking_headline(answer)
        drains = act == "drain"
        rows = [_ranked_row(item, drains=drains) for item in shown]
        yield Table(_DRAINED if drains else _RANKED, rows)
        yield "\n".join(_lines_of_the_rest(answer, len(harmful) - len(shown)))
        rows = [[p.namespace, p.kind, p.name, _targets(p.targets)] for p in answer.single_points]
        yield Table(_POINTS[act], rows)

    return Page(blocks, lambda: answer, lambda: (f"{kind}/{item.target}" for item in harmful))


def _left_out_as_asked(answer: document.WhatIf | WhatIfRanking) -> Iterator[str]:
    if answer.ignored:
        yield f"left out as asked: {answer.ignored} workloads or Services"


def _horizon_line(answer: document.WhatIf) -> str:
    horizon = answer.horizon
    until = human_seconds(horizon.until_seconds)
    if horizon.ended == "quiet":
        quiet = human_seconds(horizon.ended_seconds)
        return (
            f"played for {until}, of which nothing happens after {quiet};"
            " 'to the end' means until then"
        )
    due = sum(each.count for each in horizon.pending_events)
    still = "1 thing was still to come" if due == 1 else f"{due} things were still to come"
    if horizon.pending_events:
        first = min(horizon.pending_events, key=lambda each: each.first_seconds)
        still += f", the first at {human_seconds(first.first_seconds)} ({first.action})"
    return f"played for {until}; 'to the end' means until then; {still}"


def _why_lines(why: document.WhyChanged) -> Iterable[str]:
    yield f"why {why.about} changes:"
    for chain in why.changes:
        for depth, change in enumerate(chain):
            mark = "" if depth == 0 else f"{'  ' * depth}because "
            at = human_seconds(change.at)
            yield f"  {mark}{at} {change.action} {change.object}: {change.reason}"


def _ranking_headline(answer: WhatIfRanking) -> str:
    span = human_seconds(answer.horizon["untilSeconds"])
    what = f"each {answer.each}, {answer.act}: {answer.futures:,} played for {span}"
    down = sum(bool(item.down) for item in answer.items)
    if answer.partial:
        what += " (interrupted: these are all that were played)"
    if not down:
        return f"{what}; none takes a workload or a Service down"
    return f"{what}; {down:,} {'takes' if down == 1 else 'take'} a workload or a Service down"


def _lines_of_the_rest(answer: WhatIfRanking, more: int) -> Iterator[str]:
    """The targets that have no row, of which so many do harm."""
    if more:
        yield f"... and {more:,} more that {'does' if more == 1 else 'do'} harm: -o wide shows all"
    lost = sum(item.lost_already and not item.does_harm for item in answer.items)
    if harmless := answer.harmless - lost:
        yield f"... and {harmless:,} that {'does' if harmless == 1 else 'do'} no harm"
    if lost:
        yield f"... and {lost:,} that {'is' if lost == 1 else 'are'} lost already"
    if answer.without_group:
        nodes = counted(answer.without_group, "node")
        what = answer.each.removeprefix(f"{PAIR_OF} ").replace("=", " ")
        yield f"left out: {nodes} without a {what}"
    yield from _left_out_as_asked(answer)


def _ranked_row(item: RankedTarget, *, drains: bool) -> list[object]:
    def more(name: str) -> str:
        return f"{item.more[name]:g}"

    return [
        item.rank,
        item.target,
        len(item.nodes),
        more("workloads_at_zero"),
        more("services_without_endpoints"),
        human_seconds(item.down_seconds),
        more("budgets_below"),
        more("pods_pending"),
        more("pods_stuck"),
        *([more("drains_unfinished")] if drains else []),
        more("pods_evicted"),
        _targets(item.down) if item.down else "-",
    ]


def _writes_row(spans: document.WriteSpans) -> list[object]:
    row: list[object] = [spans.write]
    for span in (spans.baseline, spans.future):
        row += [span.count or "-", _dash(span.first_seconds), _dash(span.last_seconds)]
    return row


def _targets(names: Sequence[str]) -> str:
    return first_names(names, _NAMED)


def _workload_row(workload: document.WorkloadFuture) -> list[object]:
    down = sentences.down_words(workload) if workload.outage == FULL else "-"
    back = "-" if workload.first_seconds is None else _back(workload.back_seconds)
    if workload.back_seconds is None:
        back = sentences.back_each_time(workload) or back
    outage = workload.outage
    if outage not in _TONES and (more := sentences.gained(workload)):
        outage, back = f"gains {more}", human_seconds(sentences.gained_at(workload))
    low, high = _back(workload.low.back_seconds), _back(workload.high.back_seconds)
    return [
        workload.namespace,
        f"{workload.kind.lower()}/{workload.name}",
        ColoredText(outage, _TONES.get(outage, GOOD)),
        down,
        workload.ready_before,
        workload.lowest_serving,
        _dash(workload.first_seconds),
        back,
        workload.evicted_range.text,
        workload.moves,
        len(workload.pending),
        len(workload.stuck),
        human_seconds(workload.blind_seconds),
        f"back in {low} to {high}" if workload.first_seconds is not None else "-",
    ]


def _service_row(service: document.ServiceFuture) -> list[object]:
    blind, without = service.blind_seconds, service.without_endpoints_seconds
    row = [service.namespace, service.name, service.endpoints_before, service.lowest]
    return [*row, human_seconds(blind), human_seconds(without)]


def _zone_rows(zone: document.ZoneFuture) -> Iterable[list[object]]:
    for change in zone.states:
        state = ColoredText(change.state, GOOD if change.state == "Normal" else BAD)
        held = zone.held_pods if change is zone.states[-1] else "-"
        rate, since = f"{change.rate:g}/s", human_seconds(change.at)
        yield [zone.name, state, rate, since, held, change.because]


def _unknown(node: document.NodeFuture) -> str:
    """When it is called Unknown; it may be just after the end of the play, or just before it."""
    may_be = node.ranges.get("unknownSeconds")
    if node.unknown_seconds is None and may_be is not None:
        return f"{human_seconds(may_be.earliest_seconds)} or later"
    return _range(may_be) if may_be is not None else _dash(node.unknown_seconds)


def _tainted(node: document.NodeFuture) -> str:
    may_be = node.ranges.get("taintedSeconds")
    return _range(may_be) if may_be is not None else _dash(node.tainted_seconds)


def _deletions(node: document.NodeFuture) -> str:
    """How many pods taint eviction or the garbage collector deletes, from when to when."""
    first, last = node.ranges.get("firstDeletionSeconds"), node.ranges.get("lastDeletionSeconds")
    begins = first.earliest_seconds if first is not None else node.first_deletion_seconds
    if begins is None:
        return "-"
    ends = last.latest_seconds if last is not None else node.last_deletion_seconds
    return f"{node.evicted_range.text} in {_range(document.InstantRange(begins, ends))}"


def _node_row(node: document.NodeFuture) -> list[object]:
    comes = [_unknown(node), _tainted(node), _deletions(node), _dash(node.back_seconds)]
    return [node.name, node.zone, *comes, node.pods, node.at_risk.all()]


def _budget_row(budget: document.BudgetFuture) -> list[object]:
    points = [f"{p.healthy}/{p.desired} at {human_seconds(p.at)}" for p in budget.points]
    at_zero, below = human_seconds(budget.at_zero_seconds), human_seconds(budget.below_seconds)
    row = [budget.namespace, budget.name, budget.healthy, budget.lowest, budget.desired]
    return [*row, at_zero, below, ", ".join(points)]


def _back(at: float | None) -> str:
    return "never" if at is None else human_seconds(at)


def _dash(at: float | None) -> str:
    return "-" if at is None else human_seconds(at)


def _range(span: document.InstantRange) -> str:
    """To the nearest second: `50s-55s`, `50s` where both ends are shown alike, `50s or never`."""
    low, latest = human_seconds(round(span.earliest_seconds)), span.latest_seconds
    if latest is None:
        return f"{low} or never"
    high = human_seconds(round(latest))
    return low if low == high else f"{low}-{high}"


_BARS: Final = (("act", "an act lasts"), ("stopped", "zone not Normal"), *html.STATES_OF_NODES)
_LEVELS: Final = (
    ("zero", "no pod serves"),
    ("fewer", "fewer pods serve"),
    (html.RANGE, "back between the fast and the slow play"),
)
_UNKNOWN: Final = ("unknown_seconds", "unknownSeconds")
_TAINTED: Final = ("tainted_seconds", "taintedSeconds")
_FIRST: Final = ("first_deletion_seconds", "firstDeletionSeconds")
_LAST: Final = ("last_deletion_seconds", "lastDeletionSeconds")
_BACK: Final = ("back_seconds", "backSeconds")
_INSTANTS: Final = (
    ("Unknown", _UNKNOWN, _UNKNOWN),
    ("tainted", _TAINTED, _TAINTED),
    (PODS_LEAVE, _FIRST, _LAST),
    (BACK, _BACK, _BACK),
)
"""What comes to a node: its word, from which field to which, each with the name of its range."""
_MOST_ROWS: Final = 300
_MOST_CHARTS: Final = 60
_MOST_RECORDS: Final = 600


def html_page(answer: document.WhatIf) -> str:
    """The page as HTML."""
    parts = html.parts_of(_blocks(answer, wide=True))
    last = _last(answer)
    lanes = list(_rows(answer, last))
    moved = [workload for workload in answer.workloads if not html.is_level(_points(workload))]
    level = [workload for workload in answer.workloads if html.is_level(_points(workload))]
    served = [_served_lane(workload, last) for workload in moved[:_MOST_CHARTS]]
    return html.render_page(
        "what_if",
        title=f"What if {' and '.join(map(sentences.act_words, answer.acts))}",
        full=answer.verdict.outage == FULL,
        headline=parts.above[0],
        moment=answer.moment,
        bars=_BARS,
        when=html.draw_lanes(lanes[:_MOST_ROWS], 0.0, last) if lanes else None,
        more_rows=max(0, len(lanes) - _MOST_ROWS),
        levels=_LEVELS,
        who_serves=html.draw_lanes(served, 0.0, last) if served else None,
        more_workloads=max(0, len(moved) - _MOST_CHARTS),
        level_workloads=[_level_row(workload) for workload in level[:_MOST_ROWS]],
        more_level=max(0, len(level) - _MOST_ROWS),
        parts=parts,
        records=[_record(each) for each in answer.differences[:_MOST_RECORDS]],
        more_records=len(answer.differences[_MOST_RECORDS:]) + answer.truncated,
        notes=[*parts.above[1:], *parts.below, *answer.warnings],
    )


def _last(answer: document.WhatIf) -> float:
    """The last instant worth showing: nothing happens after it, or it was looked no further."""
    horizon = answer.horizon
    until = horizon.ended_seconds if horizon.ended == "quiet" else horizon.until_seconds
    ends = [act.at_seconds + (act.for_seconds or 0.0) for act in answer.acts]
    return max(1.0, until, *(min(end, horizon.until_seconds) for end in ends))


def _rows(answer: document.WhatIf, last: float) -> Iterator[html.Row]:
    """Acts, zones and nodes, each with what it is at when."""
    for act in answer.acts:
        end = last if act.for_seconds is None else act.at_seconds + act.for_seconds
        yield html.Row(
            sentences.act_words(act), [html.Bar(act.at_seconds, end, "act")], style="group"
        )
    for zone in answer.zones:
        states = [(state.at, state.state) for state in zone.states]
        yield html.zone_row(zone.name, states, last, human_seconds)
    yield from html.rows_of(folded(_fate(node) for node in answer.nodes), last, human_seconds)


def _fate(node: document.NodeFuture) -> Fate:
    steps = []
    for says, (first, first_range), (last, last_range) in _INSTANTS:
        low_s, high_s = getattr(node, first), getattr(node, last)
        if low_s is None or high_s is None:
            continue
        earliest, latest = node.ranges.get(first_range), node.ranges.get(last_range)
        low_s = low_s if earliest is None else earliest.earliest_seconds
        if latest is not None and latest.latest_seconds is not None:
            high_s = latest.latest_seconds
        steps.append(FateStep(says, low_s, high_s, node.evicted if says == PODS_LEAVE else 0))
    stays = "not back" if steps and node.back_seconds is None else ""
    state = "lost" if node.lost_seconds is not None else ""
    return Fate(node.name, node.zone, state, node.lost_seconds, tuple(steps), stays)


def _served_lane(workload: document.WorkloadFuture, last: float) -> html.Row:
    """Pods that serve (line) and that are ready in the API (dashes), over how bad that is."""
    lowest = {workload.low.lowest_serving, workload.lowest_serving, workload.high.lowest_serving}
    few = f"{min(lowest)}" if len(lowest) == 1 else f"{min(lowest)} to {max(lowest)}"
    text = f"{workload.ready_before} ready before, lowest {few}"
    bars = _levels(workload, last)
    if between := _back_between(workload, last):
        bars.append(html.Bar(*between, html.RANGE))
        text += f", back in {human_seconds(between[0])} to {human_seconds(between[1])}"
    elif workload.first_seconds is not None and workload.back_seconds is None:
        text += ", not back"
    elif workload.back_seconds is not None:
        text += f", back in {human_seconds(workload.back_seconds)}"
    return html.Row(
        f"{workload.namespace}/{workload.name}",
        bars,
        f"{workload.kind}: {workload.outage}",
        workload.outage,
        text,
        lines=html.budget_lines(_points(workload)),
    )


def _levels(workload: document.WorkloadFuture, last: float) -> list[html.Bar]:
    """When fewer pods serve than before, and when none does."""
    before = workload.series[0].serving if workload.series else 0
    bars: list[html.Bar] = []
    ends = [*(point.at for point in workload.series[1:]), last]
    for point, end in zip(workload.series, ends, strict=False):
        style = "" if point.serving >= before else "fewer" if point.serving else "zero"
        if bars and bars[-1].style == style:
            bars[-1] = bars[-1]._replace(end=end)
        else:
            bars.append(html.Bar(point.at, end, style))
    return [bar for bar in bars if bar.style]


def _back_between(workload: document.WorkloadFuture, last: float) -> tuple[float, float] | None:
    """From when to when the three plays say that it is back; None where they agree."""
    if workload.first_seconds is None:
        return None
    backs = [workload.low.back_seconds, workload.back_seconds, workload.high.back_seconds]
    ends = [last if back is None else min(back, last) for back in backs]
    return (min(ends), max(ends)) if min(ends) < max(ends) else None


def _points(workload: document.WorkloadFuture) -> list[BudgetPoint]:
    """Pods that serve and that are ready in the API, as the two lines of a chart."""
    return [BudgetPoint(p.at, p.serving, p.ready, 0) for p in workload.series]


def _level_row(workload: document.WorkloadFuture) -> list[str]:
    first = workload.series[0] if workload.series else None
    counts = ("", "") if first is None else (str(first.serving), str(first.ready))
    return [f"{workload.namespace}/{workload.name}", *counts]


def _record(difference: document.Difference) -> tuple[str, ...]:
    obj = difference.object
    name = f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name
    who = (clock(difference.at), difference.play, difference.controller, difference.action)
    return (*who, f"{obj.kind.lower()}/{name}", difference.reason)
