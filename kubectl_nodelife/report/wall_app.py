"""`top` as a full-screen page of the terminal, with textual.

It draws what `wall_lines` makes, line by line, and only those that changed, so that little goes to
the terminal. Asking, explaining and what-if are passed in, and run in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

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

from kubectl_nodelife.answers.wall import WALL_SORT_KEYS, Wall
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.report.screen import BAD, GOOD, WARN
from kubectl_nodelife.report.terminal import printable_text
from kubectl_nodelife.report.wall_lines import DIM, HEAD, PLAIN, Size, WallLine, wall_lines

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
Tell = Callable[[str], str]
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

    def __init__(self, ask: Ask, explain: Tell, what_if: Tell) -> None:
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
        self._tell(self._explain)

    def action_what_if(self) -> None:
        """Say what its loss would do."""
        self._tell(self._what_if)

    def _tell(self, tell: Tell) -> None:
        if self._chosen:
            self.notify(f"asking about {self._chosen} ...", markup=False, timeout=2)
            work: Any = partial(self._told, tell, self._chosen)
            self.run_worker(work, thread=True, exclusive=True, group="tell")

    def _told(self, tell: Tell, name: str) -> None:
        """In a thread."""
        try:
            text = tell(name)
        except NodelifeError as error:
            text = f"error: {error}"
        self.call_from_thread(self._show_text, text)

    def _show_text(self, text: str) -> None:
        self.push_screen(TextScreen(text))
