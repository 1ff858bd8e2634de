"""The wall as lines of text of a given size, with the tone of each: what `top` shows.

Pure: the document, how long ago it came, and the size of the screen. Bars run down by the time that
went by since, and stand still once that is too long. Text of the cluster is made printable here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.answers.wall import Wall, WallNode, WallZone
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.ages import due_in
from kubectl_nodelife.report.screen import BAD, GOOD, WARN
from kubectl_nodelife.report.terminal import printable

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 16
STALE_SECONDS: Final = 5.0
"""After so long without news nothing on the screen may look alive."""

HEAD, PLAIN, DIM = "head", "plain", "dim"
KEYS: Final = "/ filter   s sort   enter explain   w what if lost   q quit"

_BAR_CELLS: Final = 10
_BAR_SECONDS: Final = 300.0
_PREFIX: Final = "node.kubernetes.io/"
_WARN_STATES: Final = ("cordoned", "tainted", "pressure", "silent")


class WallLine(NamedTuple):
    """A line; `tone` is of `screen` or one of those above. `node`: whom the line is about."""

    text: str
    tone: str = PLAIN
    node: str = ""


class Size(NamedTuple):
    """Of the screen, in cells."""

    width: int
    height: int


def wall_lines(
    made: Wall, size: Size, age_s: float, words: str = "", sort: str = ""
) -> list[WallLine]:
    """As many lines as the screen has, or fewer. `age_s`: seconds since the document came."""
    if size.width < LEAST_WIDTH or size.height < LEAST_HEIGHT:
        said = f"The terminal is too small: {size.width} x {size.height}."
        return [WallLine(said), WallLine(f"It needs {LEAST_WIDTH} x {LEAST_HEIGHT}.")]
    stale = age_s > STALE_SECONDS
    shown_s = min(age_s, STALE_SECONDS)
    zones, nodes, following = _shares(made, size.height - 8)
    lines = [_headline(made, words, sort), _state(made, age_s)]
    lines += [
        WallLine(""),
        WallLine(_zone_text("ZONE", "STATE", "NOT READY", "RATE", "BRAKE"), HEAD),
    ]
    lines += [_zone(zone) for zone in made.zones[:zones]]
    lines += [WallLine(_node_text("NODE", "STATE", "PODS", "", "NEXT"), HEAD)]
    lines += [_node(node, shown_s) for node in made.nodes[:nodes]]
    lines += [WallLine(""), WallLine("WHAT COMES NEXT", HEAD)]
    soon = [_next(node, shown_s) for node in made.next[:following]]
    lines += soon or [WallLine("nothing is due", DIM)]
    cut = [line._replace(text=line.text[: size.width]) for line in lines[: size.height - 1]]
    if stale:
        cut = [line._replace(tone=DIM if line.tone != HEAD else HEAD) for line in cut]
        cut[1] = cut[1]._replace(tone=BAD)
    return [*cut, WallLine(KEYS[: size.width], DIM)]


def _shares(made: Wall, height: int) -> tuple[int, int, int]:
    """How many lines zones, nodes and what comes next get."""
    zones = min(len(made.zones), max(3, height // 5))
    following = min(max(1, len(made.next)), max(3, height // 5))
    return zones, max(1, height - zones - following), following


def _headline(made: Wall, words: str, sort: str) -> WallLine:
    total = sum(made.counts.values())
    trouble = sum(1 for node in made.nodes if not node.fine)
    chosen = f", of those that {words!r} chooses" if words else ""
    by = f", sorted by {sort}" if sort and sort != "trouble" else ""
    said = ", ".join(
        f"{n} {state}" for state, n in sorted(made.counts.items(), key=lambda c: -c[1])
    )
    return WallLine(f"{counted(total, 'node')}{chosen}: {said}{by}", WARN if trouble else GOOD)


def _state(made: Wall, age_s: float) -> WallLine:
    source = made.source
    where = printable(str(source.get("context") or source.get("server") or ""))
    if age_s > STALE_SECONDS:
        return WallLine(f"{where}: no news for {age_s:.0f}s, what is shown stands still", BAD)
    if made.warnings:
        return WallLine(f"{where}: {printable(made.warnings[0])}", WARN)
    return WallLine(f"{where}, {made.profile}", DIM)


def _zone_text(name: str, state: str, lost: str, rate: str, brake: str) -> str:
    return f"{name:<16} {state:<17} {lost:<9} {rate:<6} {brake}"


def _zone(zone: WallZone) -> WallLine:
    lost = f"{zone.not_ready} of {zone.nodes}"
    text = _zone_text(_cut(zone.name, 16), zone.state, lost, f"{zone.rate:g}/s", zone.brake)
    return WallLine(text, GOOD if zone.state == "Normal" else BAD)


def _node_text(name: str, state: str, pods: str, bar: str, following: str) -> str:
    return f"{name:<20} {state:<12} {pods:>4} {bar:<{_BAR_CELLS}} {following}"


def _node(node: WallNode, age_s: float) -> WallLine:
    pods = "?" if node.pods is None else str(node.pods)
    left_s = None if node.in_seconds is None else max(0.0, node.in_seconds - age_s)
    bar = "" if left_s is None else _bar(left_s)
    following = _what(node) if left_s is None else f"{_when(left_s):<8} {_what(node)}"
    tone = GOOD if node.state == "healthy" else WARN if node.state in _WARN_STATES else BAD
    name = _cut(node.name, 20)
    return WallLine(_node_text(name, node.state, pods, bar, following), tone, node.name)


def _next(node: WallNode, age_s: float) -> WallLine:
    left_s = max(0.0, (node.in_seconds or 0.0) - age_s)
    return WallLine(
        f"{_when(left_s):<10} {_cut(node.name, 24):<24} {_what(node)}", PLAIN, node.name
    )


def _what(node: WallNode) -> str:
    return printable(node.action.replace(_PREFIX, ""))


def _when(seconds: float) -> str:
    return due_in(round(seconds * SECOND_NS))


def _bar(seconds: float) -> str:
    """Five minutes are a whole bar; it runs down."""
    cells = min(1.0, seconds / _BAR_SECONDS) * _BAR_CELLS
    whole = int(cells)
    part = "▌" if cells - whole >= 0.5 else ""
    return ("█" * whole + part) or "▏"


def _cut(text: str, width: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
