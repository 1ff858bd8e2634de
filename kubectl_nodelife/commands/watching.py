"""`-w` on a terminal: the answer is asked for each second and drawn in its place.

Where stdout is no terminal, the verbs append what is new instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn

from kubectl_nodelife.commands.ask import no_daemon
from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.live_line import LiveScreen

_EVERY_SECONDS = 1.0


def draw_each_second(
    ask: Callable[[], dict[str, Any] | None], *, newest_last: bool = False
) -> NoReturn:
    """Draw `text` of what `ask` gives, for ever. `newest_last`: of more lines than the terminal has
    the last ones are shown. Raises Unreachable once the daemon has ended.
    """
    screen = LiveScreen(newest_last=newest_last)
    drawn = False
    while True:
        told = ask()
        if told is None and drawn:
            raise Unreachable(
                "the daemon has ended: no more lines come",
                remedy="see 'kubectl nodelife daemon logs'",
            )
        if told is None:
            raise no_daemon()
        for warning in told.get("warnings", ()):
            if not terminal.was_warned(warning):
                terminal.warn(warning)
                screen.begin_anew()
        screen.show(str(told.get("text") or told.get("note") or ""))
        drawn = True
        time.sleep(_EVERY_SECONDS)
