"""Time on the page: stretches that are folded, and a stretch of what happened that is chosen."""

from typing import Any

from tests.daemon.user import silence
from tests.ui.browser import Browser, needs_chromium
from tests.ui.test_drawing import shown
from tests.ui.test_page import opened

pytestmark = needs_chromium

LINE = """
  return import('/time_line.js').then(({ timeLine }) => {
    const line = timeLine(arguments[0], 0, 600);
    return {
      folds: line.folds.map(({ share, seconds }) => [share, Math.round(seconds)]),
      shares: arguments[1].map(line.share),
      back: arguments[1].map((at) => Math.round(line.at(line.share(at)))),
    };
  });
"""

SPANS: list[tuple[str, list[list[float]], list[int]]] = [
    ("nothing happens", [], [590]),
    ("all the time", [[0, 600]], []),
    ("at the beginning", [[0, 0]], [590]),
    ("two with a short pause", [[0, 100], [140, 600]], []),
    ("two with a long pause", [[0, 100], [300, 600]], [180]),
    ("one in another", [[0, 500], [100, 200]], [80]),
    ("before and after the line", [[-50, -10], [700, 800]], [590]),
    ("over both ends", [[-50, 100], [500, 900]], [380]),
]


async def test_idle_stretches_are_folded() -> None:
    """Instants keep their order, and come back from their places."""
    async with shown(3) as (window, _):
        for title, spans, seconds in SPANS:
            instants = list(range(0, 601, 50))
            told: dict[str, Any] = await window.run(LINE, spans, instants)
            assert [fold[1] for fold in told["folds"]] == seconds, title
            assert told["shares"] == sorted(told["shares"]), title
            assert (told["shares"][0], told["shares"][-1]) == (0, 1), title
            assert told["back"] == instants, title


ROWS = "return [...document.querySelectorAll('#happened-list li')].map((row) => row.dataset.change)"
RANGE = "return decodeURIComponent(location.hash)"


async def rows(window: Browser) -> set[str]:
    return set(await window.run(ROWS))


async def test_a_stretch_of_what_happened_has_an_address() -> None:
    async with opened() as page:
        window = page.browser
        silence(page.served, "a1")
        await window.until(
            "return document.querySelector('#happened-list').textContent.includes('AddTaint')"
        )
        await window.until("return !document.getElementById('lanes').hidden")
        await window.drag("#lanes", 0.3, 0.6, 0.99)
        await window.until("return location.hash.startsWith('#/happened/')")
        address = await window.run(RANGE)
        low, high = address.split("/")[2:]
        assert low < high and low.endswith("Z")
        note = "return document.getElementById('range-note').textContent"
        await window.until(f"{note}.includes('change')")
        of_range = await rows(window)
        assert of_range
        await window.run("document.getElementById('range-all').click()")
        await window.until("return location.hash === '#/'")
        await window.go("about:blank")
        await window.go(f"{page.url}{address}")
        await window.until(f"{note}.includes('change')")
        await window.until(f"{ROWS}.length === arguments[0]", len(of_range))
        assert await rows(window) == of_range
        await window.run("location.hash = '#/happened/2000-01-01T00:00:00Z/2000-01-01T01:00:00Z'")
        await window.until("return document.getElementById('happened-none').offsetParent !== null")
        assert await rows(window) == set()
        assert await window.log() == []


async def test_causes_are_followed_both_ways() -> None:
    async with shown(30) as (window, told):
        told.tell_frame(dark_s=0.0, changes=1)
        await window.until(f"{ROWS}.length === 20")
        marked = "return document.querySelector('.marked')?.dataset.change"
        press = """
              [...document.querySelectorAll(`[data-change="${arguments[0]}"] button`)]
                .find((button) => button.textContent.startsWith(arguments[1])).click()
            """
        await window.run(press, 30, "its cause")
        assert await window.run(marked) == "29"
        await window.run(press, 30, "what it led to (1)")
        assert await window.run(marked) == "31"


LEFTS = """
  return [...document.querySelectorAll('#next-list .track')].map((track) => [
    track.classList.contains('past'),
    parseFloat(track.firstChild.style.left), parseFloat(track.lastChild.style.left),
  ]);
"""
"""Of each row: true if it is past, and the places of its bar and of the line of now."""

AXIS = """
  return [...document.querySelectorAll('#next-list .axis span span')].map((e) => e.textContent);
"""
"""Now, and how long what is folded is."""


async def test_what_came_true_slides_into_the_past() -> None:
    async with shown(30) as (window, told):
        told.tell_frame(dark_s=20.0, changes=1)
        text = "return document.getElementById('next-list').textContent"
        await window.until(f"{text}.includes('confirmed')")
        found = await window.run(LEFTS)
        past = [at <= now for was, at, now in found if was]
        ahead = [at >= now for was, at, now in found if not was]
        assert len(past) == 1 and all(past) and len(ahead) == 10 and all(ahead)
        marks = await window.run(AXIS)
        assert marks[0] == "now" and len(marks) > 1
        assert all(mark.startswith("/ ") and mark.endswith("s /") for mark in marks[1:])


ASLEEP = """
  const { performance } = globalThis, now = performance.now.bind(performance);
  window.asleep = 0;
  performance.now = () => now() + window.asleep;
"""
DUE = "document.querySelector('#next-list li:nth-child(2) .when')?.textContent ?? ''"
BANNER = "return document.getElementById('banner').textContent"


async def test_after_an_hour_of_sleep_the_page_says_so_until_it_is_right_again() -> None:
    """No time that passed unseen is shown as if it had been watched."""
    async with shown(30) as (window, told):
        told.tell_frame(dark_s=20.0, changes=1)
        due = f"return {DUE}"
        await window.until(f"return ({DUE}).startsWith('in 5m')")
        await window.run(ASLEEP)
        await window.run("window.asleep = 3_600_000")
        await window.until(f"{BANNER}.includes('No news from the daemon for 360')")
        assert await window.run("return document.body.classList.contains('stale')")
        stopped = await window.run(due)
        assert stopped.startswith(("in 5m", "in 4m5"))
        told.zone.now_s += 3600
        told.broadcast.whisper("tick", {"now": told.zone.now_s})
        await window.until(f"{BANNER} === ''")
        await window.until("return !document.body.classList.contains('stale')")
        await window.until(f"return ({DUE}) === 'due now'")
        assert await window.log() == []
