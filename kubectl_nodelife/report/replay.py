"""The page of `replay`: one line for what happened alike in one second, and what led to it; and the
lanes, a bar for each state of a node or a zone, on one axis of time. And the page of
`replay --drain`: the drain in one line, then pods, workloads, budgets.

As a page of HTML it has a lane for each node or zone that had trouble, one for all others, and
below them every line. A lane's bars are the node's states, and a stroke is something that
happened: it leads to its line, and a line to the one that led to it. templates/replay.html makes
the markup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration
from kubectl_nodelife.outlook.fates import several_nodes
from kubectl_nodelife.outlook.replay import drain_review, timeline
from kubectl_nodelife.outlook.replay.lines import FINISHED
from kubectl_nodelife.outlook.replay.replay_line import USER, ReplayLine
from kubectl_nodelife.report import html
from kubectl_nodelife.report.formats import Block, Column, Page, Table, columns
from kubectl_nodelife.report.terminal import BAD, WARN, ColoredText

_COLUMNS: Final = columns("# | time | who | what | object | after:2 | why:1 | seen by* | node*")
_NAMED: Final = 3
_PREFIX: Final = "node.kubernetes.io/"
_CUT: Final = 160
_CONDITION: Final = "SetNodeCondition"
_EVICTED: Final = "Evicted"
"""status.reason of a pod that its kubelet evicted"""
_DAY: Final = len("2026-11-21T")


MOST: Final = 20
"""Lanes on a screen; the page and the table above have all."""
_WIDTH: Final = 40
_BAR, _FREE = "=", "."


class FoldedLines(NamedTuple):
    """Lines that are alike and of one second. `number`: its place in the table, from 1."""

    number: int
    lines: list[ReplayLine]
    after: int | None


class Replay(NamedTuple):
    """What was seen of a cluster between two instants. `whole` False: the page shows the story of
    nodes alone; documents have all of it. `nodes`: as they are now."""

    lines: Sequence[ReplayLine]
    source: dict[str, Any]
    since_ns: int
    until_ns: int
    warnings: Sequence[str]
    whole: bool = True
    nodes: Sequence[Node] = ()

    def page(self) -> Page:
        """The answer. Names: kind/name of each object, once."""
        return Page(
            partial(_replay, self),
            lambda: timeline.replay_document(*self[:5]),
            lambda: dict.fromkeys(f"{line.kind.lower()}/{_inside(line)}" for line in self.lines),
        )


def _replay(replay: Replay, *, wide: bool) -> Iterator[Block]:
    """The lines, then the lanes. The day is given where there are two."""
    lines, spans = replay.lines, timeline.state_spans(replay.lines, replay.nodes)
    short = format_time(replay.since_ns)[:_DAY] == format_time(replay.until_ns)[:_DAY]
    shown = [line for line in lines if replay.whole or timeline.is_about_nodes(line)]
    if lines:
        yield "\n".join(_headlines(replay, spans))
    yield Table(_COLUMNS, [_row(folded, short) for folded in fold(shown)])
    if more := len(lines) - len(shown):
        what = f"{counted(more, 'more line')} about pods and other objects (--all-events)"
        yield what if shown else f"Nothing about nodes; {what}"
    begin_ns = min((line.time_ns for line in lines), default=replay.since_ns)
    yield from lanes(spans, begin_ns, replay.until_ns)


def _headlines(replay: Replay, spans: Sequence[timeline.StateSpan]) -> Iterator[str]:
    """Which nodes were not Ready, how many pods went, and where to read on."""
    spans = [span for span in spans if span.state == timeline.NOT_READY]
    names = list(dict.fromkeys(span.name for span in spans))
    still = [span for span in spans if span.end_ns is None and not span.is_over]
    pods = {line.identity for line in replay.lines if _is_deletion(line)}
    lost = f"{counted(len(names), 'node')} became not Ready" if names else "no node was lost"
    named = f" ({first_names(names, _NAMED)})" if names else ""
    gone = f", and {counted(len(pods), 'pod')} {'was' if len(pods) == 1 else 'were'} deleted"
    gone = gone if pods else ""
    gone += _finished([line for line in replay.lines if line.family == FINISHED])
    span = f"From {format_time(replay.since_ns)} to {format_time(replay.until_ns)}"
    yield f"{span} {lost}{named}{gone}."
    if still:
        first, more = still[0].name, len(still) - 1
        others = f" and {counted(more, 'other')}" if more else ""
        are = "are" if more else "is"
        yield f"{first}{others} {are} not Ready still: kubectl nodelife explain node {first}"


def fold(lines: Sequence[ReplayLine]) -> list[FoldedLines]:
    """Lines that differ in nothing but the object and less than a second are one."""
    groups: dict[tuple[object, ...], FoldedLines] = {}
    numbers: dict[ReplayLine, int] = {}
    for line in lines:
        after = numbers.get(line.cause) if line.cause is not None else None
        detail = _status(line) if line.action == _CONDITION else line.detail
        alike = (line.actor, line.action, detail, line.kind, line.outcome, after)
        key = (line.time_ns // SECOND_NS, *alike)
        group = groups.setdefault(key, FoldedLines(len(groups) + 1, [], after))
        group.lines.append(line)
        numbers[line] = group.number
    return list(groups.values())


def what(folded: FoldedLines) -> str:
    """The action with its detail and its outcome, where that says more than that it happened."""
    line = folded.lines[0]
    detail = line.detail.replace(_PREFIX, "")
    if line.action == _CONDITION and line.sets:  # conditions of a node are set together
        types = dict.fromkeys(other.sets["type"] for other in folded.lines)
        detail = "+".join(types) + _status(line)
    words = f"{line.action} {detail}".rstrip()
    if line.count > 1:
        words += f" (x{line.count})"
    return words if line.outcome in ("", "confirmed", "applied") else f"{line.outcome}: {words}"


def _status(line: ReplayLine) -> str:
    """`=Unknown (NodeStatusUnknown)` of a node's condition."""
    if not line.sets:  # an Event may be called so
        return ""
    reason = f" ({line.sets['reason']})" if line.sets.get("reason") else ""
    return f"={line.sets['status']}{reason}"


