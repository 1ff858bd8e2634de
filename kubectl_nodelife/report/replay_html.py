"""A replay as one self-contained page: a lane for each node, and below it every line.

No script, no font, nothing fetched: the file can be mailed, archived and printed. A mark in a lane
leads to its line, and a line to the one that led to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.replay_line import USER, ReplayLine
from kubectl_nodelife.report.html import render_page
from kubectl_nodelife.report.replay import Folded, ReplayPage, clock, fold, objects, what, who, why

_MOST_LANES: Final = 60
_MOST_ROWS: Final = 5000
_WIDTH, _LEFT, _ROW, _TOP = 1120, 170, 22, 26
_TICKS: Final = 6

_ACTORS: Final = (
    ("controller", "a controller"),
    ("kubelet", "a kubelet"),
    ("user", "a user of kubectl"),
    ("us", "we, in dry run: not done"),
    ("other", "others, or not known"),
)


def page(replay: ReplayPage, subject: str) -> str:
    """The page. What comes from the cluster is escaped."""
    title = f"Replay of {subject}" if subject else "Replay"
    folded = fold(replay.lines)
    server = str(replay.source.get("server", ""))
    between = f"{clock(replay.since_ns)} to {clock(replay.until_ns)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(between)}, {escape(server)}; {len(replay.lines)} lines.</p>',
        *_chart(replay, folded),
        *_table(folded),
        *_notes(replay.warnings),
    ]
    return render_page("replay", title, parts)


def _chart(replay: ReplayPage, folded: Sequence[Folded]) -> Iterable[str]:
    lanes = _lanes(folded)
    if not lanes:
        return
    dots = (
        f'<svg width="12" height="12"><circle class="{kind}" cx="6" cy="6" r="4.5"/></svg>{word}'
        for kind, word in _ACTORS
    )
    yield f'<h2>Nodes</h2><p class="key dim">{"".join(dots)}</p>'
    shown = dict(list(lanes.items())[:_MOST_LANES])
    height = _TOP + _ROW * len(shown) + 8
    begin_ns = min(line.time_ns for line in replay.lines)
    end_ns = max(max(line.time_ns for line in replay.lines), begin_ns + SECOND_NS)
    yield f'<div class="scroll"><svg width="{_WIDTH}" height="{height}" role="img">'
    yield from _axis(begin_ns, end_ns, height)
    for row, (name, marks) in enumerate(shown.items()):
        y = _TOP + _ROW * row + _ROW // 2
        yield f'<line class="lane" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
        yield f'<text x="0" y="{y + 4}">{escape(name[:26])}</text>'
        for one, line in sorted(marks, key=lambda mark: mark.line.actor.kind == USER):  # on top
            x = _x(line.time_ns, begin_ns, end_ns)
            told = escape(f"{clock(line.time_ns)} {who(line)}: {what(one)}")
            yield (
                f'<a href="#line-{one.number}"><circle class="{line.actor.kind}" cx="{x:.1f}" '
                f'cy="{y}" r="4.5"><title>{told}</title></circle></a>'
            )
    yield "</svg></div>"
    if len(lanes) > len(shown):
        yield f'<p class="dim">and {len(lanes) - len(shown)} more nodes</p>'


class Mark(NamedTuple):
    """A mark in a lane: the first line in it of those that are one."""

    folded: Folded
    line: ReplayLine


def _lanes(folded: Iterable[Folded]) -> dict[str, list[Mark]]:
    """Node -> what happened to it and to pods on it; zones and the rest have a lane too."""
    lanes: dict[str, list[Mark]] = {}
    for one in folded:
        for line in one.lines:
            name = line.about_node or (f"zone {line.name}" if line.kind == "Zone" else "cluster")
            lane = lanes.setdefault(name, [])
            if not lane or lane[-1].folded is not one:
                lane.append(Mark(one, line))
    return dict(sorted(lanes.items(), key=lambda lane: (lane[0] == "cluster", lane[0])))


def _axis(begin_ns: int, end_ns: int, height: int) -> Iterable[str]:
    for tick in range(_TICKS + 1):
        at_ns = begin_ns + (end_ns - begin_ns) * tick // _TICKS
        x = _x(at_ns, begin_ns, end_ns)
        end = " end" if tick == _TICKS else ""
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height}"/>'
        yield f'<text class="tick{end}" x="{x:.1f}" y="12">{clock(at_ns)[11:19]}</text>'


def _x(at_ns: int, begin_ns: int, end_ns: int) -> float:
    return _LEFT + 8 + (_WIDTH - _LEFT - 16) * (at_ns - begin_ns) / (end_ns - begin_ns)


def _table(folded: Sequence[Folded]) -> Iterable[str]:
    yield '<h2>What happened</h2><div class="scroll"><table><thead><tr>'
    for header in ("#", "time", "who", "what", "object", "after", "why", "seen by"):
        yield f"<th>{header}</th>"
    yield "</tr></thead><tbody>"
    for one in folded[:_MOST_ROWS]:
        first = one.lines[0]
        mark, by = "?" if first.inferred else "", escape(who(first))
        after = "" if one.after is None else f'<a href="#line-{one.after}">#{one.after}</a>{mark}'
        cells = (
            f'<td class="short">{one.number}</td>',
            f'<td class="short">{clock(first.time_ns)[11:19]}</td>',
            f'<td class="short"><span class="who {first.actor.kind}">{by}</span></td>',
            f"<td>{escape(what(one))}</td>",
            f"<td>{escape(objects(one))}</td>",
            f'<td class="short">{after}</td>',
            f"<td>{escape(why(one))}</td>",
            f'<td class="short dim">{escape("+".join(first.seen))}</td>',
        )
        yield f'<tr id="line-{one.number}">{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
    if len(folded) > _MOST_ROWS:
        yield f'<p class="dim">and {len(folded) - _MOST_ROWS} more</p>'


def _notes(warnings: Sequence[str]) -> Iterable[str]:
    yield '<p class="dim">A question mark behind a cause: concluded from what is usual.</p>'
    if warnings:
        yield "<h2>What this rests on</h2><ul>"
        for text in warnings:
            yield f"<li>{escape(text)}</li>"
        yield "</ul>"
