"""The page draws only what shows something else: in Chromium, on a stream made here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from bench.ui import DarkZone, Told
from tests.loopback import play
from tests.ui.browser import Browser, browser, needs_chromium

pytestmark = needs_chromium

NODES = 3_000

COUNT = """
  window.calls = {};
  for (const name of ['drawImage', 'fillRect', 'clearRect']) {
    const called = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (...given) {
      window.calls[name] = (window.calls[name] ?? 0) + 1;
      return called.apply(this, given);
    };
  }
"""
LEGEND = "return document.querySelector('#legend').innerText"


@contextlib.asynccontextmanager
async def shown(nodes: int) -> AsyncIterator[tuple[Browser, Told]]:
    """A page of so many nodes in three zones, drawn, and who tells it."""
    told = Told(DarkZone(nodes, nodes * 30))
    async with told.served() as url, browser() as window:
        await window.look(1280, 900)
        await window.devtools("Page.addScriptToEvaluateOnNewDocument", source=COUNT)
        await window.go(url)
        await window.until(f"{LEGEND}.includes('healthy {nodes}')")
        await settled(window)
        yield window, told


async def settled(window: Browser) -> dict[str, int]:
    """What was called to draw, once a second passes without."""
    before: dict[str, Any] = {}
    while (found := await window.run("return { ...window.calls }")) != before:
        before = found
        await asyncio.sleep(1.0)
    await window.run("window.calls = {}")
    return before


def test_a_node_that_changes_is_drawn_and_the_others_are_not() -> None:
    async def test() -> None:
        async with shown(NODES) as (window, told):
            told.tell_row(name="node-00004", state="cordoned")
            await window.until(f"{LEGEND}.includes('cordoned 1')")
            drawn = await settled(window)
            assert 1 <= drawn.get("fillRect", 0) <= 3, drawn  # its dot, where it is and was
            assert "drawImage" not in drawn

    play(test)


def test_a_lost_zone_is_drawn_from_few_pictures() -> None:
    """All nodes of the zone have a ring; rings of the same length are one picture."""

    async def test() -> None:
        async with shown(NODES) as (window, told):
            made = """
              const { transferToImageBitmap: made } = OffscreenCanvas.prototype;
              window.pictures = 0;
              OffscreenCanvas.prototype.transferToImageBitmap = function () {
                window.pictures += 1;
                return made.apply(this);
              };
            """
            await window.run(made)
            told.tell_frame(dark_s=30.0)
            await window.until(f"{LEGEND}.includes('unreachable {NODES // 3}')")
            await window.until("return window.calls.drawImage >= arguments[0]", NODES // 3)
            assert await window.run("return window.pictures") <= 20

    play(test)


def test_rows_of_what_happened_stay() -> None:
    async def test() -> None:
        async with shown(30) as (window, told):
            told.tell_frame(dark_s=0.0, changes=1)
            rows = "return document.querySelectorAll('#happened-list li').length"
            await window.until(f"{rows} === 20")
            await window.run("document.querySelector('[data-change=\"30\"]').mark = 'kept'")
            told.tell_frame(dark_s=0.0, changes=2)
            await window.until(f"{rows} === 40")
            kept = "return document.querySelector('[data-change=\"30\"]').mark"
            assert await window.run(kept) == "kept"
            every = "return [...document.querySelectorAll('#happened-list li')]"
            found = await window.run(f"{every}.map((row) => Number(row.dataset.change))")
            assert found == sorted(found, reverse=True)

    play(test)