def objects(folded: FoldedLines) -> str:
    """The objects' names, the first few of many."""
    names = list(dict.fromkeys(f"{line.kind}/{_inside(line)}" for line in folded.lines))
    return first_names(names, _NAMED)


def why(folded: FoldedLines) -> str:
    """The first line's reason."""
    reasons = dict.fromkeys(line.why for line in folded.lines)
    text = next(iter(reasons))
    text = text if len(text) <= _CUT else f"{text[:_CUT]}..."
    return f"{text} (and alike)" if len(reasons) > 1 else text


def _finished(lines: Sequence[ReplayLine]) -> str:
    """The pods that their kubelets ended, which are not gone."""
    pods = {(line.namespace, line.name) for line in lines}
    if not pods:
        return ""
    how = "evicted" if all(line.identity[-1] == _EVICTED for line in lines) else "ended"
    were, are = ("was", "its object is") if len(pods) == 1 else ("were", "their objects are")
    return f", and {counted(len(pods), 'pod')} {were} {how} by the kubelet and failed ({are} there)"


def _is_deletion(line: ReplayLine) -> bool:
    """True if a pod was deleted, by whomever."""
    return line.family == "delete" and line.outcome in ("", "confirmed", "applied")


def _row(folded: FoldedLines, short: bool) -> list[object]:
    first = folded.lines[0]
    after = "" if folded.after is None else f"#{folded.after}{'?' if first.inferred else ''}"
    return [
        folded.number,
        format_time(first.time_ns)[_DAY if short else 0 :],
        first.actor.name,
        what(folded),
        objects(folded),
        after,
        why(folded),
        "+".join(first.seen),
        first.about_node,
    ]


def _inside(line: ReplayLine) -> str:
    return f"{line.namespace}/{line.name}" if line.namespace else line.name


def lanes(spans: Sequence[timeline.StateSpan], begin_ns: int, end_ns: int) -> list[Block]:
    """The bars, nothing where there are none."""
    if not spans:
        return []
    between = Column(f"{_clock(begin_ns)} to {_clock(end_ns)}", gives=2)
    rows = [_bar_row(span, begin_ns, end_ns) for span in spans[:MOST]]
    shown = (*columns("lane | state"), between, *columns("for:1 | what"))
    blocks: list[Block] = [Table(shown, rows)]
    if len(spans) > MOST:
        blocks.append(f"and {counted(len(spans) - MOST, 'more bar')} (-o html has all)")
    return blocks


