"""`top` as a full-screen page of the terminal, with textual.

`wall_lines` makes lines of text of a given size, with the tone of each, from the document and how
long ago it came: bars run down by the time that went by since, and stand still once that is too
long. `WallApp` draws those that changed, so that little goes to the terminal. Asking, explaining
and what-if are passed in, and run in threads. Text of the cluster is made printable here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.wall import WALL_SORT_KEYS, Wall, WallNode, WallZone
from kubectl_nodelife.report.ages import due_in
from kubectl_nodelife.report.screen import BAD, GOOD, WARN
from kubectl_nodelife.report.terminal import printable, printable_text

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 16
STALE_SECONDS: Final = 5.0
"""After so long without news nothing on the screen may look current."""

HEAD, PLAIN, DIM = "head", "plain", "dim"
KEYS: Final = "/ filter   s sort   enter explain   w what if lost   q quit"

_BAR_CELLS: Final = 10
_BAR_SECONDS: Final = 300.0
_PREFIX: Final = "node.kubernetes.io/"
_WARN_STATES: Final = ("cordoned", "tainted", "pressure", "silent")


class WallLine(NamedTuple):
    """A line; `tone` is of `screen` or one of those above. `node`: which the line is about."""

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
        warning = f"The terminal is too small: {size.width} x {size.height}."
        return [WallLine(warning), WallLine(f"It needs {LEAST_WIDTH} x {LEAST_HEIGHT}.")]
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
    counts = ", ".join(
        f"{n} {state}" for state, n in sorted(made.counts.items(), key=lambda c: -c[1])
    )
    return WallLine(f"{counted(total, 'node')}{chosen}: {counts}{by}", WARN if trouble else GOOD)


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


_STYLES: Final = {
    GOOD: Style(color="green"),
    WARN: Style(color="yellow"),
    BAD: Style(color="red", bold=True),
    HEAD: Style(bold=True, underline=True),
    DIM: Style(dim=True),
    PLAIN: Style(),
}
_CHOSEN: Final = Style(reverse=True)
_EVERY_S: Final = 1.0
_SHARE: Final = 4.0
"""Between two questions lies at least so much more time than an answer took."""

Ask = Callable[[str, str, int], Wall]
"""By filter, key to sort by, and the most nodes. Raises NodelifeError."""
Describe = Callable[[str], str]
"""Text about a node. Raises NodelifeError."""


class WallLines(Widget):
    """The lines, of which those that changed are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[WallLine] = []
        self.chosen = ""

    def show(self, lines: list[WallLine], chosen: str) -> None:
        """Show these lines; that node's is marked."""
        before, was = self.lines, self.chosen
        self.lines, self.chosen = lines, chosen
        width = max(1, self.size.width)
        for y in range(max(len(before), len(lines))):
            old = before[y] if y < len(before) else None
            new = lines[y] if y < len(lines) else None
            marked = {was, chosen} - {""} if was != chosen else set()
            if old != new or (new is not None and new.node in marked):
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        if y >= len(self.lines):
            return Strip.blank(self.size.width)
        line = self.lines[y]
        style = _STYLES[line.tone]
        if line.node and line.node == self.chosen:
            style += _CHOSEN
        return Strip([Segment(line.text, style)]).adjust_cell_length(self.size.width)


class TextScreen(ModalScreen[None]):
    """A text over the wall, until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "Back", priority=True)
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The text; it can be scrolled."""
        with VerticalScroll():
            yield Static(printable_text(self._text), markup=False)


class WallApp(App[str]):
    """See the module. It ends with "", or with why it cannot go on."""

    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Input { dock: bottom; display: none; height: 1; border: none; }
    Input.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "leave", "Quit"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
        Binding("down,j", "move(1)", "Down"),
        Binding("up,k", "move(-1)", "Up"),
        Binding("enter", "explain", "Explain"),
        Binding("w", "what_if", "What if lost"),
        Binding("ctrl+z", "suspend_process", "Suspend"),
    ]

    def __init__(self, ask: Ask, explain: Describe, what_if: Describe) -> None:
        super().__init__()
        self._ask, self._explain, self._what_if = ask, explain, what_if
        self._wall: Wall | None = None
        self._came = 0.0
        self._words, self._sort, self._chosen = "", WALL_SORT_KEYS[0], ""

    def compose(self) -> ComposeResult:
        """The lines, and the input of the filter."""
        yield WallLines()
        yield Input(placeholder="name, zone=a, state=silent")

    def on_mount(self) -> None:
        """Begin to ask, and let the bars run down."""
        self.set_focus(None)
        self.run_worker(self._follow, thread=True, exclusive=True, group="follow")
        self.set_interval(_EVERY_S, self.draw)

    def _follow(self) -> None:
        """In a thread: ask again and again."""
        while self.is_running:
            began = time.monotonic()
            try:
                made = self._ask(self._words, self._sort, max(1, self.size.height))
            except NodelifeError as error:
                self.call_from_thread(self.exit, str(error))
                return
            took = time.monotonic() - began
            self.call_from_thread(self._take, made)
            time.sleep(max(_EVERY_S, _SHARE * took))

    def _take(self, made: Wall) -> None:
        self._wall, self._came = made, time.monotonic()
        self.draw()

    def draw(self) -> None:
        """The state as of now."""
        if self._wall is None:
            return
        age_s = time.monotonic() - self._came
        size = Size(self.size.width, self.size.height)
        lines = wall_lines(self._wall, size, age_s, self._words, self._sort)
        self.screen_stack[0].query_one(WallLines).show(lines, self._chosen)

    def on_resize(self) -> None:
        """The same for another size."""
        self.draw()

    # Keys

    def action_leave(self) -> None:
        """End."""
        self.exit("")

    def action_sort(self) -> None:
        """Another order."""
        at = WALL_SORT_KEYS.index(self._sort)
        self._sort = WALL_SORT_KEYS[(at + 1) % len(WALL_SORT_KEYS)]
        self.draw()

    def action_filter(self) -> None:
        """Ask for words that choose nodes."""
        field = self.query_one(Input)
        field.add_class("open")
        field.value = self._words
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """They are given."""
        self._words = event.value.strip()
        event.input.remove_class("open")
        self.set_focus(None)
        self.draw()

    def action_move(self, by: int) -> None:
        """Choose the next node, or the one before."""
        names = [node.name for node in self._wall.nodes] if self._wall is not None else []
        shown = {line.node for line in self.query_one(WallLines).lines}
        names = [name for name in names if name in shown]
        if names:
            at = names.index(self._chosen) + by if self._chosen in names else 0
            self._chosen = names[max(0, min(at, len(names) - 1))]
            self.draw()

    def action_explain(self) -> None:
        """Say all that is known of the chosen node."""
        self._describe_chosen(self._explain)

    def action_what_if(self) -> None:
        """Say what its loss would do."""
        self._describe_chosen(self._what_if)

    def _describe_chosen(self, describe: Describe) -> None:
        if self._chosen:
            self.notify(f"asking about {self._chosen} ...", markup=False, timeout=2)
            work: Any = partial(self._show_description, describe, self._chosen)
            self.run_worker(work, thread=True, exclusive=True, group="tell")

    def _show_description(self, describe: Describe, name: str) -> None:
        """In a thread."""
        try:
            text = describe(name)
        except NodelifeError as error:
            text = f"error: {error}"
        self.call_from_thread(self._show_text, text)

    def _show_text(self, text: str) -> None:
        self.push_screen(TextScreen(text))
