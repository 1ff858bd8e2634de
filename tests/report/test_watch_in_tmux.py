"""`status -w` and `changes -w` on a real terminal: drawn in place, at three widths.

In tmux, against a daemon that watches a sandbox in which a kubelet falls silent. What scrolled out
of the window would be seen in its history: nothing may have.
"""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.daemon.user import PATIENT, User, silence, user
from tests.loopback import sandbox

TMUX = shutil.which("tmux")
WIDTHS = (80, 120, 200)
ROWS = 40
VERBS = ("status", "changes")


class Windows:
    """A tmux server with a window for each verb and width."""

    def __init__(self, one: User) -> None:
        assert TMUX is not None
        self._tmux = [TMUX, "-S", str(one.home / "tmux"), "-f", "/dev/null"]
        self._environ = {**one.environ, "TERM": "screen", "LC_ALL": "C.UTF-8"}
        self._program = " ".join(one.program)

    def run(self, *words: str) -> str:
        """What a command of tmux prints."""
        command = [*self._tmux, *words]
        done = subprocess.run(command, env=self._environ, check=True, capture_output=True)
        return done.stdout.decode()

    def open(self, verb: str, width: int) -> None:
        """Type the verb with -w in a new terminal of that width."""
        size = ("-x", str(width), "-y", str(ROWS))
        typed = f"{self._program} {verb} -w 2>/dev/null; sleep 600"
        self.run("new-session", "-d", "-s", f"{verb}{width}", *size, typed)

    def shown(self, verb: str, width: int, *, with_history: bool = False) -> str:
        """What the terminal shows; `with_history`: and what has scrolled out of it."""
        more = ("-S", "-") if with_history else ()
        return self.run("capture-pane", "-p", *more, "-t", f"{verb}{width}").rstrip("\n")


@contextmanager
def windows(one: User) -> Iterator[Windows]:
    made = Windows(one)
    try:
        yield made
    finally:
        subprocess.run([*made._tmux, "kill-server"], env=made._environ, check=False)


@pytest.mark.skipif(TMUX is None, reason="there is no tmux on this machine")
async def test_what_is_watched_is_drawn_in_its_place() -> None:
    async with sandbox(flags=PATIENT) as served, user(served.kubeconfig) as one:
        await one.watching(PATIENT)
        with windows(one) as open_windows:
            terminals = [(verb, width) for verb in VERBS for width in WIDTHS]
            for verb, width in terminals:
                open_windows.open(verb, width)

            async def shown(words: str, verb: str, width: int) -> str:
                async def found() -> str:
                    text = open_windows.shown(verb, width)
                    return text if words in text else ""

                text: str = await one.until(found)
                return text

            for width in WIDTHS:
                first = await shown("NAME ", "status", width)
                assert "None of 4 nodes is in trouble." in first
                await shown("No changes yet", "changes", width)
            silence(served, "a1")
            for width in WIDTHS:
                lost = await shown("overdue", "status", width)
                check_page(lost, width)
                assert lost.startswith("1 of 4 nodes is in trouble; the worst is a1: ")
                assert rows_of(lost, "a1") == 1, lost
                told = await shown("AddTaint", "changes", width)
                check_page(told, width)
                assert told.count("TIME ") == 1 and "No changes yet" not in told
                assert re.search(r"^\d\d:\d\d:\d\dZ +would ", told, re.MULTILINE), told
            await asyncio.sleep(3)  # some more drawings
            for verb, width in terminals:
                whole = open_windows.shown(verb, width, with_history=True)
                assert whole.count("NAME " if verb == "status" else "TIME ") == 1, whole
                check_page(whole, width)


def check_page(text: str, width: int) -> None:
    """No line reached the margin, beyond which it would have gone on in the next."""
    assert max(map(len, text.splitlines())) <= width, text
    assert "Traceback" not in text and "error:" not in text


def rows_of(text: str, name: str) -> int:
    """How many rows of the table are the node's."""
    return sum(line.split()[:1] == [name] for line in text.splitlines())