def _bar_row(span: timeline.StateSpan, begin_ns: int, end_ns: int) -> list[object]:
    until_ns = end_ns if span.end_ns is None else span.end_ns
    lasted = human_duration(max(0, until_ns - span.begin_ns))
    if span.end_ns is None:
        lasted += " at most" if span.is_over else ", goes on"
    state = ColoredText(span.state, BAD if span.state == timeline.NOT_READY else WARN)
    bar = _bar(span.begin_ns, until_ns, begin_ns, end_ns)
    return [span.name, state, bar, lasted, span.what]


def _bar(from_ns: int, to_ns: int, begin_ns: int, end_ns: int) -> str:
    """At least one character wide."""
    length = max(1, end_ns - begin_ns)

    def place(at_ns: int) -> int:
        return min(_WIDTH, max(0, _WIDTH * (at_ns - begin_ns) // length))

    first = min(place(from_ns), _WIDTH - 1)
    last = max(first + 1, place(to_ns))
    return _FREE * first + _BAR * (last - first) + _FREE * (_WIDTH - last)


def _clock(at_ns: int) -> str:
    return format_time(at_ns)[11:19]


_POD_COLUMNS: Final = columns("namespace | pod | left | by | replacement | on | ready | after")
_WORKLOAD_COLUMNS: Final = columns("namespace | owner | moved | fewer ready for | none ready for")
_BUDGET_COLUMNS: Final = columns("namespace | budget | needs | at zero for")
UNKNOWN: Final = "<unknown>"


def drain_review_page(
    review: drain_review.DrainReview,
    source: dict[str, Any],
    promised: Mapping[str, float] | None,
    warnings: Sequence[str],
) -> Page:
    """A drain looked back on, as an answer: the sentence, then what moved. Names:
    pod/NAMESPACE/NAME of each that left. `promised`: the estimate of the plan that was kept."""

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield _drain_headline(review, promised)
        yield Table(_POD_COLUMNS, [_pod_row(pod) for pod in review.pods])
        rows = [
            [w.namespace, w.owner, w.moved, _seconds(w.short_seconds), _seconds(w.zero_seconds)]
            for w in review.workloads
        ]
        yield Table(_WORKLOAD_COLUMNS, rows)
        spent = [[b.namespace, b.name, b.desired, _seconds(b.zero_seconds)] for b in review.budgets]
        yield Table(_BUDGET_COLUMNS, spent)
        refusals = "\n".join(f"refused: {one}" for one in review.refused)
        yield refusals or "refused evictions: not known; the API server keeps no trace of them"

    return Page(
        blocks,
        lambda: drain_review.drain_review_document(review, source, promised, warnings),
        lambda: (f"pod/{pod.namespace}/{pod.name}" for pod in review.pods),
    )


def _drain_headline(review: drain_review.DrainReview, promised: Mapping[str, float] | None) -> str:
    cordoned = review.cordoned
    if cordoned is None and not review.pods:
        return _no_drain(review)
    by = "an unknown actor" if cordoned is None else cordoned.actor.name
    at = "at an unknown time" if cordoned is None else _when(cordoned.time_ns)
    text = f"{review.node} was cordoned {at}, by {by}; {counted(len(review.pods), 'pod')} left"
    begin_ns, end_ns = review.begin_ns, review.end_ns
    if begin_ns is None or end_ns is None:
        return text
    took_s = (end_ns - begin_ns) / SECOND_NS
    is_ready = any(pod.ready_ns is not None for pod in review.pods)
    last = "the last replacement was Ready" if is_ready else "the last went"
    text += f", {last} {times.clock(took_s)} later"
    if promised is None:
        return text
    if not all(pod.ready_ns is not None for pod in review.pods):
        return f"{text}: not every replacement is known, so no promise is judged"
    low, high = promised["lowSeconds"], promised["highSeconds"]
    verdict = "as promised" if took_s <= high else "later than promised"
    return f"{text}: {verdict} ({times.clock(low)} to {times.clock(high)})"


def _pod_row(pod: drain_review.MovedPod) -> list[object]:
    return [
        pod.namespace,
        pod.name,
        _when(pod.left_ns),
        pod.by or UNKNOWN,
        pod.replacement or "<none>",
        pod.node or (UNKNOWN if pod.replacement else "-"),
        _when(pod.ready_ns),
        _seconds(pod.gap_s),
    ]


def _no_drain(review: drain_review.DrainReview) -> str:
    there = f"{counted(review.still_there, 'pod')} that a drain takes"
    on_it = f"{there} {'is' if review.still_there == 1 else 'are'} on it"
    if review.is_closed:
        seen = "since when and by whom nothing shows; no pod is seen to have left it"
        return f"{review.node} is cordoned, {seen}, and {on_it}"
    return (
        f"nothing shows a drain of {review.node}: no cordon, and no pod that left it; "
        f"it takes new pods, and {on_it}"
    )


def _when(instant_ns: int | None) -> str:
    return UNKNOWN if instant_ns is None else format_time(instant_ns)


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else times.clock(seconds)


_MOST_CHART_ROWS: Final = 60
_MOST_MARKS: Final = 4000
"""Of all lanes."""
_MOST_ROWS: Final = 5000
_MOST_TEXT: Final = 1_500_000
"""Characters of all rows: names may have 253 each."""
_MOST_NOTES: Final = 200
_LONGEST_TITLE: Final = 200
_HEIGHT: Final = 24
"""Of a state's bar in its lane, in percent."""

_KINDS: Final = {
    timeline.NOT_READY: "not-ready",
    timeline.TAINTED: "tainted",
    timeline.CORDONED: "cordoned",
    timeline.MAINTENANCE: "maintenance",
    timeline.ZONE: "stopped",
}

_ACTORS: Final = (
    ("controller", "a controller"),
    ("kubelet", "a kubelet"),
    ("user", "a user of kubectl"),
    ("us", "kubectl nodelife, in dry run: not done"),
    ("other", "others, or not known"),
)


class Chart(NamedTuple):
    """The picture; `more`: how many nodes it leaves out."""

    lanes: html.LaneChart
    more: int


def html_page(replay: Replay, subject: str) -> str:
    """The page as HTML."""
    folded = fold(replay.lines)
    rows = _rows(folded)
    notes, more = replay.warnings[:_MOST_NOTES], len(replay.warnings) - _MOST_NOTES
    return html.render_page(
        "replay",
        title=f"Replay of {subject}" if subject else "Replay",
        between=f"{format_time(replay.since_ns)} to {format_time(replay.until_ns)}",
        server=str(replay.source.get("server", "")),
        count=len(replay.lines),
        actors=_ACTORS,
        states=[(kind, state) for state, kind in _KINDS.items()],
        chart=_chart(replay, folded, len(rows)) if folded else None,
        rows=rows,
        more_rows=len(folded) - len(rows),
        warnings=[*notes, f"and {more} more"] if more > 0 else notes,
    )


def _chart(replay: Replay, folded: Sequence[FoldedLines], rows: int) -> Chart:
    """From the first line to the end of the replay: a state that goes on reaches it."""
    begin_ns = min(line.time_ns for line in replay.lines)
    last_ns = max(line.time_ns for line in replay.lines)
    end_ns = max(last_ns, replay.until_ns, begin_ns + SECOND_NS)
    spans = dict[str, list[timeline.StateSpan]]()
    for span in timeline.state_spans(replay.lines, replay.nodes):
        name = f"zone {span.name}" if span.state == timeline.ZONE else span.name
        spans.setdefault(name, []).append(span)
    drawn, room = list[html.Row](), _MOST_MARKS
    by_name = _chart_rows(folded, rows, spans.keys())
    for name, happened in list(by_name.items())[:_MOST_CHART_ROWS]:
        on_top = sorted(happened[:room], key=lambda one: one[1].actor.kind == USER)
        strokes = [_stroke(one, line) for one, line in on_top]
        own = spans.get(name, ())
        bars = [_state_bar(span, end_ns) for span in own]
        drawn.append(html.Row(name, bars, words=_words(own), strokes=strokes))
        room -= len(strokes)
    first, last = (at_ns / SECOND_NS for at_ns in (begin_ns, end_ns))
    return Chart(html.draw_lanes(drawn, first, last, _time_of_day), len(by_name) - len(drawn))


def _time_of_day(seconds: float) -> str:
    text = _clock(round(seconds * SECOND_NS))
    return text.removesuffix(":00") if round(seconds) % 60 == 0 else text


def _state_bar(span: timeline.StateSpan, end_ns: int) -> html.Bar:
    """A state, at a height of its own within its lane."""
    until_ns = end_ns if span.end_ns is None else span.end_ns
    place = (
        (12, 76)
        if span.state == timeline.ZONE
        else (2 + timeline.STATES.index(span.state) * _HEIGHT, _HEIGHT)
    )
    ends = " (over; until when is not known)" if span.is_over else ""
    ends = ends if span.end_ns is None else f" to {format_time(span.end_ns)}"
    what = f" {span.what}" if span.what else ""
    title = f"{span.state}{what} since {format_time(span.begin_ns)}{ends}"[:_LONGEST_TITLE]
    begin, end = (at_ns / SECOND_NS for at_ns in (span.begin_ns, until_ns))
    return html.Bar(begin, end, _KINDS[span.state], title, place)


def _words(spans: Iterable[timeline.StateSpan]) -> str:
    """`NotReady since 15:04:18; tainted unreachable:NoExecute 15:04:18–15:09:20`"""
    by_state: dict[tuple[str, str], list[str]] = {}
    for span in spans:
        begin = _clock(span.begin_ns)
        between = f"since {begin}"
        if span.end_ns is not None:
            between = f"{begin}–{_clock(span.end_ns)}"
        by_state.setdefault((span.state, between), []).append(span.what.rpartition("/")[2])
    return "; ".join(
        " ".join(filter(None, (state, ", ".join(filter(None, what)), between)))
        for (state, between), what in by_state.items()
    )


def _stroke(one: FoldedLines, line: ReplayLine) -> html.Stroke:
    title = f"{format_time(line.time_ns)} {line.actor.name}: {what(one)}"[:_LONGEST_TITLE]
    return html.Stroke(line.time_ns / SECOND_NS, line.actor.kind, one.number, title)


def _chart_rows(
    folded: Iterable[FoldedLines], rows: int, in_trouble: Collection[str]
) -> dict[str, list[tuple[FoldedLines, ReplayLine]]]:
    """Node -> what happened to it and to pods on it, the first line of those that are one.

    Zones and the rest have a lane too; nodes that had no state but Ready are one. What has no row
    has no stroke.
    """
    by_name: dict[str, list[tuple[FoldedLines, ReplayLine]]] = {}
    well: dict[str, None] = {}
    for one in folded:
        for line in one.lines:
            name = line.about_node or (f"zone {line.name}" if line.kind == "Zone" else "cluster")
            if line.about_node and name not in in_trouble:
                well[name] = None
                name = ""
            entries = by_name.setdefault(name, [])
            if one.number <= rows and (not entries or entries[-1][0] is not one):
                entries.append((one, line))
    others = several_nodes(well, "") if well else ""
    ordered = sorted(by_name.items(), key=lambda item: (item[0] in ("", "cluster"), item[0]))
    return {name or others: entries for name, entries in ordered}


def _rows(folded: Sequence[FoldedLines]) -> list[dict[str, Any]]:
    """The rows of the table, as many as a page holds."""
    rows: list[dict[str, Any]] = []
    room = _MOST_TEXT
    for one in folded[:_MOST_ROWS]:
        row = _line_values(one)
        room -= sum(min(len(text), html.LONGEST) for text in row.values() if isinstance(text, str))
        if room < 0:
            break
        rows.append(row)
    return rows


def _line_values(one: FoldedLines) -> dict[str, Any]:
    first = one.lines[0]
    return {
        "number": one.number,
        "time": _clock(first.time_ns),
        "kind": first.actor.kind,
        "who": first.actor.name,
        "what": what(one),
        "objects": objects(one),
        "after": one.after,
        "inferred": first.inferred,
        "why": why(one),
        "seen": "+".join(first.seen),
    }
