"""The page by keyboard alone, and for those who hear it: the table, and what is announced."""

import asyncio
from itertools import pairwise

from tests.ui.browser import DOWN, ENTER, ESCAPE, RIGHT, Browser, needs_chromium
from tests.ui.test_drawing import LEGEND, shown

pytestmark = needs_chromium

TAB = "\ue004"
FOCUSED = "const e = document.activeElement; return e.id || e.className || e.tagName"


async def explain(query: object) -> dict[str, object]:
    return {"answers": [{"question": "Why?", "sentences": ["So."]}]}


async def tabs_to(window: Browser, wanted: str) -> None:
    """Press Tab until that has the focus."""
    for _ in range(40):
        await window.keys(TAB)
        if await window.run(FOCUSED) == wanted:
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


async def test_everything_is_reached_by_keys() -> None:
    async with shown(30, {"explain": explain}) as (window, told):
        await window.keys(TAB)
        assert await window.run(FOCUSED) == "skip"
        await window.keys(ENTER)
        assert await window.run("return location.hash") == "#wall"
        await tabs_to(window, "wall")
        await window.keys(RIGHT, DOWN, ENTER)
        await window.until("return !document.getElementById('panel').hidden")
        assert await window.run(FOCUSED) == "panel-title"
        await tabs_to(window, "copy")
        await tabs_to(window, "what-if-act")
        await tabs_to(window, "what-if-acts")
        await window.keys(ESCAPE)
        await window.until("return document.getElementById('panel').hidden")
        assert await window.run(FOCUSED) == "wall"
        await window.keys("t")
        assert await window.run(FOCUSED) == "next"
        await tabs_to(window, "zoom")
        await window.keys("/")  # means nothing in a field
        assert await window.run(FOCUSED) == "zoom"
        await tabs_to(window, "range-from")
        await window.run("document.activeElement.blur()")
        await window.keys("?")
        await window.until("return document.getElementById('help').open")
        await window.keys(ESCAPE)
        await window.until("return !document.getElementById('help').open")
        await window.keys("/", *"state=silent")
        assert await window.run(FOCUSED) == "search"
        await window.until(f"{LEGEND}.includes('healthy 0')")
        told.tell_frame(dark_s=20.0, changes=1)
        await window.run("document.getElementById('search').value = ''")
        await window.run("document.activeElement.dispatchEvent(new Event('input'))")
        await window.until("return document.querySelectorAll('#next-list button').length > 0")
        await tabs_to(window, "link")  # of what happens next, or of what happened
        await window.keys(ENTER)
        await window.until("return !document.getElementById('panel').hidden")
        assert await window.log() == []


async def test_the_table_has_the_worst_two_hundred() -> None:
    async with shown(3_000) as (window, told):
        told.tell_row("node-02999", "unreachable")
        await window.run("document.querySelector('#table-box summary').click()")
        rows = "return [...document.querySelectorAll('#rows tr')].map((row) => row.innerText)"
        await window.until(f"{rows}.length === 200 && {rows[7:]}[0].startsWith('node-02999')")
        first, second, *_ = await window.run(rows)
        assert first.startswith("node-02999") and "unreachable" in first
        assert second.startswith("node-00000") and "healthy" in second
        assert (await window.text("#table-note")).startswith("200 of 3000 nodes, trouble first")
        await window.run("document.querySelector('#rows tr').mark = 'kept'")
        told.tell_row("node-02999", "unreachable")
        await asyncio.sleep(1.5)
        kept = "return document.querySelector('#rows tr').mark"
        assert await window.run(kept) == "kept"  # and with it the focus that it may have


HEARD = """
  window.heard = [];
  const live = document.getElementById("announce");
  new MutationObserver(() => window.heard.push([performance.now(), live.textContent]))
    .observe(live, { childList: true, characterData: true, subtree: true });
"""


async def test_what_changes_is_said_at_most_every_five_seconds() -> None:
    async with shown(30) as (window, told):
        await asyncio.sleep(1)
        await window.run(HEARD)
        dark = False
        while await window.run("return window.heard.length") < 3:
            dark = not dark
            told.tell_frame(20.0 if dark else None)
            await asyncio.sleep(1.1)
        heard = await window.run("return window.heard")
        said = {text for _, text in heard}
        assert said <= {
            "10 of 30 nodes in trouble; zone r/a is in FullDisruption. Behaviour of v1.36.",
            "30 nodes, none in trouble. Behaviour of v1.36.",
        }
        times = [at for at, _ in heard]
        assert all(later - one > 4_900 for one, later in pairwise(times))
        role = "return document.getElementById('announce').getAttribute('aria-live')"
        assert await window.run(role) == "polite"
